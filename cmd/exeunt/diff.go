package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/exeunt/exeunt/cmd/exeunt/past"
	"github.com/exeunt/exeunt/server/manifests"
)

func newDiff() *cobra.Command {
	var s session
	var path, from, to string
	cmd := &cobra.Command{
		Use:   "diff -f DIR|FILE | KIND/NAME --from TIME [--to TIME]",
		Short: "Show what manifests would change, or what has changed since a time",
		Long: `Show what the manifests in a directory or a file would change, as "exeunt serve --manifests"
applies them: by a dry run of server-side apply, with its defaults, webhooks and policies.

Or show what has changed in an object between two times; of a namespace: what was created,
changed and deleted in it, without status. It needs the verb history. ` + past.Help + `

The exit code is 0 if nothing would change, 1 if something would, and 2 if an object could
not be compared.`,
		Example: `  exeunt diff -f /etc/exeunt/manifests
  exeunt diff deployment/web -n shop --from 10:00
  exeunt diff namespace/shop --from "2 hours ago" --to "1 hour ago"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case (path == "") == (from == "") || (from == "") != (len(args) == 0):
				return codedError{errors.New("say -f DIR, or KIND/NAME and --from"), exitUsage}
			case from != "":
				found, err := past.Compare(cmd.Context(), &s, args, from, to, cmd.ErrOrStderr())
				if err != nil {
					return codedError{err, exitUsage}
				}
				err = s.Print(cmd.OutOrStdout(), found, func(p past.Printer) { past.Write(p, found, "was", "nothing has changed") })
				if err == nil && len(found) > 0 {
					err = fmt.Errorf("%s changed", counted(len(found), "object"))
				}
				return err
			}
			return diffManifests(cmd, &s, path)
		},
	}
	s.Flags(cmd)
	cmd.Flags().StringVarP(&path, "filename", "f", "", "the directory or file with manifests")
	cmd.Flags().StringVar(&from, "from", "", "the time or version to compare with")
	cmd.Flags().StringVar(&to, "to", "now", "the time or version to compare")
	return cmd
}

func diffManifests(cmd *cobra.Command, s *session, path string) error {
	objects, err := manifests.Read(path)
	if err != nil {
		return codedError{err, exitUsage}
	}
	config, err := s.restConfig()
	if err != nil {
		return codedError{err, exitUsage}
	}
	client, err := manifests.NewClient(config)
	if err != nil {
		return codedError{err, exitUsage}
	}
	found, problems := []past.Difference{}, []error(nil)
	for _, object := range objects {
		now, then, err := client.Diff(cmd.Context(), object)
		d := past.Difference{Object: manifests.Name(object), Created: now == nil}
		switch {
		case err != nil && d.Created && (meta.IsNoMatchError(err) || apierrors.IsNotFound(err)) && brings(objects, object):
		case err != nil:
			problems = append(problems, fmt.Errorf("%s: %w", d.Object, err))
			continue
		case !d.Created:
			if d.Changes, err = past.Changed(now, then); err != nil {
				return err
			}
		}
		if d.Created || len(d.Changes) > 0 {
			found = append(found, d)
		}
	}
	err = s.Print(cmd.OutOrStdout(), found, func(p past.Printer) { past.Write(p, found, "would be", "nothing would change") })
	if len(problems) > 0 {
		return codedError{errors.Join(append(problems, err)...), exitUsage}
	}
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%s of %d would change", counted(len(found), "object"), len(objects))
	}
	return err
}

// brings reports whether the manifests have the namespace or the definition that an object lacks.
func brings(all []*unstructured.Unstructured, o *unstructured.Unstructured) bool {
	for _, other := range all {
		kind, _, _ := unstructured.NestedString(other.Object, "spec", "names", "kind")
		if other.GetKind() == "Namespace" && other.GetName() == o.GetNamespace() || other.GetKind() == "CustomResourceDefinition" && kind == o.GetKind() {
			return true
		}
	}
	return false
}
