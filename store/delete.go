package store

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/internal/tracing"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// DeleteRequest asks to delete an object, by the rules of its kind.
type DeleteRequest struct {
	Key     object.Key
	Options metav1.DeleteOptions
	Rules   lifecycle.Rules
	DryRun  bool
	// Actor is the client or controller that deletes, for the archive. Cascade is
	// the cascade that the deletion joins; empty if it begins one of its own, whose
	// id is the object's uid.
	Actor, Cascade string
	// Requester is the client whose delete began the cascade; empty means the actor.
	Requester string
	// RequestID is the Audit-Id of that client's delete; empty means no request began the
	// cascade.
	RequestID string
	// Guarded: a client requested the delete, so the guard checks it. MaxCascade is
	// the guard's limit if the Namespace sets none.
	Guarded    bool
	MaxCascade int64
}

// DeleteResult is the object after the delete: marked for deletion, or its last
// state at the revision of its removal. The last state of a graceful kind has the marks
// of this deletion, which are in no stored body.
type DeleteResult struct {
	Object  object.Object
	Outcome lifecycle.Outcome
	Policy  metav1.DeletionPropagation // the effective policy; empty means Background
	Again   bool                       // the object was being deleted already
}

// Delete calls lifecycle.BeforeDelete inside the write transaction and applies its
// decision. Errors: NotFound, and those of BeforeDelete. The result of a dry run
// has the object's current revision.
func (s *Store) Delete(ctx context.Context, r DeleteRequest) (DeleteResult, error) {
	d, err := s.beginDelete(ctx, r)
	if err != nil {
		return DeleteResult{}, err
	}
	return d.wait(ctx, s.writer)
}

// DeleteAll is Delete for many objects, which share commits. An error of one does not stop
// the others: results and errors are those of the requests, in their order.
func (s *Store) DeleteAll(ctx context.Context, requests []DeleteRequest) ([]DeleteResult, []error) {
	begun := make([]*deleting, len(requests))
	results, errs := make([]DeleteResult, len(requests)), make([]error, len(requests))
	for i, r := range requests {
		begun[i], errs[i] = s.beginDelete(ctx, r)
	}
	for i, d := range begun {
		if errs[i] == nil {
			results[i], errs[i] = d.wait(ctx, s.writer)
		}
	}
	return results, errs
}

// deleting is a delete in the writer's queue.
type deleting struct {
	op     operation
	result DeleteResult // owned by the writer until the operation is answered
}

func (s *Store) beginDelete(ctx context.Context, r DeleteRequest) (*deleting, error) {
	if err := checkKey(r.Key); err != nil {
		return nil, err
	}
	d := &deleting{op: operation{key: r.Key}}
	trace := tracing.Traceparent(ctx)
	if r.Guarded {
		d.op.needs, d.op.parent, d.op.entersNamespaces = r.guardNeeds(), r.guardParent, r.entersNamespaces
	}
	d.op.decide = func(v *view) (effect, error) {
		f, decision, err := r.decide(v)
		if err != nil {
			return effect{}, err
		}
		f.trace = trace
		d.result.Policy, d.result.Again = decision.Policy, f.before.deleting
		d.result.Outcome = decision.Outcome
		d.result.Object = object.Object{Key: r.Key, UID: f.objectUID(), Revision: f.before.revision, Body: decision.Body}
		if decision.Answer != nil {
			d.result.Object.Body, err = object.WithMeta(decision.Body, *decision.Answer)
		}
		return f, err
	}
	return d, s.writer.enqueue(ctx, &d.op)
}

func (d *deleting) wait(ctx context.Context, w *writer) (DeleteResult, error) {
	if err := w.wait(ctx, &d.op); err != nil {
		return DeleteResult{}, err
	}
	if d.op.effect.Type != 0 {
		d.result.Object.Revision = d.op.effect.revision
	}
	return d.result, nil
}

func (r *DeleteRequest) decide(v *view) (effect, lifecycle.Decision, error) {
	before := v.objects[r.Key]
	if before == nil {
		return effect{}, lifecycle.Decision{}, notFound(r.Key)
	}
	m, err := object.ParseMeta(before.body)
	if err != nil {
		return effect{}, lifecycle.Decision{}, fmt.Errorf("delete %s: %w", r.Key, err)
	}
	deletion := lifecycle.Deletion{Body: before.body, Meta: m, Revision: before.revision, Options: r.Options, Rules: r.Rules, Now: v.now}
	deletion.MaxCascade, deletion.NamespaceLimits = r.guard(v, before)
	d, err := lifecycle.BeforeDelete(deletion)
	if err != nil {
		return effect{}, d, err
	}
	f := effect{key: r.Key, uid: before.uid, before: before, actor: r.Actor, cascade: r.Cascade, requester: r.Requester, request: r.RequestID}
	switch {
	case r.DryRun || d.Outcome == lifecycle.Unchanged:
	case d.Outcome == lifecycle.Remove:
		f.Type, f.body = Removed, before.body
	case d.Outcome == lifecycle.Mark:
		err = f.rewrite(d.Body, &d.Meta)
	default:
		err = fmt.Errorf("delete %s: %v is no outcome", r.Key, d.Outcome)
	}
	return f, d, err
}

// causes says who deletes the objects of a Tx, and in which cascade: see
// archive.go.
type causes struct {
	actor string
	cascade
	known map[string]cascade // by uid of objects that were looked up or that this Tx deletes
}

// cascade is the cascade that a deletion belongs to. Empty if there is none, or it is unknown.
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
