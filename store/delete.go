package store

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// DeleteRequest asks for an object to leave, by the rules of its kind.
type DeleteRequest struct {
	Key     object.Key
	Options metav1.DeleteOptions
	Rules   lifecycle.Rules
	DryRun  bool
	// Actor is who asks, for the archive. Cascade joins the deletion to others;
	// empty: it begins one of its own, which is named by the object's uid.
	Actor, Cascade string
	// Requester is the client whose delete began the cascade that the deletion
	// joins; empty: the actor itself.
	Requester string
	// Guarded: a person asks, so the guard has a say. MaxCascade is its limit
	// where the Namespace has none of its own.
	Guarded    bool
	MaxCascade int64
}

// DeleteResult is what became of the object: its state after marking, or its
// last state at the revision of its removal.
type DeleteResult struct {
	Object  object.Object
	Outcome lifecycle.Outcome
}

// Delete asks lifecycle.BeforeDelete inside the write transaction and does what
// it says. Errors: NotFound, and those of BeforeDelete. In a dry run the
// result has the revision the object is at.
func (s *Store) Delete(ctx context.Context, r DeleteRequest) (DeleteResult, error) {
	if err := checkKey(r.Key); err != nil {
		return DeleteResult{}, err
	}
	var result DeleteResult
	op := &operation{key: r.Key}
	if r.Guarded {
		op.needs, op.parent = r.guardNeeds(), r.guardParent
	}
	op.decide = func(v *view) (effect, error) {
		f, decision, err := r.decide(v)
		if err != nil {
			return effect{}, err
		}
		result.Outcome = decision.Outcome
		result.Object = object.Object{Key: r.Key, UID: f.objectUID(), Revision: f.before.revision, Body: decision.Body}
		return f, nil
	}
	if err := s.writer.submit(ctx, op); err != nil {
		return DeleteResult{}, err
	}
	if op.effect.Type != 0 {
		result.Object.Revision = op.effect.revision
	}
	return result, nil
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
	d, err := lifecycle.BeforeDelete(lifecycle.Deletion{
		Body: before.body, Meta: m, Revision: before.revision,
		Options: r.Options, Rules: r.Rules, Now: v.now, MaxCascade: r.limit(v, before),
	})
	if err != nil {
		return effect{}, d, err
	}
	f := effect{key: r.Key, uid: before.uid, before: before, actor: r.Actor, cascade: r.Cascade, requester: r.Requester}
	if d.Outcome != lifecycle.Mark {
		d.Body = before.body
	}
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
