package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	about "github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/lifecycle"
)

func newKeep() *cobra.Command {
	var t target
	var o output
	var age, reason string
	var again bool
	cmd := &cobra.Command{
		Use:   "keep KIND/NAME...",
		Short: "Keep objects that would expire",
		Long: `Keep objects that would expire: by the annotations lifecycle.exeunt.dev/expires-at
and lifecycle.exeunt.dev/ttl, or as finished Jobs. The command sets the annotation
lifecycle.exeunt.dev/keep-until, so it needs the right to patch the object.
--end removes it, which needs the right to delete the object too: it may expire at once.`,
		Example: `  exeunt keep deployment/preview-42 -n shop --for 30d --reason "the demo is on Friday"
  exeunt keep job/import
  exeunt keep job/import --end`,
		RunE: func(cmd *cobra.Command, args []string) error {
			until, err := lifecycle.KeepFor(age, time.Now())
			if err != nil {
				return fmt.Errorf("--for %q: %w", age, err)
			}
			values := map[string]any{lifecycle.KeepUntil: until, lifecycle.KeepReason: reason}
			if reason == "" {
				values[lifecycle.KeepReason] = nil
			}
			if again {
				values = map[string]any{lifecycle.KeepUntil: nil, lifecycle.KeepReason: nil}
			}
			patch := map[string]any{"metadata": map[string]any{"annotations": values}}
			return t.askEach(cmd, &o, args, func(c *client, ref v1.ObjectReference) (document, error) {
				var kept metav1.PartialObjectMetadata
				gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
				mapping, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
				if err == nil {
					err = send(cmd.Context(), c.rest, request{method: http.MethodPatch, path: c.collection(mapping) + "/" + ref.Name, body: patch, patch: types.MergePatchType}, &kept)
				}
				if err != nil {
					return document{}, fmt.Errorf("keep %s: %w", about.Describe(ref), err)
				}
				return document{value: kept, text: func(p *printer) {
					if again { // when it expires, policies say, too
						p.printf("%s is no longer kept: exeunt why %s says when it expires\n", about.Describe(ref), about.Target(ref))
						return
					}
					p.printf("%s is kept until %s\n", about.Describe(ref), kept.Annotations[lifecycle.KeepUntil])
				}}, nil
			})
		},
	}
	cmd.ValidArgsFunction = t.completeObjects
	t.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&age, "for", "forever", "how long to keep them, as 30d or 36h")
	f.StringVar(&reason, "reason", "", "why, for other people: an annotation of the object")
	f.BoolVar(&again, "end", false, "no longer keep them")
	o.addFlag(cmd, "name")
	return cmd
}
