package store

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// The guard's part of a delete: which limit applies, and whether the object can
// have a cascade at all. The transaction of the delete looks both up. An object
// without a cascade is deleted at once. The collector counts the cascade: see
// gc/guard.go.
//
// The cascade of a cluster-scoped object may enter namespaces, each with a limit of its
// own. Which ones, only counting tells; so if any namespace has a limit, the
// collector counts.

// guardNeeds is what must be loaded to know the limit.
func (r *DeleteRequest) guardNeeds() []object.Key {
	if r.Key.Namespace == "" {
		return nil
	}
	return []object.Key{{Kind: object.Namespaces, Name: r.Key.Namespace}}
}

// guardParent is the object's uid if the guard must know whether it has dependents.
// Otherwise empty.
func (r *DeleteRequest) guardParent(v *view) string {
	o := v.objects[r.Key]
	if o == nil || o.deleting || r.Key.Kind == object.Definitions || r.Key.Namespace != "" && r.namespaceLimit(v) == 0 {
		return ""
	}
	return o.uid
}

// entersNamespaces says that the object's cascade may enter other namespaces.
func (r *DeleteRequest) entersNamespaces(v *view) bool {
	o := v.objects[r.Key]
	return r.Key.Namespace == "" && o != nil && !o.deleting && (r.Key.Kind == object.Definitions || v.parents[o.uid])
}

// guard is the guard's limit for this delete, if it has one, and whether limits of
// namespaces may apply.
func (r *DeleteRequest) guard(v *view, o *state) (limit int64, namespaces bool) {
	if !r.Guarded || o.deleting || !r.contains() && !v.parents[o.uid] {
		return 0, false
	}
	return r.namespaceLimit(v), !v.unlimited && r.entersNamespaces(v)
}

// contains says that deleting an object of the kind deletes what it contains.
func (r *DeleteRequest) contains() bool {
	return r.Key.Kind == object.Namespaces || r.Key.Kind == object.Definitions
}

var maxCascade = []byte(lifecycle.MaxCascade)

// mayLimit says that a Namespace may limit cascades.
func mayLimit(body []byte) bool { return bytes.Contains(body, maxCascade) }

// namespaceLimit is the limit of the object's Namespace; for a Namespace, its own.
func (r *DeleteRequest) namespaceLimit(v *view) int64 {
	key := r.Key
	if key.Namespace != "" {
		key = object.Key{Kind: object.Namespaces, Name: r.Key.Namespace}
	}
	ns := v.objects[key]
	if ns == nil || key.Kind != object.Namespaces || !mayLimit(ns.body) {
		return lifecycle.CascadeLimit(r.MaxCascade, nil)
	}
	m, err := object.ParseMeta(ns.body)
	if err != nil {
		return lifecycle.CascadeLimit(r.MaxCascade, nil) // a delete of the Namespace reports the error
	}
	return lifecycle.CascadeLimit(r.MaxCascade, m.Annotations)
}

// The bodies of Namespaces with the annotation. On PostgreSQL the order of the tables is
// fixed, as in read_owner.go.
const (
	limitingSQLite = `
FROM objects d JOIN changes c ON c.revision = d.revision
WHERE d.kind = '` + object.Namespaces + `' AND instr(c.body, CAST($1 AS BLOB)) > 0`
	limitingPostgres = `
FROM (SELECT * FROM objects WHERE kind = '` + object.Namespaces + `') AS d` + bodyPostgres + `
WHERE position($1::bytea IN c.body) > 0`
)

// LimitingNamespaces reads the Namespaces that limit cascades: their annotations.
func (r *Reader) LimitingNamespaces(ctx context.Context) (map[string]map[string]string, error) {
	limiting := map[string]map[string]string{}
	err := r.rows(ctx, func(row sqldb.Row) error {
		var name string
		var body []byte
		if err := row.Scan(&name, &body); err != nil {
			return err
		}
		m, err := object.ParseMeta(body)
		if err == nil && lifecycle.CascadeLimit(0, m.Annotations) > 0 {
			limiting[name] = m.Annotations
		}
		return err
	}, `SELECT d.name, c.body`+r.pick(limitingSQLite, limitingPostgres), maxCascade)
	if err != nil {
		return nil, fmt.Errorf("read limits of namespaces: %w", err)
	}
	return limiting, nil
}

// readUnlimited sets v.unlimited.
func (t *Tx) readUnlimited(ctx context.Context, v *view) error {
	limited, err := t.one(ctx, []any{new(int64)}, `SELECT 1`+t.pick(limitingSQLite, limitingPostgres)+` LIMIT 1`, maxCascade)
	v.unlimited = !limited
	return err
}

// AnotherConfirms returns a Namespace that demands that another user confirms the deletion
// of an object: its own, or for a cluster-scoped object any that limits cascades. Empty:
// there is none.
func (s *Store) AnotherConfirms(ctx context.Context, key object.Key) (string, error) {
	name := key.Namespace
	if key.Kind == object.Namespaces {
		name = key.Name
	}
	if name == "" {
		limiting, err := s.Reader().LimitingNamespaces(ctx)
		for name, annotations := range limiting {
			if lifecycle.AnotherConfirms(annotations) {
				return name, err
			}
		}
		return "", err
	}
	o, err := s.Get(ctx, object.Key{Kind: object.Namespaces, Name: name})
	if object.Is(err, object.NotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if m, err := object.ParseMeta(o.Body); err != nil || !lifecycle.AnotherConfirms(m.Annotations) {
		return "", err
	}
	return name, nil
}

// Limits decides whether writes fit into the quotas of their namespace. The store
// calls it inside each write transaction, which holds the lock on the revision: no
// other write, of any replica, comes between the decision and the commit.
type Limits interface {
	// Begin returns the limits of a transaction.
	Begin(ctx context.Context, at Locked) (Limiter, error)
}

// Locked is the state that a transaction found when it got the lock.
type Locked struct {
	*Reader
	Revision, Compacted int64
	Quotas              int64 // revision of the last write for which a Limiter's Changed was true
	Now                 time.Time
}

// Limiter is the Limits of one transaction. It is for one goroutine.
type Limiter interface {
	// Prepare reads what Check needs for a namespace. All changes that were accepted
	// before must be flushed.
	Prepare(ctx context.Context, namespace string) error
	// Check returns an *object.Error if a change does not fit.
	Check(c Change) error
	// Accept notes that the transaction makes a change.
	Accept(c Change)
	// Changed reports whether an accepted change changes what a quota limits.
	Changed() bool
	// Queue adds the statements that belong to the accepted changes.
	Queue(b *sqldb.Batch)
}

// Change is a write to one object.
type Change struct {
	Type          EventType
	Key           object.Key
	UID           string
	Before, After []byte // bodies; nil if the object does not exist
}

// SetLimits makes the store ask for every write. It must be called before Run.
func (s *Store) SetLimits(l Limits) { s.limits = l }

func (f *effect) change() Change {
	c := Change{Type: f.Type, Key: f.key, UID: f.uid}
	if f.before != nil {
		c.Before = f.before.body
	}
	if f.Type != Removed {
		c.After = f.body
	}
	return c
}

// fits asks the limits about a write.
func (v *view) fits(f *effect) error {
	if v.limits == nil || f.key.Namespace == "" {
		return nil
	}
	return v.limits.Check(f.change())
}

// beginLimits sets the limits of the transaction.
func (t *Tx) beginLimits(ctx context.Context, l Limits) (err error) {
	if l != nil {
		t.limits, err = l.Begin(ctx, Locked{Reader: &t.Reader, Revision: t.revision, Compacted: t.compacted, Quotas: t.quotas, Now: t.Now})
	}
	return err
}

// limit prepares the limits of an operation in this transaction.
func (t *Tx) limit(ctx context.Context, v *view, op *operation) error {
	v.limits = t.limits
	quota := t.limits != nil && op.grows && op.key.Namespace != ""
	if !quota && op.most == 0 {
		return nil
	}
	err := t.Flush()
	if _, counted := v.counts[op.key.Scope()]; err == nil && op.most > 0 && !counted {
		v.counts[op.key.Scope()], err = t.Count(ctx, op.key.Kind, op.key.Namespace, op.most)
	}
	if err == nil && quota {
		err = t.limits.Prepare(ctx, op.key.Namespace)
	}
	return err
}

// Limiter returns the limits of this transaction; nil if the store has none.
func (t *Tx) Limiter() Limiter { return t.limits }

// queueLimits adds the statements of the limits to those of a transaction that ends at
// a revision.
func queueLimits(b *sqldb.Batch, l Limiter, revision int64) {
	if l == nil {
		return
	}
	l.Queue(b)
	if l.Changed() {
		b.Exec(setQuotas, revision)
	}
}
