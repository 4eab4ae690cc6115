package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/rest"

	v1 "github.com/exeunt/exeunt/deletion/v1"
)

func newArchive() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "List, show and purge removed objects that can still be restored",
	}
	cmd.AddCommand(newArchiveList(), newArchiveShow(), newArchivePurge())
	return cmd
}

// archiveFilter has the flags that list and purge share.
type archiveFilter struct {
	target
	kind, name, actor, requestedBy, cascade string
	since, olderThan                        time.Duration
	everywhere                              bool // --all-namespaces, which is the default
}

func (f *archiveFilter) addFlags(cmd *cobra.Command) {
	f.target.addFlags(cmd)
	flags := cmd.Flags()
	flags.Lookup("namespace").Usage = "namespace to look in (default: all)"
	flags.BoolVarP(&f.everywhere, "all-namespaces", "A", false, "look in all namespaces (the default)")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	flags.StringVar(&f.kind, "kind", "", "only objects of this kind: kind, plural or short name")
	flags.StringVar(&f.name, "name", "", "only objects of this name")
	flags.StringVar(&f.actor, "actor", "", "only objects that this client, or this part of the server, removed itself")
	flags.StringVar(&f.requestedBy, "requested-by", "", "only objects that this client's deletes removed, cascades included")
	flags.StringVar(&f.cascade, "cascade", "", "only objects that this cascade removed")
	complete(cmd, "kind", f.completeKinds)
	complete(cmd, "cascade", f.completeCascades)
	flags.DurationVar(&f.since, "since", 0, "only objects that were removed within this time: 2h")
	flags.DurationVar(&f.olderThan, "older-than", 0, "only objects that were removed longer ago than this")
}

// narrow reads KIND, KIND/NAME or KIND NAME: the same filter as --kind and --name.
func (f *archiveFilter) narrow(args []string) error {
	if len(args) == 0 {
		return nil
	}
	if f.kind != "" || f.name != "" {
		return fmt.Errorf("%q beside --kind or --name: one of them is enough", args[0])
	}
	if len(args) == 1 && !strings.Contains(args[0], "/") {
		f.kind = args[0]
		return nil
	}
	s, err := oneSubject(args)
	f.kind, f.name = s.kind, s.name
	return err
}

// empty reports whether every archived object passes the filter.
func (f *archiveFilter) empty() bool {
	return f.namespace == "" && f.selector() == "" && f.since == 0 && f.olderThan == 0
}

// selector returns the part of the filter that the server applies.
func (f *archiveFilter) selector() string {
	var terms []string
	for _, t := range [][2]string{{"spec.kind", f.kind}, {"spec.name", f.name}, {"spec.requestedBy", f.requestedBy}, {"spec.actor", f.actor}, {"spec.cascade", f.cascade}} {
		if t[1] != "" {
			terms = append(terms, t[0]+"="+fields.EscapeValue(t[1]))
		}
	}
	return strings.Join(terms, ",")
}

const archivePath = "/apis/lifecycle.exeunt.dev/v1"

func archivedPath(namespace string) string {
	if namespace == "" {
		return archivePath + "/archivedobjects"
	}
	return archivePath + "/namespaces/" + namespace + "/archivedobjects"
}

// archivePage reads a page of the archive, the newest removal first.
func archivePage(ctx context.Context, client rest.Interface, namespace, selector string, limit int, token string) (page v1.ArchivedObjectList, err error) {
	err = send(ctx, client, request{method: http.MethodGet, path: archivedPath(namespace), parameters: map[string]string{
		"limit": strconv.Itoa(limit), "fieldSelector": selector, "continue": token,
	}}, &page)
	return page, err
}

// read returns the objects that pass the filter, the newest removal first.
func (f *archiveFilter) read(ctx context.Context, client rest.Interface) (found []*v1.ArchivedObject, err error) {
	now := time.Now()
	for token := ""; ; {
		page, err := archivePage(ctx, client, f.namespace, f.selector(), 500, token)
		if err != nil {
			return nil, fmt.Errorf("list archive: %w", err)
		}
		for i := range page.Items {
			age := now.Sub(page.Items[i].Spec.RemovedAt.Time)
			if f.since > 0 && age > f.since {
				return found, nil // the following ones are older
			}
			if f.olderThan == 0 || age >= f.olderThan {
				found = append(found, &page.Items[i])
			}
		}
		if token = page.Continue; token == "" {
			return found, nil
		}
	}
}

func newArchiveList() *cobra.Command {
	var f archiveFilter
	var o output
	cmd := &cobra.Command{
		Use:   "list [KIND | KIND/NAME]",
		Short: "List removed objects, the newest removal first, and how long each has left",
		Example: `  exeunt archive list --since 1h
  exeunt archive list deployment/web -n shop -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.narrow(args); err != nil {
				return err
			}
			client, err := f.connect()
			if err != nil {
				return err
			}
			found, err := f.read(cmd.Context(), client)
			if err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), listedArchive(found))
		},
	}
	f.addFlags(cmd)
	cmd.ValidArgsFunction = f.completeArchived
	o.addFlag(cmd, "name")
	return cmd
}

func listedArchive(found []*v1.ArchivedObject) document {
	const header = "NAMESPACE\tKIND\tNAME\tREMOVED\tEXPIRES\tREQUESTED BY\tACTOR\tCASCADE\tUID"
	return listed(v1.GroupVersion.String(), "ArchivedObjectList", found, "nothing in the archive matches", header, func(a *v1.ArchivedObject) (string, []any) {
		s := a.Spec
		return objectName(s.APIVersion, s.Kind, s.Name), []any{
			s.Namespace, s.Kind, s.Name, duration.HumanDuration(time.Since(s.RemovedAt.Time)), v1.Left(s.ExpiresAt), s.RequestedBy, s.Actor, s.Cascade, s.UID,
		}
	})
}

func newArchivePurge() *cobra.Command {
	var f archiveFilter
	var o output
	var all, dryRun bool
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Remove objects from the archive now: they cannot be restored any more",
		Example: `  exeunt archive purge --kind secret --name token -n shop
  exeunt archive purge --older-than 12h
  exeunt archive purge --all`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.empty() != all {
				return errors.New("say what to purge, or --all for everything")
			}
			client, err := f.connect()
			if err != nil {
				return err
			}
			gone, err := purge(cmd.Context(), client, &f, dryRun)
			return errors.Join(err, o.print(cmd.OutOrStdout(), purged(gone, dryRun)))
		},
	}
	f.addFlags(cmd)
	o.addFlag(cmd, "name")
	cmd.Flags().BoolVar(&all, "all", false, "purge everything")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show which objects would be purged, and purge none")
	return cmd
}

// purged is the result: for people the number of objects, in the other forms the list, as "archive list"
// prints it.
func purged(gone []*v1.ArchivedObject, dryRun bool) document {
	d, verb := listedArchive(gone), "purged"
	if dryRun {
		verb = "would be purged"
	}
	d.text = func(p *printer) { p.line("%s %s", counted(len(gone), "object"), verb) }
	return d
}

// purge deletes the archived objects that pass the filter, 16 at a time, and
// returns those that it deleted. A dry run returns what it would delete.
func purge(ctx context.Context, client rest.Interface, f *archiveFilter, dryRun bool) ([]*v1.ArchivedObject, error) {
	// Read all pages before the first delete: deletes would move their borders.
	found, err := f.read(ctx, client)
	if err != nil || dryRun {
		return found, err
	}
	gone := make([]*v1.ArchivedObject, len(found))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i, o := range found {
		group.Go(func() error {
			err := client.Delete().AbsPath(archivedPath(o.Namespace) + "/" + o.Name).Do(ctx).Error()
			switch {
			case err == nil:
				gone[i] = o
			case !apierrors.IsNotFound(err):
				return fmt.Errorf("purge: %w", err)
			}
			return nil
		})
	}
	err = group.Wait()
	return slices.DeleteFunc(gone, func(o *v1.ArchivedObject) bool { return o == nil }), err
}
