package store

import (
	"context"
	"errors"
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

// environment is what a batch needs from its store. Tests replace the parts.
type environment struct {
	begin     func(context.Context) (transaction, error)
	committed func(events []*Event) // in revision order; before the operations are answered
	failed    func(error)           // after a commit whose outcome is not known
	now       func() time.Time
	log       *slog.Logger
	keys      *seal.Keys
	// limit sets v.limits, after the objects are loaded. Nil: no limits.
	limit func(ctx context.Context, tx transaction, v *view, ops []*operation) error
}

// transaction is a write transaction that holds the lock on the revision.
type transaction interface {
	// load fills in the objects that v names, and v.revision.
	load(ctx context.Context, v *view) error
	// parents sets v.parents: which of the uids have dependents.
	parents(ctx context.Context, v *view, uids []string) error
	// unlimited sets v.unlimited.
	unlimited(ctx context.Context, v *view) error
	// write writes the effects and sets the current revision to that of the last
	// effect. It may leave the statements to commit.
	write(ctx context.Context, effects []*effect) error
	// commit may return a sqldb.RefusedError: nothing was committed.
	commit(ctx context.Context) error
	rollback()
	// send runs other statements; limited sets the limits whose statements write adds.
	send(ctx context.Context, b *sqldb.Batch) error
	limited(l Limiter)
}

// state is an object as a transaction sees it. It is immutable.
type state struct {
	id       int64
	uid      string
	revision int64
	deleting bool
	own      string // its own cascade; empty: its uid
	body     []byte
	stored   int // bytes of the body in the database
}

// view is what the operations of a batch see.
type view struct {
	now      time.Time
	revision int64
	sealing  string                // name of the sealing key; loaded if the batch has a sealed kind
	objects  map[object.Key]*state // nil: the object does not exist
	parents  map[string]bool       // uids with dependents, among those passed to parents
	// unlimited: no namespace limits cascades. Read for cascades that may enter namespaces.
	unlimited bool

	compacted, quotas int64   // as revision: see the table
	limits            Limiter // nil: no quotas
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
	trace                              string // traceparent of the request or review; empty: none
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
	grows  bool // a create or an update: quotas may refuse it

	effect effect
	err    error
	done   chan struct{} // closed when effect and err are set
}

// runBatch runs operations and answers each.
func (e *environment) runBatch(ctx context.Context, ops []*operation) {
	live := ops[:0]
	for _, op := range ops {
		if err := op.ctx.Err(); err != nil {
			op.answer(err)
			continue
		}
		live = append(live, op)
	}
	if len(live) == 0 {
		return
	}
	err := e.transact(ctx, live)
	var refused *refusedError
	if !errors.As(err, &refused) || len(live) == 1 {
		answerAll(live, err)
		return
	}
	for i, op := range live {
		err := e.transact(ctx, live[i:i+1])
		if err != nil && !errors.As(err, &refused) {
			answerAll(live[i:], err) // the database does not work: do not try the others
			return
		}
		op.answer(err)
	}
}

// refusedError is an error of a statement: other statements may still work.
type refusedError struct{ cause error }

func (e *refusedError) Error() string { return e.cause.Error() }
func (e *refusedError) Unwrap() error { return e.cause }

// transact runs the operations in one transaction. It sets the error of each
// operation that is refused; it returns an error that fails them all.
func (e *environment) transact(ctx context.Context, ops []*operation) error {
	tx, err := e.begin(ctx)
	if err != nil {
		return fmt.Errorf("write objects: %w", err)
	}
	defer tx.rollback() // does nothing after a commit
	v := newView(ops, e.now())
	if err := tx.load(ctx, v); err != nil {
		return &refusedError{fmt.Errorf("load objects: %w", err)}
	}
	if uids := parentsOf(v, ops); len(uids) > 0 {
		if err := tx.parents(ctx, v, uids); err != nil {
			return &refusedError{fmt.Errorf("load dependents: %w", err)}
		}
	}
	if slices.ContainsFunc(ops, func(op *operation) bool { return op.entersNamespaces != nil && op.entersNamespaces(v) }) {
		if err := tx.unlimited(ctx, v); err != nil {
			return &refusedError{fmt.Errorf("load limits of cascades: %w", err)}
		}
	}
	if e.limit != nil {
		if err := e.limit(ctx, tx, v, ops); err != nil {
			return &refusedError{fmt.Errorf("read quotas: %w", err)}
		}
	}
	effects := e.decideAll(v, ops)
	if len(effects) == 0 {
		return nil
	}
	if apart(v, ops, effects) {
		group(v.revision, effects)
	}
	if err := tx.write(ctx, effects); err != nil {
		return &refusedError{fmt.Errorf("write objects: %w", err)}
	}
	if err := tx.commit(ctx); err != nil {
		if refused := new(sqldb.RefusedError); errors.As(err, &refused) {
			return &refusedError{fmt.Errorf("write objects: %w", err)}
		}
		e.failed(err)
		return fmt.Errorf("write objects: %w", &unknownOutcome{err})
	}
	e.committed(newEvents(effects))
	return nil
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
	v := &view{now: now, objects: make(map[object.Key]*state, len(ops)+1)}
	for _, op := range ops {
		v.objects[op.key] = nil
		for _, key := range op.needs {
			v.objects[key] = nil
		}
	}
	return v
}

// decideAll decides the operations in order and returns the effects to write.
func (e *environment) decideAll(v *view, ops []*operation) []*effect {
	effects := make([]*effect, 0, len(ops))
	next := v.revision + 1
	for _, op := range ops {
		op.effect, op.err = e.decideOne(v, op)
		if op.err != nil || op.effect.Type == 0 {
			continue
		}
		if op.err = op.effect.seal(e.keys, v.sealing); op.err != nil {
			continue
		}
		op.effect.accept(next, v)
		next++
		effects = append(effects, &op.effect)
	}
	return effects
}

// apart says that no operation has decided by the effect of another.
func apart(v *view, ops []*operation, effects []*effect) bool {
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

// group orders effects by type, so that more of them are written as sets. Their operations
// came at the same time and are apart, so every order is right.
func group(revision int64, effects []*effect) {
	slices.SortStableFunc(effects, func(a, b *effect) int { return int(a.Type) - int(b.Type) })
	for i, f := range effects {
		f.revision = revision + int64(i) + 1
		if f.before == nil {
			f.id = f.revision
		}
	}
}

func (e *environment) decideOne(v *view, op *operation) (_ effect, err error) {
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("operation panicked", "object", op.key.String(), "panic", p, "stack", string(debug.Stack()))
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
