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
)

// orphan is the orphan finalizer: dependents forget the owner and whatever
// else dangles, and then the owner may go. A controller that has not yet seen
// the deletion would adopt the dependents again, so where the kind reports
// what its controller has seen, that is waited for, up to a bound.
func (s *session) orphan(ctx context.Context, o *item) (review.Verdict, error) {
	if wait := s.unseen(o); wait > 0 {
		return review.Again(wait), nil
	}
	v, err := s.collect(ctx, string(o.UID), s.c.sql.allDependents, func(ctx context.Context, batch []*item) error {
		return s.letGo(ctx, o.UID, batch)
	})
	if err != nil || s.budget <= 0 {
		return v, err
	}
	return s.finalized(ctx, o.UID, metav1.FinalizerOrphanDependents)
}

// unseen is how much longer to wait for the owner's controller.
func (s *session) unseen(o *item) time.Duration {
	if _, _, behind := Unseen(s.kinds, o.Kind, o.Body); !behind {
		return 0
	}
	return OrphanDeadline(o.deletion, s.c.opts.OrphanWait).Sub(s.now)
}

// Unseen says which generation of an object its controller has seen, which there
// is, and whether the controller is behind. Where the kind's schema has the
// field, an object without it has a controller that has not reported yet: it has
// seen generation 0. Kinds without the field have nothing to wait for.
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

// OrphanDeadline is when orphaning stops waiting for the controller of an object
// that was deleted at a time, in Unix seconds.
func OrphanDeadline(deletion int64, wait time.Duration) time.Time {
	return time.Unix(deletion, 0).Add(wait)
}

// letGo takes the owner, and what dangles, out of the references of its
// dependents.
func (s *session) letGo(ctx context.Context, owner types.UID, batch []*item) error {
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
		drop := []types.UID{owner}
		for _, r := range metas[i].OwnerReferences {
			if standing, _ := s.standing(o, &r); standing == Dangling {
				drop = append(drop, r.UID)
			}
		}
		metas[i].OwnerReferences = without(metas[i].OwnerReferences, drop)
		if err := s.rewrite(o, &metas[i]); err != nil {
			return err
		}
	}
	return s.tx.Flush(ctx)
}

// foreground is the foreground finalizer: the dependents are sent on their
// way, and the owner goes when none is left that blocks it. Owners that wait
// for each other in a circle do not wait for ever: the one that is looked at
// goes first.
func (s *session) foreground(ctx context.Context, o *item) (review.Verdict, error) {
	if err := s.passOn(o); err != nil {
		return review.Verdict{}, err
	}
	v, err := s.collect(ctx, string(o.UID), s.c.sql.dependents, s.judge)
	if err != nil || s.budget <= 0 {
		return v, err
	}
	blocked, err := s.isBlocked(ctx, o)
	if err != nil {
		return v, err
	}
	if blocked {
		if circle, err := s.inCircle(ctx, o); err != nil || !circle {
			return v, err // a trigger puts it under review when a dependent goes
		}
	}
	return s.finalized(ctx, o.UID, metav1.FinalizerDeleteDependents)
}

// finalized removes a finalizer, and with the last one the object. It reads
// the object again: one that was its own dependent has changed meanwhile.
func (s *session) finalized(ctx context.Context, uid types.UID, finalizer string) (review.Verdict, error) {
	found, err := s.query(ctx, objectByUID, string(uid))
	if err != nil {
		return review.Verdict{}, err
	}
	if len(found) == 0 {
		return review.Acted(), nil
	}
	o := found[0]
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		return review.Verdict{}, err
	}
	m.Finalizers = slices.DeleteFunc(slices.Clone(m.Finalizers), func(f string) bool { return f == finalizer })
	return review.Acted(), s.changed(ctx, o, m)
}

// changed gives a DELETING object its new metadata, and lets it go if nothing
// in them holds it.
func (s *session) changed(ctx context.Context, o *item, m metav1.ObjectMeta) error {
	if lifecycle.RemoveNow(o.Body, m, s.rules(o.Kind)) {
		if err := s.lookUp(ctx, []metav1.ObjectMeta{m}); err != nil {
			return err
		}
		s.remove(o, &m)
	} else if err := s.rewrite(o, &m); err != nil {
		return err
	}
	return s.tx.Flush(ctx)
}
