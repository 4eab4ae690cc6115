package store

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/seal"
)

// A batch of operations is one transaction in three steps: load the objects
// that the operations name; decide each operation in memory, from the loaded
// objects and the decisions before it; write all decisions.
//
// An operation writes nothing while it decides. So an operation that is refused
// or panics leaves nothing to undo and needs no savepoint, which would be two
// more statements per operation, and a round trip on PostgreSQL. If the database
// refuses a statement, the whole batch is rolled back and each operation runs
// again in its own transaction, so that only the operation at fault fails.

// state is an object as a transaction sees it. It is immutable.
type state struct {
	id       int64
	uid      string
	revision int64
	deleting bool
	own      string // its own cascade; empty means its uid
	body     []byte
	stored   int // bytes of the body in the database
}

// view is what the operations of a batch see.
type view struct {
	now     time.Time
	objects map[object.Key]*state // nil if the object does not exist
	parents map[string]bool       // uids with dependents, among those passed to parents
	// unlimited means that no namespace limits cascades. Read for cascades that may enter namespaces.
	unlimited bool
	limits    Limiter // nil means no quotas
	// counts are of objects of a kind in a namespace, with bounds; by object.Key.Scope.
	counts map[object.Key]int64
}

// effect is what an operation decided to do to one object. The zero Type is
// nothing.
type effect struct {
	Type   EventType
	key    object.Key
	uid    string
	body   []byte // the new body; for Removed the last body
	stored []byte // body as the database gets it; see seal
	before *state // nil for Created

	deletionTime, graceSeconds any // int64, or nil
	finalizing                 int64

	owners       []owner
	ownersChange bool // owners replace the stored rows

	restores             Restoration
	restored             bool // the archive row exists; set by write
	awaited, ownerIsBack bool // see Restoration; set by write

	// The cause, of an effect that begins or completes a deletion: see archive.go.
	actor, cascade, requester, request string
	author                             string // history.Author
	confirms                           bool   // the actor confirms a deletion that the guard holds
	trace                              string // traceparent of the request or review; empty if there is none
	at                                 int64  // Unix milliseconds

	id, revision int64 // set by the batch
}

// operation is one write. decide may be called more than once; it changes only
// the operation's own result.
type operation struct {
	ctx   context.Context
	key   object.Key
	needs []object.Key // other objects to be loaded
	size  int
	// parent returns the uid of a loaded object if decide must know whether it has
	// dependents, else "". Nil means that no object is such a parent.
	parent func(*view) string
	// entersNamespaces returns whether decide must know v.unlimited. Nil means no.
	entersNamespaces func(*view) bool

	decide func(*view) (effect, error)
	grows  bool  // a create or an update: quotas may refuse it
	most   int64 // see CreateRequest

	effect effect
	err    error
	done   chan struct{} // closed when effect and err are set
}

// writeBatch runs the operations in one transaction. It sets the error of each
// operation that is refused; it returns an error that fails them all. After a sqldb.RefusedError
// some of them may work by themselves.
func (s *Store) writeBatch(ctx context.Context, ops []*operation) error {
	t, err := s.begin(ctx)
	if err != nil {
		return fmt.Errorf("write objects: %w", err)
	}
	defer t.tx.Rollback() // does nothing after a commit
	v := newView(ops, t.Now)
	if err := t.prepare(ctx, s.limits, v, ops); err != nil {
		return sqldb.Refused(err)
	}
	effects := t.decideAll(s.log, v, ops)
	if len(effects) == 0 {
		return nil
	}
	if independent(v, ops, effects) {
		sortByType(t.revision, effects)
	}
	if err := t.write(ctx, effects); err != nil {
		return sqldb.Refused(fmt.Errorf("write objects: %w", err))
	}
	if err := s.finish(ctx, t); err != nil {
		return fmt.Errorf("write objects: %w", err)
	}
	return nil
}

// prepare loads what the operations decide by: the objects in one round trip with the lock. On PostgreSQL each
// statement sees what was committed before the statement began, so the statements after the lock see every commit
// that the lock waited for.
func (t *Tx) prepare(ctx context.Context, limits Limits, v *view, ops []*operation) error {
	if v.queueLoads(&t.flushed, t.engine, t.keys) {
		seal.QueryKey(&t.flushed, &t.sealing)
	}
	if err := t.sendAll(ctx, &sqldb.Batch{}); err != nil {
		return fmt.Errorf("load objects: %w", err)
	}
	if uids := parentsOf(v, ops); len(uids) > 0 {
		if err := t.readParents(ctx, v, uids); err != nil {
			return fmt.Errorf("load dependents: %w", err)
		}
	}
	if slices.ContainsFunc(ops, func(op *operation) bool { return op.entersNamespaces != nil && op.entersNamespaces(v) }) {
		if err := t.readUnlimited(ctx, v); err != nil {
			return fmt.Errorf("load limits of cascades: %w", err)
		}
	}
	if err := t.beginExpiry(ctx); err != nil {
		return err
	}
	err := t.beginLimits(ctx, limits)
	for _, op := range ops {
		if err == nil {
			err = t.limit(ctx, v, op)
		}
	}
	if err != nil {
		return fmt.Errorf("read quotas: %w", err)
	}
	return nil
}

// readParents sets v.parents: which of the uids have dependents.
func (t *Tx) readParents(ctx context.Context, v *view, uids []string) error {
	v.parents = make(map[string]bool, len(uids))
	found, err := sqldb.Column[string](ctx, t, haveDependents[t.engine], sqldb.List(t.engine, uids))
	for _, uid := range found {
		v.parents[uid] = true
	}
	return err
}

// parentsOf is the uids for which the operations must know whether there are
// dependents. The objects must be loaded.
func parentsOf(v *view, ops []*operation) []string {
	var uids []string
	for _, op := range ops {
		if op.parent == nil {
			continue
		}
		if uid := op.parent(v); uid != "" {
			uids = append(uids, uid)
		}
	}
	return uids
}

func newView(ops []*operation, now time.Time) *view {
	v := &view{now: now, objects: make(map[object.Key]*state, len(ops)+1), counts: map[object.Key]int64{}}
	for _, op := range ops {
		v.objects[op.key] = nil
		for _, key := range op.needs {
			v.objects[key] = nil
		}
	}
	return v
}

// decideAll decides the operations in order and returns the effects to write.
func (t *Tx) decideAll(log *slog.Logger, v *view, ops []*operation) []*effect {
	effects := make([]*effect, 0, len(ops))
	next := t.revision + 1
	for _, op := range ops {
		op.effect, op.err = op.decideSafely(log, v)
		if op.err != nil || op.effect.Type == 0 {
			continue
		}
		if op.err = op.effect.seal(t.keys, t.sealing); op.err != nil {
			continue
		}
		op.effect.author = authorOf(op.ctx)
		op.effect.accept(next, v)
		next++
		effects = append(effects, &op.effect)
	}
	return effects
}

// independent says that no operation has decided by the effect of another.
func independent(v *view, ops []*operation, effects []*effect) bool {
	if len(effects) < minSet || v.parents != nil || v.limits != nil {
		return false
	}
	changed := make(map[object.Key]bool, len(effects))
	for _, f := range effects {
		if changed[f.key] || f.restores.Row != 0 {
			return false
		}
		changed[f.key] = true
	}
	for _, op := range ops {
		if slices.ContainsFunc(op.needs, func(k object.Key) bool { return changed[k] }) {
			return false
		}
	}
	return true
}

// sortByType orders effects by type, so that more of them are written as sets. Their operations
// came at the same time and are independent, so every order is right.
func sortByType(revision int64, effects []*effect) {
	slices.SortStableFunc(effects, func(a, b *effect) int { return int(a.Type) - int(b.Type) })
	for i, f := range effects {
		f.revision = revision + int64(i) + 1
		if f.before == nil {
			f.id = f.revision
		}
	}
}

// decideSafely is decide; a panic is an error of this operation alone.
func (op *operation) decideSafely(log *slog.Logger, v *view) (_ effect, err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("operation panicked", "object", op.key.String(), "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("write %s: panic: %v", op.key, p)
		}
	}()
	return op.decide(v)
}

// seal sets f.stored: the effect's body, sealed with the key of this name if its
// kind is sealed.
func (f *effect) seal(keys *seal.Keys, with string) (err error) {
	f.stored = f.body
	if f.Type != Removed && keys.Seals(f.key.Kind) {
		f.stored, err = keys.Seal(with, seal.Object{Key: f.key, UID: f.uid}, f.body)
	}
	return err
}

// accept gives the effect its revision and shows it to the operations after it.
func (f *effect) accept(revision int64, v *view) {
	f.revision = revision
	f.at = v.now.UnixMilli()
	if v.limits != nil {
		v.limits.Accept(f.change())
	}
	if _, counted := v.counts[f.key.Scope()]; counted && f.Type == Created {
		v.counts[f.key.Scope()]++
	}
	f.id = revision // an object's id is the revision of its creation
	if f.before != nil {
		f.id = f.before.id
	}
	if f.Type == Removed {
		v.objects[f.key] = nil
		return
	}
	if f.key.Kind == object.Namespaces && mayLimit(f.body) {
		v.unlimited = false
	}
	for i := range f.owners {
		if v.parents == nil {
			break // no operation needs it
		}
		v.parents[f.owners[i].uid] = true
	}
	v.objects[f.key] = &state{id: f.id, uid: f.uid, revision: revision, deleting: f.deletionTime != nil, own: f.own(), body: f.body, stored: len(f.stored)}
}

func (op *operation) answer(err error) {
	if err != nil {
		op.err = err
	}
	close(op.done)
}

// answered reports whether answer was called.
func (op *operation) answered() bool {
	select {
	case <-op.done:
		return true
	default:
		return false
	}
}

// answerAll answers each operation with err, or with its own error if err is nil.
func answerAll(ops []*operation, err error) {
	for _, op := range ops {
		op.answer(err)
	}
}
