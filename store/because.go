package store

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/sqldb"
)

// causes is why a Tx deletes what it deletes: see archive.go.
type causes struct {
	actor string
	cascade
	known map[string]cascade // of objects by uid: looked up, or deleted by this Tx
}

// cascade is what a deletion is part of. Empty: of none, or of unknown origin.
type cascade struct{ id, requester string }

// Because says that what the transaction deletes from now on is deleted by
// actor because of the object with this uid, an owner or a namespace: it joins
// the cascade that the object itself goes, or went, with. One that nobody
// remembers begins a cascade of its own. An empty uid: there is no cause, each
// object is a cascade of its own.
func (t *Tx) Because(ctx context.Context, actor, uid string) error {
	c := &t.cause
	c.actor = actor
	if known, ok := c.known[uid]; ok || uid == "" {
		c.cascade = known
		return nil
	}
	if err := t.Flush(ctx); err != nil { // what is looked for may not be written yet
		return err
	}
	c.cascade = cascade{id: uid}
	read := func(row sqldb.Row) error { return row.Scan(&c.id, &c.requester) }
	var b sqldb.Batch
	b.Query(read, cascadeArchived, uid)
	b.Query(read, cascadeDeleting, uid)
	if err := t.tx.Send(ctx, &b); err != nil {
		return fmt.Errorf("look up cascade of %s: %w", uid, err)
	}
	c.remember(uid, c.cascade)
	return nil
}

// Cascade is the one that Because found last, for those who tell of it.
func (t *Tx) Cascade() string { return t.cause.id }

// explain gives an effect its cause, and remembers the cascade of one that
// begins a deletion: what follows it is usually deleted in this transaction.
func (c *causes) explain(f *effect) {
	f.actor, f.cascade, f.requester = c.actor, c.id, c.requester
	if f.before == nil || f.before.deleting || f.Type == Updated && f.deletionTime == nil {
		return
	}
	if f.cascade == "" {
		c.remember(f.uid, cascade{id: f.uid, requester: f.actor})
		return
	}
	c.remember(f.uid, c.cascade)
}

func (c *causes) remember(uid string, of cascade) {
	if c.known == nil {
		c.known = map[string]cascade{}
	}
	c.known[uid] = of
}

// CascadeOf is the cascade that a DELETING object goes with, and the client whose
// delete began it. Both are empty if the object does not exist.
func (s *Store) CascadeOf(ctx context.Context, uid types.UID) (id, requester string, err error) {
	if _, err := s.db.Row(ctx, cascadeDeleting, []any{string(uid)}, &id, &requester); err != nil {
		return "", "", fmt.Errorf("look up cascade of %s: %w", uid, err)
	}
	return id, requester, nil
}
