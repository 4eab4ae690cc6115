package archive

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind/event"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// callBack decides about the objects of a target that are being deleted. The deletion of an
// object that the guard holds is called off: the object becomes ACTIVE again, with the same uid, and its
// cascade has not begun. Others cannot be stopped, by the rules of the API: they
// are awaited. While there are such, held ones are awaited too: a namespace that is being deleted, or an owner in
// foreground deletion, would have them deleted again.
func (r *restoration) callBack(ctx context.Context, deleting []store.Head) (results []v1.RestoreResult, err error) {
	for _, h := range deleting {
		gvk := r.names.gvk(h.Kind)
		result := v1.RestoreResult{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: h.Namespace, Name: h.Name, UID: h.UID, NewUID: h.UID,
		}
		result.Outcome, result.Reason = v1.Awaited, "it is being deleted: it is restored when it is gone"
		switch {
		case !h.Held():
		case slices.ContainsFunc(deleting, func(h store.Head) bool { return !h.Held() }):
			result.Reason = "its deletion waits to be confirmed, and other objects of the cascade may wait for it: it is called off when those are gone, or restored when it is gone"
		default:
			off, err := r.callOff(ctx, h)
			if err != nil {
				return nil, err
			}
			if off {
				result.Outcome, result.Reason = v1.CalledOff, ""
				err = r.relinkBack(ctx, h.UID)
			}
			if err != nil {
				return nil, err
			}
		}
		results = append(results, result)
	}
	return results, nil
}

// relinkBack gives an object the references back that it lost before its own deletion was asked for: restores
// of its owners did not touch it while it was being deleted.
func (r *restoration) relinkBack(ctx context.Context, uid types.UID) error {
	dropped, err := r.store.Reader().Dropped(ctx, uid)
	if r.spec.DryRun {
		return err
	}
	for _, d := range dropped[uid] {
		if err = errors.Join(err, r.relinkRest(ctx, d.Owner, &v1.RestoreResult{})); err != nil {
			return err
		}
	}
	return err
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
	var before []byte
	err = tx.AskedOf(ctx, []types.UID{o.UID}, func(o object.Object) { before = o.Body })
	if err != nil {
		return err
	}
	asked := m
	if before != nil { // nil: an earlier version did not keep it
		if asked, err = object.ParseMeta(before); err != nil {
			return err
		}
	} else {
		asked.Finalizers, asked.Annotations = nil, nil
	}
	m, body, err := lifecycle.CallOff(o.Body, m, asked, rules)
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
