package archive

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/event"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// callBack decides about the objects of a target that are being deleted. The deletion of an
// object that the guard holds is called off: the object becomes ACTIVE again, with the same uid, and its
// cascade has not begun. Others cannot be stopped, by the rules of the API: they
// are awaited.
func (r *restoration) callBack(ctx context.Context, deleting []store.Head) (results []v1.RestoreResult, err error) {
	for _, h := range deleting {
		gvk := r.names.gvk(h.Kind)
		result := v1.RestoreResult{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: h.Namespace, Name: h.Name, UID: h.UID, NewUID: h.UID,
		}
		off := false
		if h.Held() {
			if off, err = r.callOff(ctx, h); err != nil {
				return nil, err
			}
		}
		if result.Outcome = v1.CalledOff; !off {
			r.deleting[h.Key] = true
			result.Outcome, result.Reason = v1.Awaited, "it is being deleted: it is restored when it is gone"
		}
		results = append(results, result)
	}
	return results, nil
}

// callOff makes a held object ACTIVE again, or reports that it would. The transaction checks that the guard
// still holds the object: the collector may have let a confirmed deletion pass before.
func (r *restoration) callOff(ctx context.Context, h store.Head) (off bool, err error) {
	err = r.store.Transact(ctx, func(tx *store.Tx) error {
		o, err := tx.GetByUID(ctx, h.UID)
		if off = err == nil && o != nil && o.Held(); !off || r.spec.DryRun {
			return err
		}
		return r.activate(ctx, tx, o, r.client.Name)
	})
	return off && err == nil, err
}

// activate makes a held object ACTIVE again, and records an Event.
func (a *Archive) activate(ctx context.Context, tx *store.Tx, o *store.Stored, client string) error {
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		return err
	}
	var rules lifecycle.Rules
	if k, ok := a.kinds.Snapshot().Stored(o.Kind); ok {
		rules = k.Rules
	}
	m, body, err := lifecycle.CallOff(o.Body, m, rules)
	if err != nil {
		return err
	}
	next, err := tx.Rewrite(o, &m, body)
	if err != nil {
		return err
	}
	if err := tx.Flush(); err != nil {
		return err
	}
	return event.Recorder{Kinds: a.kinds}.Record(ctx, tx, tx.Now, event.Event{
		About: next.Object, Type: corev1.EventTypeNormal, Reason: "DeletionCalledOff", Source: "exeunt", Topic: o.ResourceVersion(),
		Message: "the deletion, which waited to be confirmed, was called off by " + client, Elsewhere: true,
	})
}
