package archive

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// planPage is how many rows one statement of the planning reads.
const planPage = 1000

// Restore restores the objects that the spec names, for a client, and returns a result for each.
// Errors: BadRequest for an invalid spec, or one that names no archived object.
// An object that cannot be restored is a result and not an error.
func (a *Archive) Restore(ctx context.Context, client kind.Client, spec v1.RestoreSpec) (v1.RestoreStatus, error) {
	names, err := a.names(ctx)
	if err != nil {
		return v1.RestoreStatus{}, err
	}
	candidates, hidden, err := a.candidates(ctx, client, names, spec)
	if err != nil {
		return v1.RestoreStatus{}, err
	}
	candidates, denied, err := permitted(client, withoutDefaults(candidates))
	if err != nil {
		return v1.RestoreStatus{}, err
	}
	denied += hidden
	r := a.begin(client, spec, names)
	defer r.end()
	if err := r.checkContent(ctx, candidates); err != nil {
		return v1.RestoreStatus{}, err
	}
	stop, limited := ctx.Deadline()
	if limited {
		stop = stop.Add(-a.opts.Spare)
	}
	status := v1.RestoreStatus{Complete: true}
	for _, level := range plan(candidates) {
		results, err := r.level(ctx, level, func() bool { return limited && time.Now().After(stop) })
		if err != nil {
			return v1.RestoreStatus{}, fmt.Errorf("restore: %w", err)
		}
		status.Complete = len(results) == len(level)
		status.Results = append(status.Results, results...)
		if !status.Complete {
			break
		}
	}
	for _, result := range status.Results {
		switch result.Outcome {
		case v1.Created:
			status.Created++
		case v1.Skipped:
			status.Skipped++
		case v1.Failed:
			status.Failed++
		}
		if result.ConflictsWith != "" {
			status.Conflicts++
		}
	}
	if denied > 0 {
		status.Cascade, status.LeftBehind = candidates[0].cascade, denied
	}
	if spec.Cascade == "" && !spec.WithCascade {
		err = a.countLeft(ctx, candidates[0], &status)
	} else if status.Complete {
		err = a.reportPurged(ctx, candidates[0].cascade, &status)
	}
	return status, err
}

// permitted keeps the objects that the client may create again, and counts the others.
// The error is the first denial if the client may create none.
func permitted(client kind.Client, all []*candidate) (may []*candidate, denied int, err error) {
	var denial error
	for _, c := range all {
		if err := client.May("create", c.key); err == nil {
			may = append(may, c)
		} else if denial == nil {
			denial = err
		}
	}
	if len(may) == 0 {
		return nil, len(all), denial
	}
	return may, len(all) - len(may), nil
}

// countLeft counts the other objects of the cascade, for an object that is
// restored alone.
func (a *Archive) countLeft(ctx context.Context, c *candidate, status *v1.RestoreStatus) error {
	left, err := a.store.Reader().CountUnrestored(ctx, c.cascade, c.id)
	if err != nil {
		return fmt.Errorf("count what is left in the archive: %w", err)
	}
	if left > 0 {
		status.Cascade, status.LeftBehind = c.cascade, int(left)
	}
	return nil
}

func (a *Archive) begin(client kind.Client, spec v1.RestoreSpec, names *names) *restoration {
	r := &restoration{Archive: a, client: client, spec: spec, names: names, now: map[types.UID]object.Key{}, made: map[object.Key]bool{}}
	r.lasting, r.end = context.WithCancel(context.Background())
	return r
}

// candidates reads the objects that the spec names and the client may get. hidden counts
// the others of a cascade. If all are hidden, the error is as if the archive had none.
func (a *Archive) candidates(ctx context.Context, client kind.Client, n *names, spec v1.RestoreSpec) (found []*candidate, hidden int, err error) {
	named := 0
	for _, is := range []bool{spec.UID != "", spec.Cascade != "", spec.Object != nil} {
		if is {
			named++
		}
	}
	if named != 1 {
		return nil, 0, object.BadRequestf("spec: exactly one of uid, cascade and object must be set, not %d", named)
	}
	if spec.Cascade != "" && spec.WithCascade {
		return nil, 0, object.BadRequestf("spec: withCascade is for uid or object; cascade restores the whole cascade anyway")
	}
	var missing string
	switch {
	case spec.UID != "":
		missing = "no archived object had the uid " + string(spec.UID)
		var r *row
		if r, err = a.byUID(ctx, spec.UID); r != nil {
			found = []*candidate{newCandidate(r)}
		}
	case spec.Object != nil:
		missing = fmt.Sprintf("no archived %s is named %s in namespace %q", spec.Object.Kind, spec.Object.Name, spec.Object.Namespace)
		found, err = a.newest(ctx, client, n, *spec.Object)
	default:
		missing = "no archived object belongs to the cascade " + spec.Cascade
		found, err = a.cascade(ctx, spec.Cascade)
	}
	if err != nil {
		return nil, 0, err
	}
	all := len(found)
	invisible := func(c *candidate) bool { return client.May("get", c.key) != nil }
	if found = slices.DeleteFunc(found, invisible); len(found) == 0 {
		return nil, 0, object.BadRequestf("%s", missing)
	}
	if spec.WithCascade {
		if found, err = a.cascade(ctx, found[0].cascade); err != nil {
			return nil, 0, err
		}
		all = len(found)
		found = slices.DeleteFunc(found, invisible)
	}
	return found, all - len(found), nil
}

// cascade reads all objects of a cascade and keeps what planning needs.
func (a *Archive) cascade(ctx context.Context, id string) (all []*candidate, err error) {
	err = a.store.Reader().ArchivedCascade(ctx, id, func(r *row) error {
		all = append(all, newCandidate(r))
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b *candidate) int { return cmp.Compare(b.id, a.id) })
	for page := range slices.Chunk(all, planPage) {
		if err := a.addDropped(ctx, page); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// addDropped adds the owners to which the cascade dropped the references of objects, before it removed
// them.
func (a *Archive) addDropped(ctx context.Context, page []*candidate) error {
	uids := make([]types.UID, len(page))
	for i, c := range page {
		uids[i] = c.uid
	}
	dropped, err := a.store.Reader().DroppedOwners(ctx, uids)
	for _, c := range page {
		c.owners = append(c.owners, dropped[c.uid]...)
	}
	return err
}

// newest finds the last removal of an object by its name. If the same cascade
// removed another object of the name before, it returns that one, because the last
// one was recreated during the cascade: see markRecreated.
func (a *Archive) newest(ctx context.Context, client kind.Client, n *names, o v1.ObjectName) ([]*candidate, error) {
	if o.Kind == "" || o.Name == "" {
		return nil, object.BadRequestf("spec.object: kind and name must be set")
	}
	storage, err := a.storageOf(ctx, client, n, o)
	if err != nil {
		return nil, err
	}
	f := filter{ArchiveFilter: store.ArchiveFilter{Kind: storage, Namespace: o.Namespace, Name: o.Name}}
	if n.clusterScoped(storage) {
		f.Namespace = "" // clients often send a namespace for cluster-scoped kinds too
	}
	if err := client.May("get", object.Key{Kind: storage, Namespace: f.Namespace, Name: o.Name}); err != nil {
		return nil, err
	}
	var last *row
	err = a.find(ctx, f, 0, 1, func(r *row) error {
		last = r
		return nil
	})
	if err != nil || last == nil || client.May("get", last.Key()) != nil {
		return nil, err
	}
	if last.Key().Namespace != f.Namespace {
		return nil, object.BadRequestf("spec.object: %s %s was in namespace %s: set spec.object.namespace", o.Kind, o.Name, last.Key().Namespace)
	}
	f.Cascade = last.Cascade
	found, err := a.all(ctx, f)
	return found[max(0, len(found)-1):], err
}

// all reads all rows that match a filter, page by page, the newest removal first,
// and keeps what planning needs.
func (a *Archive) all(ctx context.Context, f filter) ([]*candidate, error) {
	var all []*candidate
	for before := int64(0); ; {
		n := 0
		err := a.find(ctx, f, before, planPage, func(r *row) error {
			n, before, all = n+1, r.ID, append(all, newCandidate(r))
			return nil
		})
		if err != nil || n < planPage {
			return all, err
		}
	}
}

// newCandidate reads the object's owners. For an unreadable body it has none: the
// restore of the object reports the error.
func newCandidate(r *row) *candidate {
	c := &candidate{id: r.ID, uid: r.UID, key: r.Key(), cascade: r.Cascade, isDefault: isDefault(r)}
	if m, err := object.ParseMeta(r.Body); err == nil {
		for _, o := range m.OwnerReferences {
			c.owners = append(c.owners, o.UID)
		}
		c.demanding = demands(c.key, &m)
	}
	return c
}
