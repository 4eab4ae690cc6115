package store

import (
	"context"
	"fmt"

	"github.com/exeunt/exeunt/sqldb"
)

// causes is why a Tx deletes what it deletes: see archive.go.
type causes struct {
	actor, cascade string
	known          map[string]string // cascades of objects by uid: looked up, or deleted by this Tx
}

// Because says that what the transaction deletes from now on is deleted by
// actor because of the object with this uid, an owner or a namespace: it joins
// the cascade that the object itself goes, or went, with. One that nobody
// remembers begins a cascade of its own. An empty uid: there is no cause, each
// object is a cascade of its own.
func (t *Tx) Because(ctx context.Context, actor, uid string) error {
	c := &t.cause
	c.actor = actor
	if cascade, known := c.known[uid]; known || uid == "" {
		c.cascade = cascade
		return nil
	}
	if err := t.Flush(ctx); err != nil { // what is looked for may not be written yet
		return err
	}
	c.cascade = uid
	read := func(row sqldb.Row) error { return row.Scan(&c.cascade) }
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
func (t *Tx) Cascade() string { return t.cause.cascade }

// explain gives an effect its cause, and remembers the cascade of one that
// begins a deletion: what follows it is usually deleted in this transaction.
func (c *causes) explain(f *effect) {
	f.actor, f.cascade = c.actor, c.cascade
	if f.before == nil || f.before.deleting || f.Type == Updated && f.deletionTime == nil {
		return
	}
	if f.cascade == "" {
		c.remember(f.uid, f.uid)
		return
	}
	c.remember(f.uid, f.cascade)
}

func (c *causes) remember(uid, cascade string) {
	if c.known == nil {
		c.known = map[string]string{}
	}
	c.known[uid] = cascade
}
