package archive

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	cascade "github.com/exeunt/exeunt/store/cascades"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// mostCascades bounds a list of cascades.
const mostCascades = 500

// cascades implements kind.Source for Cascades.
type cascades struct{ *Archive }

// Get reads one cascade. Error: NotFound.
func (s cascades) Get(ctx context.Context, client kind.Client, namespace, name string) (runtime.Object, error) {
	n, err := s.names(ctx)
	if err != nil {
		return nil, err
	}
	queued, err := cascade.Queued(ctx, s.store.Reader())
	if err != nil {
		return nil, err
	}
	c, err := s.cascade(ctx, client, n, name, queued)
	if err != nil {
		return nil, err
	}
	// A client that may not read the root is not told that there was one.
	if c == nil || c.Namespace != namespace {
		return nil, object.Errorf(object.NotFound, "cascades %q not found", name)
	}
	all := []v1.Cascade{*c}
	return &all[0], s.setExpiries(ctx, all)
}

// List reads the cascades that are under way, then the newest ones.
func (s cascades) List(ctx context.Context, client kind.Client, q kind.SourceQuery) (runtime.Object, error) {
	list := &v1.CascadeList{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "CascadeList"},
		ListMeta: metav1.ListMeta{ResourceVersion: object.Object{Revision: s.store.Revision()}.ResourceVersion()},
		Items:    []v1.Cascade{},
	}
	n, err := s.names(ctx)
	if err != nil {
		return nil, err
	}
	limit := mostCascades
	if q.Limit > 0 && q.Limit < mostCascades {
		limit = int(q.Limit)
	}
	ids, err := s.ids(ctx, q)
	if err != nil {
		return nil, err
	}
	queued, err := cascade.Queued(ctx, s.store.Reader())
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		c, err := s.cascade(ctx, client, n, id, queued)
		if err != nil {
			return nil, err
		}
		if c != nil && len(list.Items) < limit && (q.Namespace == "" || c.Namespace == q.Namespace) {
			list.Items = append(list.Items, *c)
		}
	}
	slices.SortStableFunc(list.Items, func(a, b v1.Cascade) int { return compareCascades(&a, &b) })
	return list, s.setExpiries(ctx, list.Items)
}

// compareCascades orders those under way first, then the newest.
func compareCascades(a, b *v1.Cascade) int {
	if under := (a.Status.Remaining > 0); under != (b.Status.Remaining > 0) {
		if under {
			return -1
		}
		return 1
	}
	last := func(c *v1.Cascade) time.Time {
		if c.Spec.LastRemovedAt != nil {
			return c.Spec.LastRemovedAt.Time
		}
		return c.Spec.StartedAt.Time
	}
	return last(b).Compare(last(a))
}

// ids returns the ids of the cascades to list, at most mostCascades.
func (s cascades) ids(ctx context.Context, q kind.SourceQuery) ([]string, error) {
	if q.Fields != nil {
		if name, ok := q.Fields.RequiresExactMatch("metadata.name"); ok {
			return []string{name}, nil
		}
	}
	return cascade.List(ctx, s.store.Reader(), q.Namespace, mostCascades)
}

// cascade reads one cascade; nil if there is none, or if the client may not read its
// root. queued are those that the collector has work of.
func (s cascades) cascade(ctx context.Context, client kind.Client, n *names, id string, queued map[string]bool) (*v1.Cascade, error) {
	found, err := cascade.Read(ctx, s.store.Reader(), id)
	if err != nil || found == nil || client.May("get", found.Root.Key) != nil {
		return nil, err
	}
	gvk := n.gvk(found.Root.Kind)
	started := metav1.NewTime(time.UnixMilli(found.StartedAt).UTC())
	c := &v1.Cascade{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "Cascade"},
		ObjectMeta: metav1.ObjectMeta{Name: id, Namespace: found.Root.Namespace, UID: types.UID(id), CreationTimestamp: metav1.NewTime(started.Truncate(time.Second))},
		Spec: v1.CascadeSpec{
			Root: v1.ObjectReference{
				APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: found.Root.Namespace, Name: found.Root.Name, UID: found.Root.UID,
			},
			RequestedBy: found.Requester, RequestID: found.RequestID, StartedAt: started,
		},
		Status: v1.CascadeStatus{
			State: state(found, queued[id]), Removed: found.Removed, Remaining: found.Remaining,
			Restored: found.Restored, Bytes: found.Bytes, Purged: found.Purged,
		},
	}
	if found.Root.Kind == object.Namespaces {
		c.Namespace = found.Root.Name // as in the archive: a Namespace is in itself
	}
	if found.LastRemovedAt > 0 {
		at := metav1.NewTime(time.UnixMilli(found.LastRemovedAt).UTC())
		c.Spec.LastRemovedAt = &at
	}
	return c, nil
}

// state is the state of a cascade.
func state(c *cascade.Cascade, queued bool) v1.CascadeState {
	switch {
	case c.Held:
		return v1.CascadeHeld
	case c.Remaining > 0 || queued:
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
