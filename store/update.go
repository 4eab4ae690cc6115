package store

import (
	"bytes"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/object"
)

// UpdateRequest replaces an object that is still at IfRevision. The store keeps
// Body: do not change it afterwards.
type UpdateRequest struct {
	Key        object.Key
	IfRevision int64
	Meta       metav1.ObjectMeta
	Body       []byte
	// Remove removes the object instead of rewriting it, because the update
	// removed the last finalizer.
	Remove bool
	DryRun bool
	// With are objects that the same transaction creates: all happens, or nothing.
	With []CreateRequest
	// Actor is the client that updates: the archive records it if the actor of the
	// deletion is not known.
	Actor string
}

// Update is a compare-and-swap. Errors: NotFound; Conflict when the object is at
// another revision; Forbidden when a quota is exceeded. A body equal to the stored one is not written, and the
// object keeps its revision. With Remove the result has the request's body at the
// revision of the removal; watchers get the last stored body.
func (s *Store) Update(ctx context.Context, r UpdateRequest) (object.Object, error) {
	if err := checkKey(r.Key); err != nil {
		return object.Object{}, err
	}
	if len(r.Body) == 0 {
		return object.Object{}, object.BadRequestf("update %s: no body", r.Key)
	}
	result := object.Object{Key: r.Key, UID: r.Meta.UID, Body: r.Body}
	op := &operation{key: r.Key, size: len(r.Body), grows: true}
	op.decide = func(v *view) (effect, error) {
		f, err := r.decide(v)
		if err == nil {
			result.UID, result.Revision = f.objectUID(), f.before.revision
		}
		return f, err
	}
	if len(r.With) > 0 {
		revision, err := s.createAndRun(ctx, op, r.With, r.DryRun)
		if revision != 0 {
			result.Revision = revision
		}
		return result, err
	}
	if err := s.writer.submit(ctx, op); err != nil {
		return object.Object{}, err
	}
	if op.effect.Type != 0 {
		result.Revision = op.effect.revision
	}
	return result, nil
}

func (r *UpdateRequest) decide(v *view) (effect, error) {
	before := v.objects[r.Key]
	if before == nil {
		return effect{}, notFound(r.Key)
	}
	if before.revision != r.IfRevision {
		return effect{}, object.Errorf(object.Conflict,
			"%s %q is at version %d, not %d: the object has been modified; please apply your changes to the latest version and try again",
			r.Key.Kind, r.Key.Name, before.revision, r.IfRevision)
	}
	if r.Meta.UID != "" && string(r.Meta.UID) != before.uid {
		return effect{}, object.Errorf(object.Conflict, "%s %q has uid %s, not %s", r.Key.Kind, r.Key.Name, before.uid, r.Meta.UID)
	}
	f := effect{key: r.Key, uid: before.uid, before: before, actor: r.Actor}
	if r.Remove && !r.DryRun {
		f.Type, f.body = Removed, before.body
		return f, nil
	}
	if r.Remove || bytes.Equal(r.Body, before.body) {
		return f, nil
	}
	grown := effect{Type: Updated, key: r.Key, uid: before.uid, body: r.Body, before: before}
	if err := v.fits(&grown); err != nil || r.DryRun {
		return f, err
	}
	return f, f.rewrite(r.Body, &r.Meta)
}

// rewrite turns the effect into an update to this body.
func (f *effect) rewrite(body []byte, m *metav1.ObjectMeta) error {
	var err error
	f.Type, f.body = Updated, body
	f.describe(m)
	f.owners, f.ownersChange, err = ownersChanged(f.before.body, m.OwnerReferences)
	if err != nil {
		return fmt.Errorf("update %s: %w", f.key, err)
	}
	return nil
}
