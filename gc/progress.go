package gc

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/event"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

const (
	// progressEvery is how often a cascade tells how far it is, at most.
	progressEvery = 5 * time.Second
	// progressMost is where its counting stops: it is done under the lock.
	progressMost = 100_000
	// progressKept bounds the cascades that a collector remembers to have told of.
	progressKept = 1000
)

// A cascade that does not fit into one transaction tells how far it is, by one
// Event about the object that it began with, which is counted up. What has gone
// is counted in the archive, what remains in the tables of the collector itself,
// so the figures are true whichever replica tells them, and after a crash. All
// that a process remembers is when it told last.

// progress tells of the cascade that the session worked on last, if it goes on
// in another transaction, or ends here and was told of before. As long as the
// queue has more than the session's own tasks it is taken to go on: a wide
// cascade has many rows there, and each transaction ends some of them.
func (s *session) progress(ctx context.Context, tasks int) error {
	cascade := s.tx.Cascade()
	if cascade == "" {
		return nil
	}
	goesOn := s.budget <= 0 || len(s.next) > 0
	if !goesOn && s.c.toldOf(cascade) {
		queued, err := s.number(ctx, countReviews, tasks+1)
		if err != nil {
			return err
		}
		goesOn = queued > int64(tasks)
	}
	if !s.c.tells(cascade, s.now, goesOn) {
		return nil
	}
	root, found, err := s.rootOf(ctx, cascade)
	if err != nil || !found {
		return err
	}
	gone, err := s.number(ctx, countArchived, cascade, progressMost+1)
	if err != nil {
		return err
	}
	remain, err := s.remaining(ctx, root)
	if err != nil {
		return err
	}
	message := counted(remain) + " remaining"
	if gone > 0 { // without an archive nobody knows
		message = counted(gone) + " gone, " + message
	}
	s.events = append(s.events, event.Event{
		About: root, Type: corev1.EventTypeNormal, Reason: "CascadeProgress", Message: message, Source: reporter, Elsewhere: true,
	})
	return nil
}

// tells says whether it is time to tell of a cascade, and remembers that it was
// done.
func (c *Collector) tells(cascade string, now time.Time, goesOn bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, told := c.told[cascade]
	switch {
	case !goesOn:
		delete(c.told, cascade)
		return told
	case told && now.Sub(last) < progressEvery:
		return false
	case len(c.told) >= progressKept:
		clear(c.told) // those that go on are told of again
	}
	c.told[cascade] = now
	return true
}

func (c *Collector) toldOf(cascade string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, told := c.told[cascade]
	return told
}

// rootOf finds the object that a cascade is named by. One that was a request of
// its own, as that of a collection, has none.
func (s *session) rootOf(ctx context.Context, cascade string) (o object.Object, found bool, err error) {
	var b sqldb.Batch
	read := func(row sqldb.Row) error {
		o, found = object.Object{UID: types.UID(cascade)}, true
		return row.Scan(&o.Kind, &o.Namespace, &o.Name, &o.Revision)
	}
	b.Query(read, rootArchived, cascade)
	b.Query(read, rootStored, cascade)
	if err := s.tx.Send(ctx, &b); err != nil {
		return o, false, fmt.Errorf("find root of cascade %s: %w", cascade, err)
	}
	if o.Kind == "namespaces" {
		o.Namespace = "" // in the archive it is in itself
	}
	return o, found, nil
}

// remaining counts what is left: of a namespace its content, otherwise the
// dependents of the root and of those that went with it and whose review is next.
func (s *session) remaining(ctx context.Context, root object.Object) (int64, error) {
	if root.Kind != "namespaces" {
		direct, err := s.number(ctx, countBelow, string(root.UID), progressMost+1)
		if err != nil || direct > progressMost {
			return direct, err
		}
		below, err := s.number(ctx, countQueued, string(root.UID), progressMost+1)
		return direct + below, err
	}
	kinds, err := s.kindsIn(ctx, root.Name)
	if err != nil {
		return 0, err
	}
	total := int64(0)
	for _, kind := range kinds {
		n, err := s.number(ctx, countIn, kind, root.Name, progressMost+1)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

func (s *session) number(ctx context.Context, statement string, args ...any) (n int64, err error) {
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error { return row.Scan(&n) }, statement, args...)
	if err := s.tx.Send(ctx, &b); err != nil {
		return 0, fmt.Errorf("count cascade: %w", err)
	}
	return n, nil
}

func counted(n int64) string {
	if n > progressMost {
		return fmt.Sprintf("more than %d", progressMost)
	}
	return fmt.Sprint(n)
}

// The statements that count stop at a bound and read indexes only.
const (
	rootStored   = `SELECT kind, namespace, name, revision FROM objects WHERE uid = $1`
	rootArchived = `SELECT kind, namespace, name, id FROM archive WHERE uid = $1`

	countArchived = `SELECT count(*) FROM (SELECT 1 FROM archive WHERE cascade = $1 AND cascade <> uid LIMIT $2) AS found`
	countBelow    = `SELECT count(*) FROM (SELECT 1 FROM owners WHERE owner_uid = $1 LIMIT $2) AS found`
	countIn       = `SELECT count(*) FROM (SELECT 1 FROM objects WHERE kind = $1 AND namespace = $2 LIMIT $3) AS found`

	countReviews = `SELECT count(*) FROM (SELECT 1 FROM gc_object_reviews LIMIT $1) AS found`

	// countQueued looks at the reviews that are next, not at all of them.
	countQueued = `
SELECT count(*) FROM (
    SELECT 1 FROM (SELECT uid FROM gc_object_reviews ORDER BY review_after LIMIT 1000) q
        JOIN archive a ON a.uid = q.uid JOIN owners w ON w.owner_uid = q.uid
    WHERE a.cascade = $1 AND a.cascade <> a.uid LIMIT $2) AS found`
)
