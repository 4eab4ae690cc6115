package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/server/manifests"
)

func newDiff() *cobra.Command {
	var t target
	var o output
	var path string
	cmd := &cobra.Command{
		Use:   "diff -f DIR|FILE",
		Short: "Show what manifests would change on the server",
		Long: `Show what the manifests in a directory or a file would change, as "exeunt serve --manifests"
applies them: by a dry run of server-side apply, with its defaults, webhooks and policies.

The exit code is 0 if nothing would change, 1 if something would, and 2 if an object could
not be compared.`,
		Example: "  exeunt diff -f /etc/exeunt/manifests",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			objects, err := manifests.Read(path)
			if err != nil {
				return codedError{err, exitUsage}
			}
			config, err := t.restConfig()
			if err != nil {
				return codedError{err, exitUsage}
			}
			client, err := manifests.NewClient(config)
			if err != nil {
				return codedError{err, exitUsage}
			}
			found, problems := []difference{}, []error(nil)
			for _, object := range objects {
				now, then, err := client.Diff(cmd.Context(), object)
				d := difference{Object: manifests.Name(object), Created: now == nil}
				switch {
				case err != nil && d.Created && (meta.IsNoMatchError(err) || apierrors.IsNotFound(err)) && brings(objects, object):
				case err != nil:
					problems = append(problems, fmt.Errorf("%s: %w", d.Object, err))
					continue
				case !d.Created:
					if d.Changes, err = changed(now, then); err != nil {
						return err
					}
				}
				if d.Created || len(d.Changes) > 0 {
					found = append(found, d)
				}
			}
			err = o.print(cmd.OutOrStdout(), document{value: found, text: func(p *printer) { writeDifferences(p, found) }})
			if len(problems) > 0 {
				return codedError{errors.Join(append(problems, err)...), exitUsage}
			}
			if err == nil && len(found) > 0 {
				err = fmt.Errorf("%s of %d would change", counted(len(found), "object"), len(objects))
			}
			return err
		},
	}
	t.addServerFlags(cmd)
	cmd.Flags().StringVarP(&path, "filename", "f", "", "the directory or file with manifests")
	_ = cmd.MarkFlagRequired("filename")
	o.addFlag(cmd)
	return cmd
}

// difference is what would become of an object.
type difference struct {
	Object  string      `json:"object"`
	Created bool        `json:"created,omitempty"`
	Changes []v1.Change `json:"changes,omitempty"`
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

// changed compares two states of an object, without what each write changes.
func changed(now, then *unstructured.Unstructured) ([]v1.Change, error) {
	var texts [2][]byte
	for i, o := range []*unstructured.Unstructured{now, then} {
		for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
			unstructured.RemoveNestedField(o.Object, "metadata", field)
		}
		var err error
		if texts[i], err = o.MarshalJSON(); err != nil {
			return nil, err
		}
	}
	return v1.Changes(texts[0], texts[1])
}

func writeDifferences(p *printer, found []difference) {
	for _, d := range found {
		if d.Created {
			p.line("%s would be created", d.Object)
		}
		for _, c := range d.Changes {
			p.line("%s: %s: %s → %s", d.Object, c.Field, unset(c.Was), unset(c.Is))
		}
	}
	if len(found) == 0 {
		p.line("nothing would change")
	}
}

func unset(value string) string {
	if value == "" {
		return "(not set)"
	}
	return value
}
