package gc

import (
	"context"
	"time"

	"github.com/exeunt/exeunt/store"
)

const (
	// DefaultLargeDeletion is the number of removed objects from which the end of a deletion
	// is logged.
	DefaultLargeDeletion = 1000
	// largeShare is the share of a large deletion from which a process looks for its end
	// after each of its transactions. Of smaller ones it looks only at the one that a
	// transaction worked on last.
	largeShare = 10
)

// The log has one line for the end of each large deletion. The transaction after which
// the collector has nothing left to do for a cascade writes it, once it is committed. Transactions
// of the store are one after the other, on all replicas, so there is one such transaction. It counts in the
// archive: a process that did the last part only knows the whole, also after a restart.

// charge counts what the session changed since its last call for the cascade that it worked on.
func (s *session) charge() {
	s.spent[s.tx.Cascade()] += s.charged - s.budget
	s.charged = s.budget
}

// findEnds finds the large deletions that end with this session.
func (s *session) findEnds(ctx context.Context) error {
	last := s.tx.Cascade()
	s.charge()
	// The owner that goes after its dependents is removed without a look at its cascade.
	unknown := s.spent[""]
	delete(s.spent, "")
	if last != "" {
		s.spent[last] += unknown
	}
	for cascade, changed := range s.spent {
		if changed == 0 || !s.c.worthALook(cascade, changed) && cascade != last {
			continue // a transaction that changed nothing did not end it
		}
		end, err := s.findEnd(ctx, cascade)
		if err != nil {
			return err
		}
		if end != nil {
			s.c.keepEnd(s.tx, ending{cascade: end, took: s.now.Sub(time.UnixMilli(end.FirstRemovedAt))})
		}
	}
	return nil
}

// findEnd returns a cascade if it is large and has ended; otherwise nil. Only for one that seems
// to have ended it counts all: the looks before are bounded. The cheap ones come first, since
// each transaction of a large cascade looks.
func (s *session) findEnd(ctx context.Context, id string) (*store.Cascade, error) {
	large := int64(s.c.opts.LargeDeletion)
	if err := s.tx.Flush(); err != nil {
		return nil, err
	}
	root, err := s.tx.GetByUID(ctx, store.RootOf(id))
	if err != nil || root != nil && root.Deleting {
		return nil, err
	}
	if direct, err := s.tx.CountDependents(ctx, store.RootOf(id), 1); err != nil || direct > 0 {
		return nil, err
	}
	removed, err := s.tx.CountRemoved(ctx, id, large)
	if err != nil || removed < large-1 { // its root is not counted
		return nil, err
	}
	queued, err := s.nextReviews(ctx)
	if err != nil {
		return nil, err
	}
	below, err := s.tx.CountBelowRemoved(ctx, id, queued, 1)
	if err != nil || below > 0 {
		return nil, err
	}
	c, err := s.tx.Reader.Cascade(ctx, id)
	if err != nil || c == nil || c.Remaining > c.Deleting || c.Removed < large {
		return nil, err
	}
	return c, nil
}

// ending is the end of a large deletion, in a transaction that is not committed yet.
type ending struct {
	cascade *store.Cascade
	took    time.Duration
}

// worthALook counts what this process changed for a cascade.
func (c *Collector) worthALook(cascade string, changed int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.changed) >= progressKept {
		clear(c.changed)
	}
	c.changed[cascade] += changed
	return c.changed[cascade] >= c.opts.LargeDeletion/largeShare
}

func (c *Collector) keepEnd(tx *store.Tx, e ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endings[tx] = append(c.endings[tx], e)
}

// logEnds logs the ends that a transaction found, if it was committed.
func (c *Collector) logEnds(tx *store.Tx, committed bool) {
	c.mu.Lock()
	ends := c.endings[tx]
	delete(c.endings, tx)
	for _, e := range ends {
		delete(c.changed, e.cascade.ID)
	}
	c.mu.Unlock()
	if !committed {
		return
	}
	for _, e := range ends {
		root := e.cascade.Root
		c.opts.Logger.Info("large deletion ended", "kind", root.Kind, "namespace", root.Namespace, "name", root.Name, "user", e.cascade.Requester,
			"removed", e.cascade.Removed, "held", e.cascade.Deleting, "took", e.took.Round(time.Millisecond), "cascade", e.cascade.ID, "audit", e.cascade.RequestID)
	}
}
