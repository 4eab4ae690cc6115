package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	about "github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

func newArchiveShow() *cobra.Command {
	var t target
	var o output
	var request bool
	var log string
	cmd := &cobra.Command{
		Use:   "show UID | KIND/NAME",
		Short: "Show a removed object: who deleted it, with what, and its last state",
		Long: `Show a removed object: the one that had a uid, or the newest removed one of a
name. The kind may be one whose definition was deleted.

With --request, show the request that removed it instead: its Audit-Id, its user and,
with the server's audit log at hand, the event.`,
		Example: `  exeunt archive show configmap/settings -n shop
  exeunt archive show 5f1f4c1e-… -o yaml
  exeunt archive show configmap/settings -n shop --request --audit-log /var/log/exeunt/audit.log`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := t.connect()
			if err != nil {
				return err
			}
			a, err := findArchived(cmd.Context(), client, &t, args[0])
			if err != nil {
				return err
			}
			if request || log != "" {
				r, err := findRequest(a, log)
				if err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), document{value: r, names: []string{r.RequestID}, text: r.write})
			}
			return o.print(cmd.OutOrStdout(), document{
				value: a, names: []string{objectName(a.Spec.APIVersion, a.Spec.Kind, a.Spec.Name)},
				text: func(p *printer) { writeArchived(p, a) },
			})
		},
	}
	t.addFlags(cmd)
	cmd.ValidArgsFunction = t.completeArchived
	cmd.Flags().BoolVar(&request, "request", false, "show the request that removed the object")
	cmd.Flags().StringVar(&log, "audit-log", "", "audit log `FILE` in which to find the request, with the files rotated from it")
	o.addFlag(cmd, "name")
	return cmd
}

// findArchived asks the server for the object that an argument names. It finds a
// cluster-scoped object in every namespace.
func findArchived(ctx context.Context, client rest.Interface, t *target, argument string) (*v1.ArchivedObject, error) {
	kind, name, isName := strings.Cut(argument, "/")
	if !isName {
		return firstArchived(ctx, client, "", "metadata.name="+fields.EscapeValue(argument), argument)
	}
	if kind == "" || name == "" {
		return nil, fmt.Errorf("%q is neither a UID nor KIND/NAME", argument)
	}
	f := archiveFilter{kind: kind, name: name}
	namespace, err := t.currentNamespace()
	if err != nil {
		return nil, err
	}
	a, err := firstArchived(ctx, client, namespace, f.selector(), argument)
	if err == nil || t.namespace != "" {
		return a, err
	}
	if other, elsewhere := firstArchived(ctx, client, "", f.selector(), argument); elsewhere == nil {
		if other.Spec.Namespace == "" {
			return other, nil
		}
		return nil, fmt.Errorf("%w; one was in namespace %s: -n %[2]s", err, about.Quote(other.Spec.Namespace))
	}
	return nil, err
}

func firstArchived(ctx context.Context, client rest.Interface, namespace, selector, argument string) (*v1.ArchivedObject, error) {
	page, err := archivePage(ctx, client, namespace, selector, 1, "")
	switch {
	case err != nil:
		return nil, fmt.Errorf("show archived object: %w", err)
	case len(page.Items) > 0:
		return &page.Items[0], nil
	case namespace != "":
		return nil, fmt.Errorf("the archive has no %s in namespace %s", about.Printable(argument), namespace)
	}
	return nil, fmt.Errorf("the archive has no %s", about.Printable(argument))
}

// writeFields prints a line for each field that is not empty.
func writeFields(p *printer, fields [][2]string) {
	var rows [][]any
	for _, f := range fields {
		if f[1] != "" {
			rows = append(rows, []any{f[0] + ":", f[1]})
		}
	}
	p.table(2, rows)
}

// writeArchived prints the archive row and, below it, the object.
func writeArchived(p *printer, a *v1.ArchivedObject) {
	s := a.Spec
	writeFields(p, [][2]string{
		{"Kind", s.Kind + " (" + s.APIVersion + ")"}, {"Namespace", s.Namespace}, {"Name", s.Name}, {"UID", string(s.UID)},
		{"Removed", s.RemovedAt.UTC().Format(time.RFC3339) + ", " + duration.HumanDuration(time.Since(s.RemovedAt.Time)) + " ago"},
		{"Expires", v1.Left(s.ExpiresAt)}, {"Requested by", s.RequestedBy}, {"Request", s.RequestID}, {"Actor", s.Actor}, {"Cascade", s.Cascade}, {"Size", counted(s.Size, "byte")},
	})
	if a.Object == nil {
		p.line("Object:  not kept; it cannot be restored")
		return
	}
	text, err := yaml.JSONToYAML(a.Object.Raw)
	if err != nil {
		p.err = err
		return
	}
	fmt.Fprintf(p, "Object:\n  %s\n", strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n  "))
}
