package store

import (
	"context"

	"github.com/exeunt/exeunt/store/expiry"
)

// Eviction is cascades that leave the archive before their time.
type Eviction = expiry.Eviction

// OnEvict has fn called in the transaction that evicts cascades, before they leave. The last fn
// counts.
func (s *Store) OnEvict(fn func(context.Context, *Tx, Eviction) error) { s.onEvict.Store(&fn) }

// Evicted counts the cascades that this process evicted.
func (s *Store) Evicted() int64 { return s.expiry.Evicted() }

// ForgetArchived is expiry.Expiry.Purge.
func (s *Store) ForgetArchived(ctx context.Context, ids []int64) (int, error) {
	return s.expiry.Purge(ctx, ids)
}

// Expiries is expiry.Expiry.Until; of has any removed object of each cascade, by the cascade's id.
func (s *Store) Expiries(ctx context.Context, of map[string]*Archived) (map[string]int64, error) {
	removals := make(map[string]expiry.Removal, len(of))
	for id, a := range of {
		removals[id] = expiry.Removal{Namespace: a.Namespace, At: a.RemovedAt}
	}
	return s.expiry.Until(ctx, removals)
}

// expiring is the transaction as package expiry uses it.
func (s *Store) expiring(t *Tx) *expiry.Tx {
	x := &expiry.Tx{Sender: t, Engine: t.engine, Now: t.Now, Revision: t.revision, Compacted: t.compacted}
	if report := s.onEvict.Load(); report != nil {
		x.OnEvict = func(ctx context.Context, e Eviction) error { return (*report)(ctx, t, e) }
	}
	return x
}

func newExpiry(s *Store) *expiry.Expiry {
	return expiry.New(expiry.Options{
		DB: s.db, Now: s.now, Logger: s.log, For: s.opts.Archive.For, MaxBytes: s.opts.Archive.MaxBytes,
		Transact: func(ctx context.Context, fn func(*expiry.Tx) error) error {
			return s.Transact(ctx, func(t *Tx) error { return fn(s.expiring(t)) })
		},
	})
}
