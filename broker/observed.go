package broker

import "strings"

// ObservedXR is the snapshot of a round: the facts that Next decides by, and
// the reasons that people see. The zero value is a resource of which nothing
// exists yet.
//
// A round reads the facts one after the other, so the order matters: the
// token's state, then NodeRegistered, then the substrate. A state in which no
// node can enrol is final (see TokenState), so "no node" read after it stays
// true. In the other order a node could enrol in between: the snapshot would
// say "no node, token consumed", and the broker would delete the substrate of a
// live node.
type ObservedXR struct {
	// NamespaceReady: the project's namespace takes new objects.
	NamespaceReady bool
	// Token is the state of the token that is bound to the resource.
	Token TokenState
	// NodeRegistered: a node that used the token is in the mesh.
	NodeRegistered bool
	// ProviderConfigExists: the ProviderConfig exists, being deleted or not.
	ProviderConfigExists bool
	// SecretExists: a Secret with a token exists, being deleted or not. It can
	// exist without a ProviderConfig, because the token is delivered first.
	SecretExists bool
	// XRExists: the XR exists, being deleted or not. The three fields below
	// count only if it does.
	XRExists bool
	// XRDeleting: the XR is being deleted.
	XRDeleting bool
	// XRReady: the XR reports that all its composed resources are ready.
	XRReady bool
	// XRFailed: the XR is in a condition that it cannot leave by itself.
	XRFailed bool
	// Overdue: the deadline has passed. See ProvisionedResource.Overdue.
	Overdue bool

	// Reasons say what holds the resource in its phase. Next ignores them.
	Reasons []Reason
}

// TokenState is the state of a bootstrap token. Consumed, expired and revoked
// are final: an issuer that reports one of them lets no node enrol with that
// token from then on, whatever any clock says.
type TokenState string

// The states of a token. Any other counts as issued: it might be used.
const (
	// TokenNone: the resource has no token yet.
	TokenNone TokenState = ""
	// TokenIssued: it can be used.
	TokenIssued TokenState = "issued"
	// TokenUndelivered: it could be used, but its secret was lost before
	// delivery and cannot be read again.
	TokenUndelivered TokenState = "undelivered"
	// TokenConsumed: a node has enrolled with it.
	TokenConsumed TokenState = "consumed"
	// TokenExpired: no node used it in time.
	TokenExpired TokenState = "expired"
	// TokenRevoked: it was revoked before a node used it.
	TokenRevoked TokenState = "revoked"
)

// usable reports whether a node might still enrol with the token.
func (s TokenState) usable() bool {
	switch s {
	case TokenNone, TokenConsumed, TokenExpired, TokenRevoked:
		return false
	}
	return true
}

// enrolled reports whether a node has used the token. A registered node proves
// it.
func (o ObservedXR) enrolled() bool { return o.Token == TokenConsumed || o.NodeRegistered }

// needsToken reports whether the resource has no token that a node could still
// use or has used. A spent token is useless to a new XR; but while the node
// that spent it is registered, the token is the handle on that node and is
// kept.
func (o ObservedXR) needsToken() bool {
	if o.NodeRegistered {
		return false
	}
	switch o.Token {
	case TokenNone, TokenExpired, TokenRevoked, TokenUndelivered:
		return true
	case TokenConsumed:
		return !o.XRExists
	}
	return false
}

// ObservedSubstrate is the answer of Substrate.Observe.
type ObservedSubstrate struct {
	ProviderConfigExists bool
	SecretExists         bool
	XRExists             bool
	XRDeleting           bool
	XRReady              bool
	XRFailed             bool
	// DeliveredToken is the token whose secret is where the machine looks for
	// it; empty means none.
	DeliveredToken BootstrapTokenID
	// Reasons: the conditions that the XR reports, and the finalizers of
	// objects that are being deleted.
	Reasons []Reason
}

// Reads are the answers of the ports in one round, in the order in which they
// must be read.
type Reads struct {
	Token          TokenState // TokenNone if no token is bound
	NodeRegistered bool       // false if no token is bound
	Namespace      NamespaceState
	Substrate      ObservedSubstrate
	Overdue        bool
	Reasons        []Reason // of the ports other than the substrate
}

// Fold makes one snapshot from the reads of a round.
func Fold(r ProvisionedResource, reads Reads) ObservedXR {
	token := reads.Token
	if token == TokenIssued && reads.Substrate.DeliveredToken != r.TokenID() {
		token = TokenUndelivered
	}
	reasons := make([]Reason, 0, len(reads.Reasons)+len(reads.Substrate.Reasons))
	reasons = append(append(reasons, reads.Reasons...), reads.Substrate.Reasons...)
	return ObservedXR{
		NamespaceReady:       reads.Namespace == NamespaceReady,
		Token:                token,
		NodeRegistered:       reads.NodeRegistered,
		ProviderConfigExists: reads.Substrate.ProviderConfigExists,
		SecretExists:         reads.Substrate.SecretExists,
		XRExists:             reads.Substrate.XRExists,
		XRDeleting:           reads.Substrate.XRDeleting,
		XRReady:              reads.Substrate.XRReady,
		XRFailed:             reads.Substrate.XRFailed,
		Overdue:              reads.Overdue,
		Reasons:              reasons,
	}
}

// Holder says what kind of thing holds a resource in its phase.
type Holder string

// The holders: a closed set.
const (
	HolderNamespace Holder = "namespace"
	HolderToken     Holder = "token"
	HolderPeer      Holder = "peer"
	HolderCondition Holder = "condition"
	HolderFinalizer Holder = "finalizer"
	HolderDeadline  Holder = "deadline"
)

// Reason is one thing that holds a resource in its phase.
type Reason struct {
	Holder  Holder
	Name    string // the finalizer, the peer, the type of the condition
	Object  string // the object it is on: "XNode/web-1a2b3c4d5e"; may be empty
	Message string // details; may be empty
}

func (r Reason) String() string {
	var b strings.Builder
	b.WriteString(string(r.Holder))
	if r.Name != "" {
		b.WriteString(" " + r.Name)
	}
	if r.Object != "" {
		b.WriteString(" on " + r.Object)
	}
	if r.Message != "" {
		b.WriteString(": " + r.Message)
	}
	return b.String()
}

// holders lists what can hold each phase. Ready and Deleted wait for nothing.
var holders = map[ProvisionedResourcePhase][]Holder{
	PhasePending:        {HolderNamespace, HolderToken, HolderPeer},
	PhaseProvisioning:   {HolderCondition, HolderFinalizer, HolderPeer},
	PhaseEnrolling:      {HolderToken},
	PhaseFailed:         {HolderCondition, HolderDeadline},
	PhaseDeregistering:  {HolderPeer, HolderToken},
	PhaseDeprovisioning: {HolderFinalizer, HolderCondition},
}

// Why says in one line what a resource in the phase waits for, or why it has
// failed: what the facts say, and the reasons that apply to that phase. It is
// empty when the resource waits for nothing.
func Why(observed ObservedXR, phase ProvisionedResourcePhase) string {
	text := held(observed, phase)
	if text == "" {
		return ""
	}
	var reasons []string
	for _, holder := range holders[phase] {
		for _, r := range observed.Reasons {
			if r.Holder == holder {
				reasons = append(reasons, r.String())
			}
		}
	}
	if len(reasons) > 0 {
		text += " (" + strings.Join(reasons, "; ") + ")"
	}
	return text
}

// held explains the phase from the facts alone.
func held(o ObservedXR, phase ProvisionedResourcePhase) string {
	switch phase {
	case PhasePending:
		return heldPending(o)
	case PhaseProvisioning:
		if o.XRExists && o.XRDeleting {
			return "another client deletes the XR; the broker creates it again when it is gone"
		}
		return "waiting for the XR to become ready"
	case PhaseEnrolling:
		return "waiting for the node to enrol"
	case PhaseFailed:
		return heldFailed(o)
	case PhaseDeregistering:
		if o.NodeRegistered {
			return "waiting for the node to leave the mesh"
		}
		return "waiting for the bootstrap token to be revoked"
	case PhaseDeprovisioning:
		if o.XRExists {
			return "waiting for the XR to be gone"
		}
		return "waiting for the ProviderConfig and the token's secret to be gone"
	}
	return ""
}

func heldPending(o ObservedXR) string {
	switch {
	case o.NodeRegistered:
		return "the XR is gone; waiting for its node to leave the mesh"
	case !o.NamespaceReady:
		return "waiting for the namespace to be ready"
	case o.needsToken():
		return "waiting for a bootstrap token"
	}
	return "waiting for the XR to be applied"
}

func heldFailed(o ObservedXR) string {
	switch {
	case o.XRExists && o.XRFailed:
		return "the XR has failed"
	case o.Overdue:
		return "the resource did not become ready in time"
	}
	return "the resource has failed"
}
