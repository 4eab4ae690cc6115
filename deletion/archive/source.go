package archive

import (
	"context"
	"errors"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// pageLimit bounds the rows of a page, which include the bodies. A client that
// sends no limit gets a continue token too.
const pageLimit = 500

// source implements kind.Source for ArchivedObjects.
type source struct{ *Archive }

func notFound(name string) error {
	return object.Errorf(object.NotFound, "archivedobjects %q not found", name)
}

// mostCounted bounds what countAfter counts.
const mostCounted = 100_000

// scanLimit bounds the rows that a list reads to fill a page with what the client may get.
const scanLimit = 10 * pageLimit

// get reads the row of an ArchivedObject, if the client has the verb on the object that it
// was. For a client that may not get that object there is none.
func (s source) get(ctx context.Context, client kind.Client, verb, namespace, name string) (*row, error) {
	r, err := s.byUID(ctx, types.UID(name))
	if err != nil {
		return nil, err
	}
	if r == nil || r.Namespace != namespace || client.May("get", r.Key()) != nil {
		return nil, notFound(name)
	}
	if err := client.May(verb, r.Key()); err != nil {
		return nil, err
	}
	return r, nil
}

// Get reads one archived object. Error: NotFound.
func (s source) Get(ctx context.Context, client kind.Client, namespace, name string) (runtime.Object, error) {
	r, err := s.get(ctx, client, "get", namespace, name)
	if err != nil {
		return nil, err
	}
	n, err := s.names(ctx)
	if err != nil {
		return nil, err
	}
	o, err := n.archived(r)
	if err != nil {
		return nil, err
	}
	all := []v1.ArchivedObject{*o}
	return &all[0], s.setExpiries(ctx, all)
}

// List reads a page, the newest removal first. New removals come before the first
// page, so they do not shift the later ones. Rows that the client may not get do not show
// in the continue token either, up to scanLimit of them.
func (s source) List(ctx context.Context, client kind.Client, q kind.SourceQuery) (runtime.Object, error) {
	list := &v1.ArchivedObjectList{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "ArchivedObjectList"},
		ListMeta: metav1.ListMeta{ResourceVersion: object.Object{Revision: s.store.Revision()}.ResourceVersion()},
		Items:    []v1.ArchivedObject{},
	}
	if q.Labels != nil && !q.Labels.Empty() && !q.Labels.Matches(labels.Set(nil)) {
		return list, nil // archived objects have no labels of their own
	}
	n, err := s.names(ctx)
	if err != nil {
		return nil, err
	}
	f, err := s.filterOf(ctx, client, n, q)
	if err != nil {
		return nil, err
	}
	if f.uid != "" {
		err := s.addOne(ctx, client, n, f, list)
		return list, errors.Join(err, s.setExpiries(ctx, list.Items))
	}
	before := int64(0)
	if q.Continue != "" {
		if before, err = strconv.ParseInt(q.Continue, 10, 64); err != nil || before == 0 {
			return nil, object.BadRequestf("continue token %q is invalid: list again without it", q.Continue)
		}
	}
	limit := pageLimit
	if q.Limit > 0 && q.Limit < pageLimit {
		limit = int(q.Limit)
	}
	last := int64(0)
	for read, page := 0, limit+1; list.Continue == ""; page = pageLimit {
		found := 0
		err := s.each(ctx, f, before, page, func(r *row) error {
			switch found++; {
			case client.May("get", r.Key()) != nil:
			case len(list.Items) == limit:
				list.Continue = strconv.FormatInt(last, 10)
			default:
				o, err := n.archived(r)
				if err != nil {
					return err
				}
				list.Items, last = append(list.Items, *o), r.ID
			}
			before = r.ID
			return nil
		})
		if err != nil {
			return nil, err
		}
		if found < page {
			break
		}
		if read += found; read >= scanLimit && list.Continue == "" {
			list.Continue = strconv.FormatInt(before, 10)
		}
	}
	return list, errors.Join(s.countAfter(ctx, client, q, last, list), s.setExpiries(ctx, list.Items))
}

// countAfter adds to the first of several pages how many objects are after it, for a client that may get everything.
func (s source) countAfter(ctx context.Context, client kind.Client, q kind.SourceQuery, last int64, list *v1.ArchivedObjectList) error {
	some := q.Fields != nil && !q.Fields.Empty() || client.MayResource("get", schema.GroupResource{Group: "*", Resource: "*"}, q.Namespace, "") != nil
	if some || list.Continue == "" || q.Continue != "" || q.Limit == 0 {
		return nil
	}
	n, err := s.store.Reader().CountArchived(ctx, q.Namespace, last, mostCounted+1)
	if n <= mostCounted {
		list.RemainingItemCount = &n
	}
	return err
}

// addOne adds the object of a selector on metadata.name, if it matches the other
// conditions.
func (s source) addOne(ctx context.Context, client kind.Client, n *names, f filter, list *v1.ArchivedObjectList) error {
	r, err := s.byUID(ctx, types.UID(f.uid))
	if err != nil || r == nil || !f.matches(r) || client.May("get", r.Key()) != nil {
		return err
	}
	o, err := n.archived(r)
	if err == nil {
		list.Items = append(list.Items, *o)
	}
	return err
}

// selectable is the fields that a fieldSelector may name.
var selectable = []string{"spec.kind", "spec.name", "spec.requestedBy", "spec.actor", "spec.cascade"}

// filterOf converts the selectors. It supports equality only.
func (s source) filterOf(ctx context.Context, client kind.Client, n *names, q kind.SourceQuery) (filter, error) {
	f := filter{ArchiveFilter: store.ArchiveFilter{Namespace: q.Namespace}}
	if q.Fields == nil {
		return f, nil
	}
	for _, r := range q.Fields.Requirements() {
		if r.Operator != selection.Equals && r.Operator != selection.DoubleEquals {
			return f, object.BadRequestf("field %s: the archive supports the operator = only", r.Field)
		}
		if err := s.restrict(ctx, client, n, &f, r); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (s source) restrict(ctx context.Context, client kind.Client, n *names, f *filter, r fields.Requirement) error {
	var err error
	switch r.Field {
	case "spec.kind":
		f.Kind, err = s.storageOf(ctx, client, n, v1.ObjectName{Kind: r.Value, Namespace: f.Namespace})
	case "spec.name":
		f.Name = r.Value
	case "spec.requestedBy":
		f.Requester = r.Value
	case "spec.actor":
		f.Actor = r.Value
	case "spec.cascade":
		f.Cascade = r.Value
	case "metadata.name":
		f.uid = r.Value
	case "metadata.namespace":
		if f.Namespace != "" && f.Namespace != r.Value {
			return object.BadRequestf("metadata.namespace=%s in a list of namespace %s", r.Value, f.Namespace)
		}
		f.Namespace = r.Value
	default:
		return object.BadRequestf("field %s cannot be selected", r.Field)
	}
	return err
}

// Delete purges an object from the archive.
func (s source) Delete(ctx context.Context, client kind.Client, namespace, name string, dryRun bool) (runtime.Object, error) {
	r, err := s.get(ctx, client, "delete", namespace, name)
	if err != nil {
		return nil, err
	}
	n, err := s.names(ctx)
	if err != nil {
		return nil, err
	}
	o, err := n.archived(r)
	if err != nil || dryRun {
		return o, err
	}
	purged, err := s.store.ForgetArchived(ctx, []int64{r.ID})
	if err != nil {
		return nil, err
	}
	if purged == 0 {
		return nil, notFound(name)
	}
	return o, nil
}

// requests implements kind.Source for Restores.
type requests struct{ *Archive }

// owns reports whether the client created the Restore.
func (r *request) owns(client kind.Client) bool {
	return client.User != nil && client.Name == r.User.Username
}

// visible returns the Restore as a client may see it: its own in full; another's if it may
// get what is restored, with the results of objects that it may get and without the
// message, which may name others. Nil if the client may not see it.
func (s requests) visible(client kind.Client, n *names, r *request) *v1.Restore {
	shown := r.shown()
	if r.owns(client) {
		return shown
	}
	if client.May("get", r.Target.Key) != nil {
		return nil
	}
	shown.Status.Message = ""
	shown.Status.Results = slices.DeleteFunc(shown.Status.Results, func(r v1.RestoreResult) bool {
		return client.MayResource("get", n.served.ResourceOf(r.APIVersion, r.Kind), r.Namespace, r.Name) != nil
	})
	return shown
}

// Get reads one Restore. Error: NotFound.
func (s requests) Get(ctx context.Context, client kind.Client, _, name string) (runtime.Object, error) {
	n, err := s.names(ctx)
	if err != nil {
		return nil, err
	}
	r, err := s.load(ctx, name)
	if err != nil {
		return nil, err
	}
	if r != nil {
		if shown := s.visible(client, n, r); shown != nil {
			return shown, nil
		}
	}
	return nil, noRestore(name)
}

// List reads the client's own Restores, then the newest of others that it may see, without their results.
func (s requests) List(ctx context.Context, client kind.Client, q kind.SourceQuery) (runtime.Object, error) {
	list := &v1.RestoreList{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "RestoreList"},
		ListMeta: metav1.ListMeta{ResourceVersion: object.Object{Revision: s.store.Revision()}.ResourceVersion()},
		Items:    []v1.Restore{},
	}
	n, err := s.names(ctx)
	if err != nil {
		return nil, err
	}
	return list, s.restores(ctx, func(r *request) {
		if q.Fields != nil && !q.Fields.Matches(fields.Set{"metadata.name": r.name}) {
			return
		}
		if shown := s.visible(client, n, r); shown != nil {
			shown.Status.Results = nil
			list.Items = append(list.Items, *shown)
		}
	}, listRestores, client.Name)
}

// Delete stops a Restore and forgets it. What it has restored stays. A pass that is under way ends
// first. Another's Restore can be deleted by a client that could have created it.
func (s requests) Delete(ctx context.Context, client kind.Client, _, name string, dryRun bool) (runtime.Object, error) {
	shown, err := s.Get(ctx, client, "", name)
	if err != nil {
		return nil, err
	}
	r, err := s.load(ctx, name)
	if err == nil && r != nil && !r.owns(client) {
		err = client.May("create", r.Target.Key)
	}
	if err != nil || dryRun {
		return shown, err
	}
	return shown, s.exec(ctx, "delete a restore", func(b *sqldb.Batch) { b.Exec(deleteRestore, name) }) // its task finds none
}
