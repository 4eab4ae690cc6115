// Package v1alpha1 holds the messages between node and server, and the API type
// of a node, mesh.exeunt.dev/v1alpha1 MeshNode. It has plain values and paths
// only: no database, no HTTP.
package v1alpha1

//go:generate go run k8s.io/code-generator/cmd/deepcopy-gen@v0.37.2 --output-file zz_generated.deepcopy.go .

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group of MeshNode.
var GroupVersion = schema.GroupVersion{Group: "mesh.exeunt.dev", Version: "v1alpha1"}

// Finalizer is on every node until the node has left, so that the deletion of
// the object, or of its namespace, drains the node.
const Finalizer = "mesh.exeunt.dev/drain"

// MeshNode is an enrolled node, and the peer that other nodes see. Its
// namespace is its project. Enrolment creates it; deleting it drains the node.
//
// +k8s:deepcopy-gen=true
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type MeshNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   MeshNodeSpec   `json:"spec"`
	Status MeshNodeStatus `json:"status"`
}

// MeshNodeSpec is what was agreed at enrolment. It never changes.
//
// +k8s:deepcopy-gen=true
type MeshNodeSpec struct {
	// TokenID is the bootstrap token that let the node in.
	TokenID string `json:"tokenID"`
	// ProvisionedResource is the resource that the token was minted for, if
	// any.
	ProvisionedResource string `json:"provisionedResource,omitempty"`
	// Address is where peers reach the node, HOST:PORT. Empty means not reachable.
	Address string `json:"address,omitempty"`
	// DrainTimeoutSeconds bounds the node's drain; afterwards it is removed
	// without acknowledgement.
	DrainTimeoutSeconds int64 `json:"drainTimeoutSeconds"`
}

// Phase is the state of a node.
type Phase string

// The phases.
const (
	PhaseReady       Phase = "Ready"
	PhaseUnreachable Phase = "Unreachable" // no heartbeat in time
	PhaseDraining    Phase = "Draining"    // asked to finish and leave
	PhaseLeft        Phase = "Left"        // out of the mesh; another client's finalizer keeps the object
)

// MeshNodeStatus is the mesh's view of a node. It is written on changes, not at
// every heartbeat.
//
// +k8s:deepcopy-gen=true
type MeshNodeStatus struct {
	Phase Phase `json:"phase"`
	// LastSeen is the newest heartbeat when this status was written.
	LastSeen metav1.Time `json:"lastSeen"`
	// DrainDeadline is when a draining node is removed without acknowledgement.
	DrainDeadline *metav1.Time       `json:"drainDeadline,omitempty"`
	Conditions    []metav1.Condition `json:"conditions,omitempty"`
}
