package archive

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/event"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// callOff is Restore for an object whose deletion the guard holds: the object
// still exists and becomes ACTIVE again, with the same uid, and its cascade has
// not begun. done says that the spec names such an object.
//
// The transaction checks that the guard still holds the object. If the collector
// has let a confirmed deletion pass before, callOff does nothing.
func (a *Archive) callOff(ctx context.Context, spec v1.RestoreSpec, client kind.Client) (status v1.RestoreStatus, done bool, err error) {
	names, err := a.names(ctx)
	if err != nil {
		return status, false, err
	}
	uid, err := a.held(ctx, client, names, spec)
	if err != nil || uid == "" {
		return status, false, err
	}
	err = a.store.Transact(ctx, func(tx *store.Tx) error {
		o, err := tx.GetByUID(ctx, uid)
		if err != nil || o == nil || !o.Held() {
			return err // the guard no longer holds it
		}
		if err := client.May("create", o.Key); err != nil {
			return err
		}
		gvk := names.gvk(o.Kind)
		status = v1.RestoreStatus{Complete: true, CalledOff: 1, Results: []v1.RestoreResult{{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: o.Namespace, Name: o.Name,
			UID: o.UID, NewUID: o.UID, Outcome: v1.CalledOff,
		}}}
		done = true
		if spec.DryRun {
			return nil
		}
		return a.activate(ctx, tx, o, client.Name)
	})
	if err != nil {
		return v1.RestoreStatus{}, false, fmt.Errorf("call off: %w", err)
	}
	return status, done, nil
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

// held finds the object that a spec names, if the guard holds it and the client may get it.
func (a *Archive) held(ctx context.Context, client kind.Client, n *names, spec v1.RestoreSpec) (uid types.UID, err error) {
	reader := a.store.Reader()
	var h store.Head
	switch {
	case spec.UID != "" && spec.Cascade == "" && spec.Object == nil:
		h, _, err = reader.HeadByUID(ctx, spec.UID)
	case spec.Cascade != "" && spec.UID == "" && spec.Object == nil:
		h, _, err = reader.HeadByUID(ctx, types.UID(spec.Cascade)) // the id is the uid of the root
	case spec.Object != nil && spec.UID == "" && spec.Cascade == "":
		storage, unknown := a.storageOf(ctx, client, n, *spec.Object)
		if unknown != nil {
			return "", nil // Restore reports the error
		}
		namespace := spec.Object.Namespace
		if n.clusterScoped(storage) {
			namespace = "" // clients often send a namespace for cluster-scoped kinds too
		}
		h, _, err = reader.Head(ctx, object.Key{Kind: storage, Namespace: namespace, Name: spec.Object.Name})
	default:
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for a deletion to call off: %w", err)
	}
	if !h.Held() || client.May("get", h.Key) != nil {
		return "", nil
	}
	return h.UID, nil
}
