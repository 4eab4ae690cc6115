package v1alpha1

import "time"

// Where the server answers. Refusals are a metav1.Status whose reason is one of
// the reasons below.
const (
	// Path is the root of all of it.
	Path = "/exeunt/mesh/"
	// NodePath is the root of what nodes call. The server finds out by itself who
	// calls there: by a bootstrap token, or by a node's own credential.
	NodePath = Path + "node/"

	EnrolPath     = NodePath + "enrol"     // POST EnrolRequest, EnrolAnswer
	HeartbeatPath = NodePath + "heartbeat" // POST, Heartbeat
	PeersPath     = NodePath + "peers"     // GET ?since=REVISION&wait=DURATION, Peers
	LeavePath     = NodePath + "leave"     // POST: drain me
	DrainedPath   = NodePath + "drained"   // POST: I have finished; forget me

	TokensPath = Path + "tokens" // POST TokenRequest, Token; GET ?project=, TokenList; DELETE /ID, Token
)

// The reasons of a refusal, for programs.
const (
	ReasonUnknownToken   = "UnknownToken"   // no such token, or not its secret: which, is not said
	ReasonTokenConsumed  = "TokenConsumed"  // a node has enrolled by it
	ReasonTokenExpired   = "TokenExpired"   // it was not used in time
	ReasonTokenRevoked   = "TokenRevoked"   // it was made worthless
	ReasonWrongProject   = "WrongProject"   // it is for another project
	ReasonNonceReplayed  = "NonceReplayed"  // the nonce was used by another enrolment
	ReasonNameTaken      = "NameTaken"      // the project has a node of that name
	ReasonProjectGone    = "ProjectGone"    // the namespace is missing or terminating
	ReasonUnknownNode    = "UnknownNode"    // no such node, or not its credential: it has left, or never was
	ReasonNotDraining    = "NotDraining"    // nobody asked the node to leave
	ReasonNodeRegistered = "NodeRegistered" // a node still holds what was asked for
)

// EnrolRequest asks to let a node in. Sent again word for word, it gets the
// same answer for as long as the node is in the mesh: an answer that was lost on
// the way costs nothing.
type EnrolRequest struct {
	// Token is the whole text of a bootstrap token.
	Token string `json:"token"`
	// Project, if given, must be the token's.
	Project string `json:"project,omitempty"`
	// Nonce is made at random for each enrolment, and never used for a second.
	Nonce string `json:"nonce"`
	// Secret is the node's own secret from now on. The node makes it, and keeps
	// it, before it asks: so no crash can separate a node from its credential.
	Secret string `json:"secret"`
	// Name is the node's name, a DNS label.
	Name string `json:"name"`
	// Address is where peers reach the node, HOST:PORT. Empty: nowhere.
	Address string `json:"address,omitempty"`
	// DrainTimeoutSeconds is how long the node may take to drain; 0: the
	// server's default.
	DrainTimeoutSeconds int64 `json:"drainTimeoutSeconds,omitempty"`
}

// EnrolAnswer says who the node is.
type EnrolAnswer struct {
	UID     string `json:"uid"`
	Project string `json:"project"`
	Name    string `json:"name"`
	// HeartbeatSeconds is how often the node should be heard of.
	HeartbeatSeconds int64 `json:"heartbeatSeconds"`
}

// CredentialPrefix begins a node's credential.
const CredentialPrefix = "exn_"

// Credential is what a node shows as its bearer token.
func Credential(uid, secret string) string { return CredentialPrefix + uid + "_" + secret }

// Self is what the server wants of a node.
type Self struct {
	// Draining: finish your connections, then say so.
	Draining bool `json:"draining"`
	// DrainSeconds is how long there is left for it.
	DrainSeconds int64 `json:"drainSeconds,omitempty"`
}

// Heartbeat answers a heartbeat.
type Heartbeat struct {
	Self             Self  `json:"self"`
	HeartbeatSeconds int64 `json:"heartbeatSeconds"`
}

// Peer is a node as the others see it.
type Peer struct {
	UID     string `json:"uid"`
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
	// Phase Draining: finish what you have with it and begin nothing new.
	Phase Phase `json:"phase"`
}

// Peers are the others in the project.
type Peers struct {
	// Revision is to be asked for next, as since.
	Revision int64 `json:"revision"`
	// Changed is false when nothing happened while the server waited: then there
	// is no list.
	Changed bool   `json:"changed"`
	Self    Self   `json:"self"`
	Peers   []Peer `json:"peers,omitempty"`
}

// TokenRequest asks for a bootstrap token.
type TokenRequest struct {
	Project string `json:"project"`
	// TTLSeconds is how long the token can be used: 5 minutes to 24 hours.
	TTLSeconds int64 `json:"ttlSeconds"`
}

// Token is a bootstrap token as people see it.
type Token struct {
	ID      string `json:"id"`
	Project string `json:"project"`
	// Text is what a node enrols with. It is shown once, to who made the token.
	Text                string     `json:"text,omitempty"`
	State               string     `json:"state"`
	ProvisionedResource string     `json:"provisionedResource,omitempty"`
	CreatedAt           time.Time  `json:"createdAt"`
	CreatedBy           string     `json:"createdBy"`
	ExpiresAt           time.Time  `json:"expiresAt"`
	EndedAt             *time.Time `json:"endedAt,omitempty"`
	// Node is the name of the node that came by it; LeftAt and LeftHow say how
	// that one left.
	Node    string     `json:"node,omitempty"`
	LeftAt  *time.Time `json:"leftAt,omitempty"`
	LeftHow string     `json:"leftHow,omitempty"`
}

// TokenList is the tokens of a project, the newest first.
type TokenList struct {
	Items []Token `json:"items"`
}
