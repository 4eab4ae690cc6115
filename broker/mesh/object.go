package mesh

import (
	"context"
	_ "embed" // meshnode.yaml
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// storage is the storage name of MeshNodes. The triggers name it too.
const storage = "meshnodes.mesh.exeunt.dev"

var nodeKind = v1alpha1.GroupVersion.WithKind("MeshNode")

// The reasons of conditions.
const (
	reasonHeartbeat   = "Heartbeat"
	reasonNoHeartbeat = "NoHeartbeat"
	reasonDraining    = "Draining"
	reasonLeft        = "Left"
)

// createObject adds the object of a new node.
func createObject(tx *store.Tx, n node, spec v1alpha1.MeshNodeSpec) error {
	at := when(n.enrolledAt)
	o := &v1alpha1.MeshNode{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.name, Namespace: n.project, UID: types.UID(n.uid), Generation: 1,
			CreationTimestamp: metav1.NewTime(at.Truncate(time.Second)), Finalizers: []string{v1alpha1.Finalizer},
		},
		Spec: spec,
	}
	setReadyStatus(o, n, at)
	body, err := object.Encode(o)
	if err != nil {
		return err
	}
	tx.Create(object.Key{Kind: storage, Namespace: n.project, Name: n.name}, &o.ObjectMeta, body)
	return nil
}

// decode decodes the object of a node.
func (o *stored) decode() (*v1alpha1.MeshNode, error) { return decodeNode(o.Body) }

func decodeNode(body []byte) (*v1alpha1.MeshNode, error) {
	out := &v1alpha1.MeshNode{}
	return out, object.DecodeInto(body, "", nodeKind, out)
}

// deadline is when a draining node is removed without acknowledgement.
func (o *stored) deadline(spec v1alpha1.MeshNodeSpec) time.Time {
	return time.Unix(o.Deletion, 0).Add(time.Duration(spec.DrainTimeoutSeconds) * time.Second).UTC()
}

// setReadyStatus writes whether the node sends heartbeats.
func setReadyStatus(o *v1alpha1.MeshNode, n node, now time.Time) {
	o.Status.Phase, o.Status.LastSeen = v1alpha1.PhaseReady, metav1.NewTime(n.seenAt().Truncate(time.Second))
	c := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: reasonHeartbeat, Message: "the node sends heartbeats"}
	if !n.ready {
		o.Status.Phase = v1alpha1.PhaseUnreachable
		c.Status, c.Reason = metav1.ConditionFalse, reasonNoHeartbeat
		c.Message = "no heartbeat since " + n.seenAt().Format(time.RFC3339)
	}
	setCondition(o, c, now)
}

// setDrainingStatus writes what the drain waits for, and its deadline.
func setDrainingStatus(o *v1alpha1.MeshNode, n node, deadline, now time.Time) {
	o.Status.Phase, o.Status.LastSeen = v1alpha1.PhaseDraining, metav1.NewTime(n.seenAt().Truncate(time.Second))
	until := metav1.NewTime(deadline)
	o.Status.DrainDeadline = &until
	setCondition(o, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionFalse, Reason: reasonDraining,
		Message: "asked to finish its connections and leave; removed without acknowledgement at " + deadline.Format(time.RFC3339),
	}, now)
}

// setLeftStatus is for an object that another client's finalizer keeps.
func setLeftStatus(o *v1alpha1.MeshNode, how string, now time.Time) {
	o.Status.Phase, o.Status.DrainDeadline = v1alpha1.PhaseLeft, nil
	setCondition(o, metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: reasonLeft, Message: how}, now)
}

func setCondition(o *v1alpha1.MeshNode, c metav1.Condition, now time.Time) {
	c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	meta.SetStatusCondition(&o.Status.Conditions, c)
}

// rewrite stores a changed object; an unchanged one is not written.
func rewrite(tx *store.Tx, old *stored, o *v1alpha1.MeshNode) (changed bool, err error) {
	body, err := object.Encode(o)
	if err != nil || string(body) == string(old.Body) {
		return false, err
	}
	if _, err := tx.Rewrite(old.Stored, &o.ObjectMeta, body); err != nil {
		return false, fmt.Errorf("write status of %s: %w", old.Key, err)
	}
	return true, nil
}

// release removes our finalizer from an object, and the object if that was the
// last one.
func release(tx *store.Tx, old *stored, how string, now time.Time) error {
	o, err := old.decode()
	if err != nil {
		return err
	}
	o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool { return f == v1alpha1.Finalizer })
	if lifecycle.RemoveNow(old.Body, o.ObjectMeta, lifecycle.Rules{}) {
		tx.Remove(old.Stored)
		return nil
	}
	setLeftStatus(o, how, now)
	_, err = rewrite(tx, old, o)
	return err
}

//go:embed meshnode.yaml
var definition []byte

// newKind makes the built-in kind MeshNode from a definition, like custom
// kinds. Clients read it, watch it, label it and delete it; only enrolment
// creates one, and only the mesh writes spec and status.
func newKind() (*kind.Kind, error) {
	k, err := custom.BuiltIn(definition)
	if err != nil {
		return nil, err
	}
	k.Refuse = "a MeshNode comes about when a node enrols: exeunt node join"
	for _, v := range k.Versions {
		v.Strategy = readOnly{v.Strategy}
	}
	return k, nil
}

// readOnly lets clients change metadata only.
type readOnly struct{ lifecycle.Strategy }

// Update refuses a change of spec or status and names the field.
func (s readOnly) Update(ctx context.Context, obj, old runtime.Object) ([]string, field.ErrorList) {
	warnings, errs := s.Strategy.Update(ctx, obj, old)
	a, b := obj.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
	for _, name := range []string{"spec", "status"} {
		if !equality.Semantic.DeepEqual(a.Object[name], b.Object[name]) {
			errs = append(errs, field.Forbidden(field.NewPath(name), "is the mesh's to write: delete the object to drain the node"))
		}
	}
	return warnings, errs
}
