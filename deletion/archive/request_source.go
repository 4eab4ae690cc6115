package archive

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// requests implements kind.Source for Restores.
type requests struct{ *Archive }

// owns reports whether the client created the Restore.
func (r *request) owns(client kind.Client) bool {
	return client.User != nil && client.Name == r.User.Username
}

// visible returns the Restore as a client may see it: its own in full; another's if it may
// get what is restored, with the results of objects that it may get and without the
// message, which may name others. Nil: the client may not see it.
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
