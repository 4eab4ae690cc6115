// Package v1alpha1 holds the messages between node and server, and the API type
// of a node, mesh.exeunt.dev/v1alpha1 MeshNode. It has plain values and paths
// only: no database, no HTTP.
package v1alpha1

import "time"

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

// Paths on the server. Refusals are a metav1.Status whose reason is one of the
// reasons below.
const (
	// Path is the root of all paths.
	Path = "/exeunt/mesh/"
	// NodePath is the root of the nodes' requests. The server authenticates
	// there by a bootstrap token, or by a node's own credential.
	NodePath = Path + "node/"

	EnrolPath     = NodePath + "enrol"     // POST EnrolRequest, EnrolAnswer
	HeartbeatPath = NodePath + "heartbeat" // POST, Heartbeat
	PeersPath     = NodePath + "peers"     // GET ?since=REVISION&wait=DURATION, Peers
	LeavePath     = NodePath + "leave"     // POST: request a drain of this node
	DrainedPath   = NodePath + "drained"   // POST: the drain is finished; remove this node

	TokensPath = Path + "tokens" // POST TokenRequest, Token; GET ?project=, TokenList; DELETE /ID, Token
)

// The reasons of a refusal, for programs.
const (
	ReasonUnknownToken   = "UnknownToken"   // unknown token or wrong secret: the answer does not say which
	ReasonTokenConsumed  = "TokenConsumed"  // a node has enrolled with it
	ReasonTokenExpired   = "TokenExpired"   // it was not used in time
	ReasonTokenRevoked   = "TokenRevoked"   // it was revoked
	ReasonWrongProject   = "WrongProject"   // it is for another project
	ReasonNonceReplayed  = "NonceReplayed"  // the nonce was used by another enrolment
	ReasonNameTaken      = "NameTaken"      // the project has a node of that name
	ReasonProjectGone    = "ProjectGone"    // the namespace is missing or terminating
	ReasonUnknownNode    = "UnknownNode"    // unknown node or wrong credential: it has left, or never enrolled
	ReasonNotDraining    = "NotDraining"    // no drain was requested
	ReasonNodeRegistered = "NodeRegistered" // a node is still registered
)

// EnrolRequest asks to admit a node. It is idempotent while the node is in the
// mesh: a node that lost the answer sends the same request again.
type EnrolRequest struct {
	// Token is the whole text of a bootstrap token.
	Token string `json:"token"`
	// Project, if given, must be the token's.
	Project string `json:"project,omitempty"`
	// Nonce is random, new for each enrolment.
	Nonce string `json:"nonce"`
	// Secret is the node's own secret from now on. The node makes and stores it
	// before it enrols, so that no crash can separate a node from its
	// credential.
	Secret string `json:"secret"`
	// Name is the node's name, a DNS label.
	Name string `json:"name"`
	// Address is where peers reach the node, HOST:PORT. Empty means not reachable.
	Address string `json:"address,omitempty"`
	// DrainTimeoutSeconds bounds the node's drain; 0 means the server's default.
	DrainTimeoutSeconds int64 `json:"drainTimeoutSeconds,omitempty"`
}

// EnrolAnswer identifies the node.
type EnrolAnswer struct {
	UID     string `json:"uid"`
	Project string `json:"project"`
	Name    string `json:"name"`
	// HeartbeatSeconds is the interval of heartbeats.
	HeartbeatSeconds int64 `json:"heartbeatSeconds"`
}

// CredentialPrefix begins a node's credential.
const CredentialPrefix = "exn_"

// Credential is the node's bearer token.
func Credential(uid, secret string) string { return CredentialPrefix + uid + "_" + secret }

// Self is the server's request to a node.
type Self struct {
	// Draining: finish all connections, then acknowledge.
	Draining bool `json:"draining"`
	// DrainSeconds is the time left for the drain.
	DrainSeconds int64 `json:"drainSeconds,omitempty"`
}

// Heartbeat answers a heartbeat.
type Heartbeat struct {
	Self             Self  `json:"self"`
	HeartbeatSeconds int64 `json:"heartbeatSeconds"`
}

// Peer is a node as its peers see it.
type Peer struct {
	UID     string `json:"uid"`
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
	// Phase Draining: finish existing connections and open no new ones.
	Phase Phase `json:"phase"`
}

// Peers are the other nodes of the project.
type Peers struct {
	// Revision is the since of the next request.
	Revision int64 `json:"revision"`
	// Changed is false when nothing changed during the wait: then there is no
	// list.
	Changed bool   `json:"changed"`
	Self    Self   `json:"self"`
	Peers   []Peer `json:"peers,omitempty"`
}

// TokenRequest asks for a bootstrap token.
type TokenRequest struct {
	Project string `json:"project"`
	// TTLSeconds is the lifetime of the token: 5 minutes to 24 hours.
	TTLSeconds int64 `json:"ttlSeconds"`
}

// Token is a bootstrap token in its API form.
type Token struct {
	ID      string `json:"id"`
	Project string `json:"project"`
	// Text is what a node enrols with. Only the answer to its creation has it.
	Text                string     `json:"text,omitempty"`
	State               string     `json:"state"`
	ProvisionedResource string     `json:"provisionedResource,omitempty"`
	CreatedAt           time.Time  `json:"createdAt"`
	CreatedBy           string     `json:"createdBy"`
	ExpiresAt           time.Time  `json:"expiresAt"`
	EndedAt             *time.Time `json:"endedAt,omitempty"`
	// Node is the name of the node that used it; LeftAt and LeftHow say when
	// and how that node left.
	Node    string     `json:"node,omitempty"`
	LeftAt  *time.Time `json:"leftAt,omitempty"`
	LeftHow string     `json:"leftHow,omitempty"`
}

// TokenList is the tokens of a project, the newest first.
type TokenList struct {
	Items []Token `json:"items"`
}
