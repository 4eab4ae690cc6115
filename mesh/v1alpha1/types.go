// Package v1alpha1 is what a node and the server say to each other, and the API
// type that a node is shown as, mesh.exeunt.dev/v1alpha1 MeshNode. It is plain
// values: it knows no database and no HTTP but the paths.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is where MeshNode is.
var GroupVersion = schema.GroupVersion{Group: "mesh.exeunt.dev", Version: "v1alpha1"}

// Finalizer is held by the mesh on every node until the node has left: so
// whoever deletes the object, or its namespace, drains the node.
const Finalizer = "mesh.exeunt.dev/drain"

// MeshNode is a node that has enrolled, and the peer that the others see. It is
// in the namespace that is its project. Enrolment makes it; deleting it drains
// the node.
type MeshNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   MeshNodeSpec   `json:"spec"`
	Status MeshNodeStatus `json:"status"`
}

// MeshNodeSpec is what was agreed at enrolment. It never changes.
type MeshNodeSpec struct {
	// TokenID is the bootstrap token that let the node in.
	TokenID string `json:"tokenID"`
	// ProvisionedResource is what that token was made for, if not for a person.
	ProvisionedResource string `json:"provisionedResource,omitempty"`
	// Address is where peers reach the node, HOST:PORT. Empty: nowhere.
	Address string `json:"address,omitempty"`
	// DrainTimeoutSeconds is how long the node may take to finish its
	// connections before it is removed without its word.
	DrainTimeoutSeconds int64 `json:"drainTimeoutSeconds"`
}

// Phase is how a node is.
type Phase string

// The phases.
const (
	PhaseReady       Phase = "Ready"
	PhaseUnreachable Phase = "Unreachable" // no heartbeat for a while
	PhaseDraining    Phase = "Draining"    // asked to finish and leave
	PhaseLeft        Phase = "Left"        // out of the mesh; the object waits for somebody else's finalizer
)

// MeshNodeStatus is what the mesh knows about a node. It is written when
// something changes, not at every heartbeat.
type MeshNodeStatus struct {
	Phase Phase `json:"phase"`
	// LastSeen is the newest heartbeat when this status was written.
	LastSeen metav1.Time `json:"lastSeen"`
	// DrainDeadline is when a draining node is removed without its word.
	DrainDeadline *metav1.Time       `json:"drainDeadline,omitempty"`
	Conditions    []metav1.Condition `json:"conditions,omitempty"`
}

// DeepCopyObject makes an independent copy.
func (n *MeshNode) DeepCopyObject() runtime.Object {
	if n == nil {
		return nil
	}
	out := *n
	out.ObjectMeta = *n.ObjectMeta.DeepCopy()
	out.Status.LastSeen = *n.Status.LastSeen.DeepCopy()
	out.Status.DrainDeadline = n.Status.DrainDeadline.DeepCopy()
	out.Status.Conditions = make([]metav1.Condition, len(n.Status.Conditions))
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].DeepCopyInto(&out.Status.Conditions[i])
	}
	return &out
}
