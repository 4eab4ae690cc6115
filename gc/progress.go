package gc

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/kind/event"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/cascades"
	"github.com/exeunt/exeunt/store/graph"
)

const (
	// progressEvery is the shortest time between two progress Events of a cascade.
	progressEvery = 5 * time.Second
	// progressMost bounds the counts, which are made under the write lock.
	progressMost = 100_000
	// progressKept bounds the cascades in Collector.reported.
	progressKept = 1000
)

// A cascade that needs more than one transaction reports its progress, in one
// repeated Event about its root object. The removed objects are counted in the
// archive and the remaining ones in the collector's tables, so the numbers are
// right on every replica and after a crash. A process remembers only the time of
// its last report.

// progress reports the cascade that the session worked on last, if it continues
// in another transaction, or if it ends here and was reported before. It counts
// as continuing while the queue has more rows than the session's own tasks: a
// wide cascade has many rows there, and each transaction settles some of them.
func (s *session) progress(ctx context.Context, tasks int) error {
	if s.cause == "" {
		return nil
	}
	if err := s.setCause(ctx, s.cause); err != nil { // a review without dependents has not
		return err
	}
	cascade := s.tx.Cascade()
	goesOn := s.budget <= 0 || len(s.next) > 0
	if !goesOn && s.c.wasReported(cascade) {
		queued, err := s.countReviews(ctx, tasks+1)
		if err != nil {
			return err
		}
		goesOn = queued > int64(tasks)
	}
	if !s.c.progressDue(cascade, s.now, goesOn) {
		return nil
	}
	root, found, err := cascades.Root(ctx, s.tx, cascade)
	if err != nil || !found {
		return err
	}
	gone, err := cascades.CountRemoved(ctx, s.tx, cascade, progressMost+1)
	if err != nil {
		return err
	}
	remain, err := s.remaining(ctx, cascade, root)
	if err != nil {
		return err
	}
	message := counted(remain) + " remaining"
	if gone > 0 { // 0 also if the archive is off
		message = counted(gone) + " gone, " + message
	}
	s.events = append(s.events, event.Event{
		About: root, Type: corev1.EventTypeNormal, Reason: "CascadeProgress", Message: message, Source: reporter, Elsewhere: true,
	})
	return nil
}

// progressDue reports whether a progress Event of a cascade is due, and remembers
// the time.
func (c *Collector) progressDue(cascade string, now time.Time, goesOn bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, before := c.reported[cascade]
	switch {
	case !goesOn:
		delete(c.reported, cascade)
		return before
	case before && now.Sub(last) < progressEvery:
		return false
	case len(c.reported) >= progressKept:
		clear(c.reported) // cascades that continue are reported again
	}
	c.reported[cascade] = now
	return true
}

func (c *Collector) wasReported(cascade string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, reported := c.reported[cascade]
	return reported
}

// remaining counts the objects that are left: for a namespace its content,
// otherwise the dependents of the root and of its removed dependents whose review
// is next.
func (s *session) remaining(ctx context.Context, cascade string, root object.Object) (int64, error) {
	if root.Kind != object.Namespaces {
		direct, err := graph.CountDependents(ctx, s.tx, root.UID, progressMost+1)
		if err != nil || direct > progressMost {
			return direct, err
		}
		queued, err := s.nextReviews(ctx)
		if err != nil {
			return 0, err
		}
		below, err := cascades.CountBelow(ctx, s.tx, s.c.db.Engine(), cascade, queued, progressMost+1)
		return direct + below, err
	}
	kinds, err := s.tx.Kinds(ctx, root.Name)
	if err != nil {
		return 0, err
	}
	total := int64(0)
	for _, kind := range kinds {
		n, err := s.tx.Count(ctx, kind, root.Name, progressMost+1)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// countReviews counts the rows of the queue, up to a bound.
func (s *session) countReviews(ctx context.Context, most int) (n int64, err error) {
	if _, err := sqldb.First(ctx, s.tx, []any{&n}, countReviews, most); err != nil {
		return 0, fmt.Errorf("count reviews: %w", err)
	}
	return n, nil
}

// nextReviews reads the uids of the next 1,000 reviews, not of all.
func (s *session) nextReviews(ctx context.Context) ([]types.UID, error) {
	uids, err := sqldb.Column[types.UID](ctx, s.tx, nextReviews)
	if err != nil {
		return nil, fmt.Errorf("read next reviews: %w", err)
	}
	return uids, nil
}

func counted(n int64) string {
	if n > progressMost {
		return fmt.Sprintf("more than %d", progressMost)
	}
	return fmt.Sprint(n)
}

const (
	countReviews = `SELECT count(*) FROM (SELECT 1 FROM gc_object_reviews LIMIT $1) AS found`
	nextReviews  = `SELECT uid FROM gc_object_reviews ORDER BY review_after LIMIT 1000`
)
