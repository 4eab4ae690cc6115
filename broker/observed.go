package broker

// ObservedXR is what a round has seen: the facts that Next decides by, and the
// reasons that a person is told. The zero value is a resource of which nothing
// exists yet.
//
// The facts are not read at one moment, so the order of reading matters, and it
// is: the token's state, then NodeRegistered, then the substrate. A state that
// can no longer enrol a node is final (see TokenState), so "no node" read after
// it stays true. Read the other way round, a node could enrol in between: the
// snapshot would say "no node, token consumed", and the substrate of a live node
// would be deleted.
type ObservedXR struct {
	// NamespaceReady: the project's namespace takes new objects.
	NamespaceReady bool
	// Token is the state of the token that is bound to the resource.
	Token TokenState
	// NodeRegistered: a node that used the token is in the mesh.
	NodeRegistered bool
	// ProviderConfigExists: the ProviderConfig is there, being deleted or not.
	ProviderConfigExists bool
	// SecretExists: an object that carries a token's secret is there, being
	// deleted or not. It can be there without a ProviderConfig, since the token
	// is delivered first.
	SecretExists bool
	// XRExists: the XR is there, being deleted or not. The three below count
	// only with it.
	XRExists bool
	// XRDeleting: the XR is being deleted.
	XRDeleting bool
	// XRReady: the XR reports that all it is composed of is ready.
	XRReady bool
	// XRFailed: the XR is in a condition that it will not leave by itself.
	XRFailed bool
	// Overdue: the time to become Ready is over. See ProvisionedResource.Overdue.
	Overdue bool

	// Reasons say who or what holds the resource where it is. Next ignores them.
	Reasons []Reason
}

// TokenState is the state of a bootstrap token. Consumed, expired and revoked
// are final: whoever reports one of them lets no node enrol by that token from
// then on, whatever any clock says.
type TokenState string

// The states of a token. Any other counts as issued: it might be used.
const (
	// TokenNone: the resource has no token yet.
	TokenNone TokenState = ""
	// TokenIssued: it can be used.
	TokenIssued TokenState = "issued"
	// TokenUndelivered: it could be used, but its secret was lost before it was
	// delivered. Nobody has it, and nobody can read it again.
	TokenUndelivered TokenState = "undelivered"
	// TokenConsumed: a node has enrolled by it.
	TokenConsumed TokenState = "consumed"
	// TokenExpired: nobody used it in time.
	TokenExpired TokenState = "expired"
	// TokenRevoked: it was made worthless before it was used.
	TokenRevoked TokenState = "revoked"
)

// usable says whether a node might still enrol by the token.
func (s TokenState) usable() bool {
	switch s {
	case TokenNone, TokenConsumed, TokenExpired, TokenRevoked:
		return false
	}
	return true
}

// enrolled says whether a node has used the token. A registered node proves it.
func (o ObservedXR) enrolled() bool { return o.Token == TokenConsumed || o.NodeRegistered }

// needsToken says whether the resource has no token that a node could still use
// or has used. A spent token is worth nothing to a new XR; but while the node
// that spent it is registered, the token is the handle on it and is kept.
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

// ObservedSubstrate is what Substrate.Observe has seen.
type ObservedSubstrate struct {
	ProviderConfigExists bool
	SecretExists         bool
	XRExists             bool
	XRDeleting           bool
	XRReady              bool
	XRFailed             bool
	// DeliveredToken is the token whose secret lies where the machine will look
	// for it; empty: none.
	DeliveredToken BootstrapTokenID
	// Reasons: the conditions that the XR reports, and the finalizers that hold
	// what is being deleted.
	Reasons []Reason
}

// Reads are the answers of the ports in one round, in the order in which they
// have to be asked.
type Reads struct {
	Token          TokenState // TokenNone if no token is bound
	NodeRegistered bool       // false if no token is bound
	Namespace      NamespaceState
	Substrate      ObservedSubstrate
	Overdue        bool
	Reasons        []Reason // of the ports other than the substrate
}

// Fold makes one snapshot of what was read about a resource.
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
