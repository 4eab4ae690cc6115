// Package expire has the commands about policies of expiry. It asks a server through a Session and knows neither flags of
// connections nor formats of output.
package expire

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/cmd/exeunt/past"
	"github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/lifecycle"
)

// Session is a command's connection and its output.
type Session interface {
	past.Session
	// Put sends a body: with POST, or as a patch of a type.
	Put(ctx context.Context, method, path string, patch types.PatchType, body, into any) error
}

// New returns the command. Each of its commands has a session of its own.
func New(session func() Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "expiry",
		Short: "Preview and start policies by which objects expire",
		Long: `Preview and start ExpiryPolicies and ClusterExpiryPolicies, by which the server deletes objects. A policy
is named by its name, or as clusterexpirypolicy/NAME.`,
	}
	cmd.AddCommand(newPreview(session()), newStart(session()))
	return cmd
}

// find returns the path of a policy.
func find(s Session, name string) (string, error) {
	if !strings.Contains(name, "/") {
		name = "expirypolicy/" + name
	}
	return s.Find([]string{name})
}

func newPreview(s Session) *cobra.Command {
	var q v1.ExpiryPreview
	cmd := &cobra.Command{
		Use:   "preview POLICY",
		Short: "Show what a policy takes, and when",
		Long: `Show which objects a policy takes and when, if it is started and no object changes: the same
function decides as when it runs. That needs the rights to get the policy and to list its resources.`,
		Example: "  exeunt expiry preview old-previews -n shop --until 30d",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := find(s, args[0])
			if err != nil {
				return err
			}
			var policy metav1.PartialObjectMetadata
			if err := s.Send(cmd.Context(), http.MethodGet, path, nil, &policy); err != nil {
				return err
			}
			q.APIVersion, q.Kind = v1.GroupVersion.String(), "ExpiryPreview"
			q.Spec.Policy, q.Spec.Namespace, q.Spec.Until = policy.Name, policy.Namespace, strings.TrimPrefix(q.Spec.Until, "+")
			if err := s.Put(cmd.Context(), http.MethodPost, "/apis/"+v1.GroupVersion.String()+"/expirypreviews", "", &q, &q); err != nil {
				return err
			}
			return s.Print(cmd.OutOrStdout(), &q, func(p past.Printer) { write(&q, p) })
		},
	}
	s.Flags(cmd)
	cmd.Flags().StringVar(&q.Spec.Until, "until", "7d", "how far to look, at most a year")
	cmd.Flags().Int64Var(&q.Spec.Limit, "limit", 500, "how many objects to list, the first that go")
	return cmd
}

// write says a preview for people.
func write(q *v1.ExpiryPreview, p past.Printer) {
	for _, o := range q.Status.Objects {
		waits := ""
		if o.Waits {
			waits = "  waits for a confirmation"
		}
		p.Line("%s  %s%s", o.At.Local().Format("2006-01-02 15:04:05 MST"), deletion.Describe(o.Object), waits)
	}
	if rest := q.Status.Total - int64(len(q.Status.Objects)); rest > 0 {
		p.Line("… and %d more", rest)
	}
	for _, d := range q.Status.Days {
		p.Line("%s UTC: %d", d.Date, d.Objects)
	}
	p.Line("%d would go in %s", q.Status.Total-q.Status.Waiting-q.Status.Later, q.Spec.Until)
	if q.Status.Later > 0 {
		p.Line("%d go later, because of the rate", q.Status.Later)
	}
	if q.Status.Waiting > 0 {
		p.Line("%d wait, because they are more than %d in a day: to let them go, use exeunt expiry start --objects", q.Status.Waiting, q.Status.Most)
	}
	if q.Status.Failed > 0 {
		p.Line("%d stay because the policy cannot be asked: %s", q.Status.Failed, q.Status.Problem)
	}
}

func newStart(s Session) *cobra.Command {
	var objects int64
	cmd := &cobra.Command{
		Use:   "start POLICY",
		Short: "Let a policy take what it selects",
		Long: `Let a policy take what it selects, as its spec is now: it sets the annotation
lifecycle.exeunt.dev/start-expiry to the generation of the policy. When the spec changes, the policy
observes again, until it is started again. That needs the right to patch the policy, the verb
confirm-cascade on it, and list and delete on its resources.

A policy takes no more objects in a day (UTC) than its spec.confirmAbove says; then its state is
Waiting. --objects lets it take more.`,
		Example: `  exeunt expiry start old-previews -n shop
  exeunt expiry start clusterexpirypolicy/finished-jobs --objects 5000`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := find(s, args[0])
			if err != nil {
				return err
			}
			var policy metav1.PartialObjectMetadata
			if err := s.Send(cmd.Context(), http.MethodGet, path, nil, &policy); err != nil {
				return err
			}
			value := fmt.Sprint(policy.Generation)
			if objects > 0 {
				value += fmt.Sprint("/", objects)
			}
			patch := map[string]any{"metadata": map[string]any{
				"resourceVersion": policy.ResourceVersion, "annotations": map[string]any{lifecycle.StartExpiry: value},
			}}
			if err := s.Put(cmd.Context(), http.MethodPatch, path, types.MergePatchType, patch, &policy); err != nil {
				return fmt.Errorf("start %s: %w", policy.Name, err)
			}
			return s.Print(cmd.OutOrStdout(), policy, func(p past.Printer) { p.Line("%s is started at generation %d", policy.Name, policy.Generation) })
		},
	}
	s.Flags(cmd)
	cmd.Flags().Int64Var(&objects, "objects", 0, "how many objects it may take in a day, instead of what its spec says")
	return cmd
}
