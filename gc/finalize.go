package gc

import (
	"context"
	"slices"
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/store"
)

// orphan is the orphan finalizer: it removes the owner, and dangling owners, from
// the references of the dependents, and then the finalizer from the owner. A
// controller that has not yet seen the deletion would adopt the dependents again.
// So if the kind has status.observedGeneration, orphan waits for the controller,
// at most Options.OrphanWait.
func (s *session) orphan(ctx context.Context, o *item) (review.Verdict, error) {
	if wait := s.unseen(o); wait > 0 {
		return review.Again(wait), nil
	}
	v, err := s.collect(ctx, string(o.UID), s.allDependents, func(ctx context.Context, batch []*item) error {
		return s.dropOwner(ctx, o.UID, batch)
	})
	if err != nil || s.budget <= 0 {
		return v, err
	}
	return s.removeFinalizer(ctx, o.UID, metav1.FinalizerOrphanDependents)
}

// unseen returns how much longer to wait for the owner's controller.
func (s *session) unseen(o *item) time.Duration {
	if _, _, behind := Unseen(s.kinds, o.Kind, o.Body); !behind {
		return 0
	}
	return OrphanDeadline(o.Deletion, s.c.opts.OrphanWait).Sub(s.now)
}

// Unseen returns the generation of an object that its controller has seen, the
// current generation, and whether the controller is behind. If the kind's schema
// has status.observedGeneration and the object does not, the controller has seen
// generation 0. Kinds without the field are never behind.
func Unseen(kinds *kind.Snapshot, storage string, body []byte) (seen, want int64, behind bool) {
	found := gjson.GetBytes(body, "status.observedGeneration")
	if !found.Exists() {
		if k, ok := kinds.Stored(storage); !ok || !k.ReportsGeneration() {
			return 0, 0, false
		}
	}
	seen, want = found.Int(), gjson.GetBytes(body, "metadata.generation").Int()
	return seen, want, seen < want
}

// OrphanDeadline returns when orphaning stops waiting for the controller of an
// object. The deletion is in Unix seconds.
func OrphanDeadline(deletion int64, wait time.Duration) time.Time {
	return time.Unix(deletion, 0).Add(wait)
}

// dropOwner removes the owner, and dangling owners, from the references of its
// dependents.
func (s *session) dropOwner(ctx context.Context, owner types.UID, batch []*item) error {
	metas := make([]metav1.ObjectMeta, len(batch))
	for i, o := range batch {
		var err error
		if metas[i], err = object.ParseMeta(o.Body); err != nil {
			return err
		}
	}
	if err := s.lookUp(ctx, metas); err != nil {
		return err
	}
	for i, o := range batch {
		var drop []int
		for at, r := range metas[i].OwnerReferences {
			if standing, _ := s.standing(o, &r); r.UID == owner || standing == Dangling {
				drop = append(drop, at)
			}
		}
		if err := s.unlink(o, &metas[i], drop); err != nil {
			return err
		}
	}
	return s.tx.Flush()
}

// foreground is the foreground finalizer: it deletes the dependents, and removes
// the finalizer from the owner when no blocking dependent is left. known is what was
// read together with the owner; nil: nothing.
func (s *session) foreground(ctx context.Context, o *item, known *store.Family) (review.Verdict, error) {
	if err := s.noteGrace(o); err != nil {
		return review.Verdict{}, err
	}
	before, blocked := s.budget, false
	v, err := s.collect(ctx, string(o.UID), s.dependents(known), func(ctx context.Context, batch []*item) (err error) {
		if err = s.judge(ctx, batch); err == nil && !blocked {
			blocked, err = s.blockedBy(batch, o)
		}
		return err
	})
	if err != nil || blocked || s.budget <= 0 {
		return v, err
	}
	if known != nil && s.budget == before {
		blocked, err = s.waits(ctx, o, known.Blocked, known.Circle)
	} else {
		blocked, err = s.isBlocked(ctx, o)
	}
	if err != nil || blocked {
		return v, err // a trigger enqueues it when a dependent is removed
	}
	if s.budget == before {
		return s.dropFinalizer(ctx, o, metav1.FinalizerDeleteDependents)
	}
	return s.removeFinalizer(ctx, o.UID, metav1.FinalizerDeleteDependents)
}

// removeFinalizer removes a finalizer, and with the last one the object. It reads
// the object again: an object that is its own dependent has changed meanwhile.
func (s *session) removeFinalizer(ctx context.Context, uid types.UID, finalizer string) (review.Verdict, error) {
	o, err := s.tx.GetByUID(ctx, uid)
	if err != nil {
		return review.Verdict{}, err
	}
	if o == nil {
		return review.Acted(), nil
	}
	return s.dropFinalizer(ctx, o, finalizer)
}

// dropFinalizer is removeFinalizer for an object as it is now.
func (s *session) dropFinalizer(ctx context.Context, o *item, finalizer string) (review.Verdict, error) {
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		return review.Verdict{}, err
	}
	m.Finalizers = slices.DeleteFunc(slices.Clone(m.Finalizers), func(f string) bool { return f == finalizer })
	return review.Acted(), s.updateDeleting(ctx, o, m)
}

// updateDeleting writes the new metadata of a DELETING object, or removes the
// object if nothing in the metadata holds it.
func (s *session) updateDeleting(ctx context.Context, o *item, m metav1.ObjectMeta) error {
	if lifecycle.RemoveNow(o.Body, m, s.rules(o.Kind)) {
		if err := s.lookUp(ctx, []metav1.ObjectMeta{m}); err != nil {
			return err
		}
		s.remove(o, &m)
	} else if err := s.rewrite(o, &m); err != nil {
		return err
	}
	return s.tx.Flush()
}
