package broker

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
