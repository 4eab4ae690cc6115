package archive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/event"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	cascade "github.com/exeunt/exeunt/store/cascades"
)

// mostCascades bounds the cascades that a page of a list reads.
const mostCascades = 500

// cascades implements kind.Source for Cascades.
type cascades struct{ *Archive }

// look reads cascades in one snapshot, so that what is removed and what remains add up.
type look struct {
	cascades
	*store.Snapshot
	client kind.Client
	names  *names
	queued map[string]bool // those that the collector has work of
}

func (s cascades) look(ctx context.Context, client kind.Client) (*look, error) {
	n, err := s.names(ctx)
	if err != nil {
		return nil, err
	}
	snapshot, err := s.store.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	queued, err := cascade.Queued(ctx, snapshot)
	if err != nil {
		snapshot.Close()
		return nil, err
	}
	return &look{s, snapshot, client, n, queued}, nil
}

// Get reads one cascade. Error: NotFound.
func (s cascades) Get(ctx context.Context, client kind.Client, namespace, name string) (runtime.Object, error) {
	l, err := s.look(ctx, client)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	c, err := l.read(ctx, name)
	if err != nil {
		return nil, err
	}
	// A client that may not read the root is not told that there was one.
	if c == nil || c.Namespace != namespace {
		return nil, object.Errorf(object.NotFound, "cascades %q not found", name)
	}
	l.Close() // before another connection is needed
	all := []v1.Cascade{*c}
	return &all[0], s.setExpiries(ctx, all)
}

// List reads a page: the cascades that are under way, then the newest ones. A cascade that begins or ends between two pages
// may be on both.
func (s cascades) List(ctx context.Context, client kind.Client, q kind.SourceQuery) (runtime.Object, error) {
	list := &v1.CascadeList{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "CascadeList"},
		ListMeta: metav1.ListMeta{ResourceVersion: object.Object{Revision: s.store.Revision()}.ResourceVersion()},
		Items:    []v1.Cascade{},
	}
	l, err := s.look(ctx, client)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	limit := mostCascades
	if q.Limit > 0 && q.Limit < mostCascades {
		limit = int(q.Limit)
	}
	ids, err := l.ids(ctx, q)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		c, err := l.read(ctx, id)
		if err != nil {
			return nil, err
		}
		fits := c != nil && (q.Namespace == "" || c.Namespace == q.Namespace)
		if i > 0 && (i == mostCascades || fits && len(list.Items) == limit) {
			list.Continue = ids[i-1]
			break
		}
		if fits {
			list.Items = append(list.Items, *c)
		}
	}
	l.Close()
	return list, s.setExpiries(ctx, list.Items)
}

// ids returns the ids of cascades, from the page on. The continue token is the last id that was read for the page before.
func (l *look) ids(ctx context.Context, q kind.SourceQuery) ([]string, error) {
	if q.Fields != nil {
		if name, ok := q.Fields.RequiresExactMatch("metadata.name"); ok {
			return []string{name}, nil
		}
	}
	for most := 2 * mostCascades; ; most *= 2 {
		newest, err := cascade.List(ctx, l, q.Namespace, most)
		ids := append(slices.Sorted(maps.Keys(l.queued)), slices.DeleteFunc(newest, func(id string) bool { return l.queued[id] })...)
		if err != nil || q.Continue == "" {
			return ids, err
		}
		at := slices.Index(ids, q.Continue) + 1
		switch {
		case at > 0 && (at+mostCascades < len(ids) || len(newest) < most):
			return ids[at:], nil
		case len(newest) < most:
			return nil, object.Errorf(object.Expired, "cascade %s of the continue token has left the archive: list again without it", q.Continue)
		}
	}
}

// read reads one cascade; nil if there is none, or if the client may not read its
// root.
func (l *look) read(ctx context.Context, id string) (*v1.Cascade, error) {
	found, err := cascade.Read(ctx, l, id)
	if err != nil || found == nil || l.client.May("get", found.Root.Key) != nil {
		return nil, err
	}
	remaining := int64(0)
	if found.Deleting || l.queued[id] {
		if remaining, err = gc.Remaining(ctx, &l.Reader, l.kinds.Snapshot(), id); err != nil {
			return nil, err
		}
	}
	gvk := l.names.gvk(found.Root.Kind)
	started := metav1.NewMicroTime(time.UnixMilli(found.StartedAt).UTC())
	c := &v1.Cascade{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "Cascade"},
		ObjectMeta: metav1.ObjectMeta{Name: id, Namespace: found.Root.Namespace, UID: types.UID(id), CreationTimestamp: metav1.NewTime(started.Truncate(time.Second))},
		Spec: v1.CascadeSpec{
			Root: v1.ObjectReference{
				APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: found.Root.Namespace, Name: found.Root.Name, UID: found.Root.UID,
			},
			RequestedBy: found.Requester, RequestID: found.RequestID, ConfirmedBy: found.Confirmer, StartedAt: started,
		},
		Status: v1.CascadeStatus{
			State: state(found, remaining > 0 || l.queued[id]), Removed: found.Removed, Remaining: remaining,
			Restored: found.Restored, Bytes: found.Bytes, Purged: found.Purged,
		},
	}
	if found.Root.Kind == object.Namespaces {
		c.Namespace = found.Root.Name // as in the archive: a Namespace is in itself
	}
	if found.LastRemovedAt > 0 {
		at := metav1.NewMicroTime(time.UnixMilli(found.LastRemovedAt).UTC())
		c.Spec.LastRemovedAt = &at
	}
	return c, nil
}

// state is the state of a cascade. open: objects have to follow.
func state(c *cascade.Cascade, open bool) v1.CascadeState {
	switch {
	case c.Held:
		return v1.CascadeHeld
	case open:
		return v1.CascadeRunning
	case c.Removed > 0 && c.Restored >= c.Removed && c.Purged == 0:
		return v1.CascadeRestored
	case c.Restored > 0:
		return v1.CascadePartlyRestored
	default:
		return v1.CascadeEnded
	}
}

// reportPurged adds a failure to the restore of a cascade of which clients purged a part: it cannot be
// whole.
func (a *Archive) reportPurged(ctx context.Context, id string, status *v1.RestoreStatus) error {
	n, err := cascade.Purged(ctx, a.store.Reader(), id)
	if err != nil || n == 0 {
		return err
	}
	status.Failed++
	status.Results = append(status.Results, v1.RestoreResult{
		APIVersion: v1.GroupVersion.String(), Kind: "Cascade", Name: id, Outcome: v1.Failed,
		Reason: fmt.Sprintf("%d of its objects were purged from the archive", n),
	})
	return nil
}

// setExpiries says when cascades that have ended leave the archive.
func (s cascades) setExpiries(ctx context.Context, all []v1.Cascade) error {
	ended := map[string]*row{}
	for _, c := range all {
		if c.Status.State != v1.CascadeHeld && c.Status.State != v1.CascadeRunning && c.Spec.LastRemovedAt != nil {
			ended[c.Name] = &row{Namespace: c.Namespace, RemovedAt: c.Spec.LastRemovedAt.UnixMilli()}
		}
	}
	until, err := s.store.Expiries(ctx, ended)
	for i := range all {
		if at, ok := until[all[i].Name]; ok {
			all[i].Status.ExpiresAt = expiresAt(at)
		}
	}
	return err
}

// setExpiries says when archived objects leave the archive.
func (s source) setExpiries(ctx context.Context, all []v1.ArchivedObject) error {
	of := map[string]*row{}
	for _, a := range all { // the newest first
		if of[a.Spec.Cascade] == nil {
			of[a.Spec.Cascade] = &row{Namespace: a.Namespace, RemovedAt: a.Spec.RemovedAt.UnixMilli()}
		}
	}
	until, err := s.store.Expiries(ctx, of)
	for i := range all {
		if at, ok := until[all[i].Spec.Cascade]; ok {
			all[i].Spec.ExpiresAt = expiresAt(at)
		}
	}
	return err
}

func expiresAt(millis int64) *metav1.Time {
	at := metav1.NewTime(time.UnixMilli(millis).UTC().Truncate(time.Second))
	return &at
}

// Delete refuses: a cascade is a view.
func (s cascades) Delete(_ context.Context, _ kind.Client, _, name string, _ bool) (runtime.Object, error) {
	return nil, object.BadRequestf("cascade %s cannot be deleted: to purge it from the archive, delete its ArchivedObjects (exeunt archive purge --cascade %s)", name, name)
}

// callBack decides about the objects of a target that are being deleted. The deletion of an
// object that the guard holds is called off: the object becomes ACTIVE again, with the same uid, and its
// cascade has not begun. Others cannot be stopped, by the rules of the API: they
// are awaited. While there are such, held ones are awaited too: a namespace that is being deleted, or an owner in
// foreground deletion, would have them deleted again.
func (r *restoration) callBack(ctx context.Context, deleting []store.Head) (results []v1.RestoreResult, err error) {
	for _, h := range deleting {
		gvk := r.names.gvk(h.Kind)
		result := v1.RestoreResult{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: h.Namespace, Name: h.Name, UID: h.UID, NewUID: h.UID,
		}
		result.Outcome, result.Reason = v1.Awaited, "it is being deleted: it is restored when it is gone"
		switch {
		case !h.Held():
		case slices.ContainsFunc(deleting, func(h store.Head) bool { return !h.Held() }):
			result.Reason = "its deletion waits to be confirmed, and other objects of the cascade may wait for it: it is called off when those are gone, or restored when it is gone"
		default:
			off, err := r.callOff(ctx, h)
			if err != nil {
				return nil, err
			}
			if off {
				result.Outcome, result.Reason = v1.CalledOff, ""
				err = r.relinkBack(ctx, h.UID)
			}
			if err != nil {
				return nil, err
			}
		}
		results = append(results, result)
	}
	return results, nil
}

// relinkBack gives an object the references back that it lost before its own deletion was asked for: restores
// of its owners did not touch it while it was being deleted.
func (r *restoration) relinkBack(ctx context.Context, uid types.UID) error {
	dropped, err := r.store.Reader().Dropped(ctx, uid)
	if r.spec.DryRun {
		return err
	}
	for _, d := range dropped[uid] {
		if err = errors.Join(err, r.relinkRest(ctx, d.Owner, &v1.RestoreResult{})); err != nil {
			return err
		}
	}
	return err
}

// callOff makes a held object ACTIVE again, or reports that it would. The transaction checks that the guard
// still holds the object: the collector may have let a confirmed deletion pass before.
func (r *restoration) callOff(ctx context.Context, h store.Head) (off bool, err error) {
	err = r.store.Transact(ctx, func(tx *store.Tx) error {
		o, err := tx.GetByUID(ctx, h.UID)
		if off = err == nil && o != nil && o.Held(); !off || r.spec.DryRun {
			return err
		}
		return r.activate(ctx, tx, o, r.client.Name)
	})
	return off && err == nil, err
}

// activate makes a held object ACTIVE again, and records an Event.
func (a *Archive) activate(ctx context.Context, tx *store.Tx, o *store.Stored, client string) error {
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		return err
	}
	var rules lifecycle.Rules
	if k, ok := a.kinds.Snapshot().Stored(o.Kind); ok {
		rules = k.Rules
	}
	var before []byte
	err = tx.AskedOf(ctx, []types.UID{o.UID}, func(o object.Object) { before = o.Body })
	if err != nil {
		return err
	}
	asked := m
	if before != nil { // nil if an earlier version did not keep it
		if asked, err = object.ParseMeta(before); err != nil {
			return err
		}
	} else {
		asked.Finalizers, asked.Annotations = nil, nil
	}
	m, body, err := lifecycle.CallOff(o.Body, m, asked, rules)
	if err != nil {
		return err
	}
	next, err := tx.Rewrite(o, &m, body)
	if err != nil {
		return err
	}
	if err := tx.Flush(); err != nil {
		return err
	}
	return event.Recorder{Kinds: a.kinds}.Record(ctx, tx, tx.Now, event.Event{
		About: next.Object, Type: corev1.EventTypeNormal, Reason: "DeletionCalledOff", Source: "exeunt", Topic: o.ResourceVersion(),
		Message: "the deletion, which waited to be confirmed, was called off by " + client, Elsewhere: true,
	})
}
