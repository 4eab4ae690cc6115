package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/history"
)

// A Restore with spec.to is a revert: of one object, or of a namespace with its content. It compares the state at a
// revision with the one of now. What is gone since then is created, as a restore creates it, with the body of then and,
// if the archive has the object, its row. What differs is updated, and what is new is deleted, each by a request to the
// API as the client, so that rights, webhooks, policies, quotas, conflicts and the audit log are those of any request. A
// dry run sends the same requests as dry runs.
//
// A repeated pass finds fewer differences, so a revert that is killed goes on where it was.

// revertManager is the manager of the fields that a revert changes, and its User-Agent.
const revertManager = "exeunt-revert"

// shownOfMany is how many changes a result names if there are more than groupSize results: they are stored.
const shownOfMany = 3

// reversal is what a revert updates and deletes.
type reversal struct {
	changes, deletes []*difference
	created          []*difference      // those that had owners, which may be created after them
	failed           []v1.RestoreResult // what it cannot do
	memory           memory
}

// difference is an object that exists, and not as it was.
type difference struct {
	version   *kind.Version
	now, then object.Object
}

func (d *difference) key() object.Key {
	if d.now.Body == nil {
		return d.then.Key
	}
	return d.now.Key
}

// targetRevert is target for a revert.
func (a *Archive) targetRevert(ctx context.Context, client kind.Client, n *names, spec v1.RestoreSpec) (t target, err error) {
	if spec.Object == nil || spec.UID != "" || spec.Cascade != "" || spec.WithCascade || spec.KeepTokens {
		return t, object.BadRequestf("spec: to needs object, and no uid, cascade, withCascade or keepTokens")
	}
	t.WithStatus = spec.WithStatus
	if t.Key, err = a.keyOf(ctx, client, n, *spec.Object); err == nil {
		t.To, err = a.store.RevisionOf(ctx, spec.To, a.opts.Now())
	}
	return t, err
}

// mayReadPast returns why the client may not read the past of an object, or of all of a kind in a namespace, or nil.
func (a *Archive) mayReadPast(ctx context.Context, client kind.Client, key object.Key, revision int64) error {
	verb, what := "get", schema.ParseGroupResource(key.Kind)
	if key.Name == "" {
		verb = "list"
	}
	if err := errors.Join(client.May(verb, key), client.May("history", key)); err != nil {
		return err
	}
	namespace := key.Namespace
	if key.Kind == object.Namespaces {
		namespace = key.Name
	}
	if namespace == "" || client.MayIn("", verb, what, key.Name) == nil && client.MayIn("", "history", what, key.Name) == nil {
		return nil
	}
	own, err := history.SameNamespace(ctx, a.store, namespace, revision)
	if err == nil && !own {
		return object.Errorf(object.Forbidden, "the namespace %q did not exist at version %d, or was another one of that name: its past needs the verb history in all namespaces", namespace, revision)
	}
	return err
}

// findRevert is find for a revert. A kind of a namespace whose past the client may not read is a failure.
func (a *Archive) findRevert(ctx context.Context, client kind.Client, t target) (f found, err error) {
	if err := a.mayReadPast(ctx, client, t.Key, t.To); err != nil {
		return f, err
	}
	n, err := a.names(ctx)
	if err != nil {
		return f, err
	}
	f.revert, f.live = &reversal{memory: memory{of: &a.memory}}, map[types.UID]bool{}
	defer func() {
		if err != nil {
			f.release()
		}
	}()
	if err := f.revert.memory.take(leastRevert); err != nil {
		return f, err
	}
	now, err := a.store.List(ctx, store.ListRequest{Kind: object.Namespaces, Name: "-", Limit: 1})
	if err != nil {
		return f, err
	}
	f.before = now.Revision()
	k, ok := n.served.Stored(t.Key.Kind)
	if !ok || !reverts(k) {
		return f, object.BadRequestf("%s have no past", t.Key.Kind)
	}
	whole := t.Key.Kind == object.Namespaces
	all, err := a.thenAndNow(ctx, k, t, t.Key, &f)
	if err == nil && len(all) == 0 {
		err = object.Errorf(object.NotFound, "%s does not exist, and did not at version %d", t.Key, t.To)
	}
	if err != nil {
		return f, err
	}
	seen := map[string]bool{}
	for _, k := range n.served.Kinds {
		if !whole || !k.Namespaced || !reverts(k) || seen[k.Storage] || k.Storage == object.Events || a.store.History().Excludes(k.Storage) {
			continue
		}
		seen[k.Storage] = true
		key := object.Key{Kind: k.Storage, Namespace: t.Key.Name}
		if err := a.mayReadPast(ctx, client, key, t.To); err != nil {
			f.revert.cannot(n, key, err)
			continue
		}
		found, err := a.thenAndNow(ctx, k, t, key, &f)
		if err != nil {
			return f, err
		}
		all = append(all, found...)
	}
	if whole {
		if err := a.namesUndefined(ctx, client, n, t, &f); err != nil {
			return f, err
		}
	}
	if err := followNames(all); err != nil {
		return f, err
	}
	for _, d := range all {
		if err := a.compareOne(ctx, t, d, &f, whole && d.key().Namespace != ""); err != nil {
			return f, err
		}
	}
	return f, nil
}

// namesUndefined adds the kinds of which the namespace had objects then, and whose definition is gone.
func (a *Archive) namesUndefined(ctx context.Context, client kind.Client, n *names, t target, f *found) error {
	then, err := a.store.List(ctx, store.ListRequest{Kind: object.Definitions, Revision: t.To, Past: true})
	if err != nil {
		return err
	}
	for then.Next() {
		key := object.Key{Kind: then.Object().Name, Namespace: t.Key.Name}
		if _, served := n.served.Stored(key.Kind); served {
			continue
		}
		err := a.mayReadPast(ctx, client, key, t.To)
		if err == nil {
			var some *store.Listing
			some, err = a.store.List(ctx, store.ListRequest{Kind: key.Kind, Namespace: key.Namespace, Revision: t.To, Past: true, Limit: 1})
			if err == nil && !some.Next() && some.Err() == nil {
				continue
			}
			err = cmp.Or(err, fmt.Errorf("its definition %s is gone: restore that, and revert again", key.Kind))
		}
		f.revert.cannot(n, key, err)
	}
	return then.Err()
}

// cannot adds a kind of a namespace that cannot be reverted.
func (r *reversal) cannot(n *names, key object.Key, why error) {
	gvk := n.gvk(key.Kind)
	r.failed = append(r.failed, v1.RestoreResult{
		APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: key.Namespace, Name: "*", Outcome: v1.Failed, Reason: why.Error(),
	})
}

// followNames makes references to an owner of then references to the object that has its name now: a revert gives that
// one the state of the owner.
func followNames(all []*difference) error {
	is := map[types.UID]types.UID{}
	for _, d := range all {
		if d.now.Body == nil || d.then.Body == nil || d.now.UID == d.then.UID {
			continue
		}
		if m, err := object.ParseMeta(d.now.Body); err != nil {
			return err
		} else if m.DeletionTimestamp == nil { // an owner that goes would take along what refers to it
			is[d.then.UID] = d.now.UID
		}
	}
	if len(is) == 0 {
		return nil
	}
	for _, d := range all {
		if d.then.Body == nil {
			continue
		}
		m, err := object.ParseMeta(d.then.Body)
		if err != nil {
			return err
		}
		followed := false
		for i, o := range m.OwnerReferences {
			if uid, ok := is[o.UID]; ok {
				m.OwnerReferences[i].UID, followed = uid, true
			}
		}
		if !followed {
			continue
		}
		if d.then.Body, err = object.WithMeta(d.then.Body, m); err != nil {
			return err
		}
	}
	return nil
}

// reverts reports whether objects of a kind are stored and written by clients.
func reverts(k *kind.Kind) bool {
	return k.Source == nil && !k.Ephemeral && !k.ReadOnly && len(k.Versions) > 0
}

// compareOne adds what a revert must do about one object. In a namespace it leaves what has a controller to that: the
// controller makes it again, from its own object, and would remove it otherwise.
func (a *Archive) compareOne(ctx context.Context, t target, d *difference, f *found, whole bool) error {
	if d.now.Revision == d.then.Revision {
		return nil
	}
	var going [2]bool // now, and then
	for i, o := range []object.Object{d.now, d.then} {
		if whole && gjson.GetBytes(o.Body, "metadata.ownerReferences.#(controller==true)").Exists() {
			return nil
		}
		going[i] = gjson.GetBytes(o.Body, "metadata.deletionTimestamp").Type == gjson.String
	}
	switch {
	case going[1] || d.then.Body == nil && going[0]:
		return nil
	case going[0]:
		f.revert.failed = append(f.revert.failed, resultFor(d, v1.Failed, "it is being deleted: revert again when it is gone"))
	case d.then.Body == nil:
		f.revert.deletes = append(f.revert.deletes, d)
	case d.now.Body == nil:
		return a.recreate(ctx, d, f)
	default:
		same, err := sameState(*d, d.version.Status == nil || t.WithStatus, true)
		if err == nil && !same {
			f.revert.changes = append(f.revert.changes, d)
		}
		return err
	}
	return nil
}

// recreate adds an object that is gone. Its row in the archive, if there is one, says that it was restored.
func (a *Archive) recreate(ctx context.Context, d *difference, f *found) error {
	r, err := a.byUID(ctx, d.then.UID)
	if err != nil {
		return err
	}
	if r == nil {
		r = &row{UID: d.then.UID, Kind: d.then.Kind, Namespace: d.then.Namespace, Name: d.then.Name}
		if r.Kind == object.Namespaces {
			r.Namespace = r.Name
		}
	}
	r.Body, r.Restored = d.then.Body, false
	c := newCandidate(r)
	c.then, c.demand = r, ""
	f.removed = append(f.removed, c)
	if m, err := object.ParseMeta(d.then.Body); err != nil || len(m.OwnerReferences) == 0 {
		return err
	}
	f.revert.created = append(f.revert.created, d)
	return nil
}

// sameState reports whether an object is as it was, in what a revert changes.
func sameState(d difference, withStatus, withOwners bool) (bool, error) {
	return v1.Same(d.now.Body, d.then.Body, func(in, field string) bool {
		switch {
		case in == "":
			return field == "status" && !withStatus
		case in == "metadata":
			return field != "labels" && field != "annotations" && (field != "ownerReferences" || !withOwners)
		}
		return false
	})
}

func resultFor(d *difference, outcome v1.Outcome, reason string) v1.RestoreResult {
	gvk := d.version.GVK
	return v1.RestoreResult{
		APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: d.now.Namespace, Name: d.now.Name,
		UID: d.now.UID, NewUID: d.now.UID, Outcome: outcome, Reason: reason,
	}
}
