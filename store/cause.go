package store

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/sqldb"
)

// causes says who deletes the objects of a Tx, and in which cascade: see
// archive.go.
type causes struct {
	actor string
	cascade
	known map[string]cascade // by uid of objects that were looked up or that this Tx deletes
}

// cascade is the cascade that a deletion belongs to. Empty: none, or unknown.
type cascade struct{ id, requester, request string }

// SetCause records who causes the deletions that follow in the transaction:
// actor deletes them because of the object with this uid, an owner or a
// namespace. They join the cascade of that object's own deletion; if the database
// no longer has it, the uid begins a new cascade. With an empty uid, each deleted
// object begins a cascade of its own.
func (t *Tx) SetCause(ctx context.Context, actor, uid string) error {
	c := &t.cause
	c.actor = actor
	if known, ok := c.known[uid]; ok || uid == "" {
		c.cascade = known
		return nil
	}
	if err := t.Flush(); err != nil { // the row to look up may not be written yet
		return err
	}
	c.cascade = cascade{id: uid}
	read := func(row sqldb.Row) error { return row.Scan(&c.id, &c.requester, &c.request) }
	var b sqldb.Batch
	b.Query(read, cascadeArchived, uid)
	b.Query(read, cascadeDeleting, uid)
	if err := t.sendAll(ctx, &b); err != nil {
		return fmt.Errorf("look up cascade of %s: %w", uid, err)
	}
	c.remember(uid, c.cascade)
	return nil
}

// Cascade is the id of the cascade that SetCause set last.
func (t *Tx) Cascade() string { return t.cause.id }

// explain sets the cause of an effect. If the effect begins a deletion, explain
// remembers its cascade: the same transaction usually deletes its dependents.
func (c *causes) explain(f *effect) {
	f.actor, f.cascade, f.requester, f.request = c.actor, c.id, c.requester, c.request
	if f.before == nil || f.before.deleting || f.Type == Updated && f.deletionTime == nil {
		return
	}
	if f.cascade == "" {
		c.remember(f.uid, cascade{id: cmp.Or(f.before.own, f.uid), requester: f.actor})
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

// Origin is how a cascade began: its id, the client whose delete began it, and the
// Audit-Id of that delete.
type Origin struct{ Cascade, Requester, RequestID string }

// OriginOf is the origin of the cascade of an object that is being deleted, or that is
// in the archive. It is empty if there is neither.
func (s *Store) OriginOf(ctx context.Context, uid types.UID) (o Origin, err error) {
	for _, statement := range []string{cascadeDeleting, cascadeArchived} {
		found, err := s.db.Row(ctx, statement, []any{string(uid)}, &o.Cascade, &o.Requester, &o.RequestID)
		if err != nil {
			return Origin{}, fmt.Errorf("look up cascade of %s: %w", uid, err)
		}
		if found {
			break
		}
	}
	return o, nil
}
