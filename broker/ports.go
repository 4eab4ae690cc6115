package broker

import (
	"context"
	"log/slog"
	"time"
)

// All ports: methods are safe for concurrent use; an error that is none of the
// domain's own means "not known": nothing may be concluded from it, and the call
// may be repeated. Every write may be repeated with the same arguments.

// Repository stores resources. What a method has written is durable when it
// returns nil, and not at all there when it returns one of the domain's errors.
// A read sees every write that returned before it began.
type Repository interface {
	// Create stores a new resource and puts its RequestedEvent into the outbox,
	// in one transaction. Errors: ErrProvisionedResourceExists if the id is
	// stored, or if the name is taken in the project by a resource that is not
	// Deleted.
	Create(ctx context.Context, resource ProvisionedResource) error

	// Get reads a resource. Errors: ErrProvisionedResourceNotFound.
	Get(ctx context.Context, id ProvisionedResourceID) (ProvisionedResource, error)

	// UpdatePhase writes the resource's phase and ConvergeStartedAt, and nothing
	// else, and only if the stored phase is from: this comparison is what keeps a
	// slow round from leading a resource out of the teardown that was requested
	// meanwhile. It puts nothing into the outbox. Errors: ErrPhaseConflict if the
	// stored phase is another, ErrProvisionedResourceNotFound.
	UpdatePhase(ctx context.Context, from ProvisionedResourcePhase, resource ProvisionedResource) error

	// BindToken replaces the bound token previous (empty: none) by token, in one
	// comparison and write. Errors: ErrPhaseConflict if another token is bound or
	// if deletion was requested, so after RecordDeletionIntent the bound token is
	// the last one; ErrProvisionedResourceNotFound.
	BindToken(ctx context.Context, id ProvisionedResourceID, previous, token BootstrapTokenID) error

	// RecordDeletionIntent writes phase and deletion_requested_at of a resource
	// that RequestDeletion has advanced, and puts its DeletingEvent into the
	// outbox, in one transaction. The phase that was stored does not matter. A
	// resource whose deletion was already requested stays as it is, without a
	// second event and without an error. No other method writes
	// deletion_requested_at. Errors: ErrProvisionedResourceNotFound.
	RecordDeletionIntent(ctx context.Context, resource ProvisionedResource) error
}

// Emitter puts events into the outbox, from where they are published at least
// once, in the order of the outbox for each resource.
type Emitter interface {
	// Emit makes the event durable, if the resource is still in phase from, in
	// one comparison and write. So an event that a deletion has overtaken is not
	// stored behind the Deleting event. An event whose EventID is stored already
	// is a success and stores nothing. Errors: ErrPhaseConflict if the phase is
	// another, ErrProvisionedResourceNotFound.
	Emit(ctx context.Context, from ProvisionedResourcePhase, event Event) error
}

// BlueprintCatalog knows the published blueprint versions. A version never
// changes.
type BlueprintCatalog interface {
	// Version reads one. Errors: ErrBlueprintNotFound.
	Version(ctx context.Context, project ProjectID, ref BlueprintVersionRef) (BlueprintVersion, error)
}

// CloudCredential is what the broker knows of a credential: never its content.
type CloudCredential struct {
	Ref      CloudCredentialRef
	Provider ProviderKind
}

// CredentialDirectory knows which credentials a project may use.
type CredentialDirectory interface {
	// Find reads one. Errors: ErrCloudCredentialNotFound, also for one that
	// exists but that the project may not use.
	Find(ctx context.Context, project ProjectID, ref CloudCredentialRef) (CloudCredential, error)
}

// NamespaceState is the state of a project's namespace.
type NamespaceState string

// The states of a namespace. Any other counts as pending.
const (
	NamespaceMissing     NamespaceState = "Missing"
	NamespacePending     NamespaceState = "Pending"
	NamespaceReady       NamespaceState = "Ready"
	NamespaceTerminating NamespaceState = "Terminating"
)

// NamespaceGate knows whether a project's namespace takes new objects.
type NamespaceGate interface {
	// State reads it. A namespace that is not there is Missing, not an error.
	State(ctx context.Context, project ProjectID) (NamespaceState, error)
}

// MintRequest asks for a token.
type MintRequest struct {
	Resource ProvisionedResourceID
	Project  ProjectID
	TTL      time.Duration
}

// BootstrapToken is a token that was just minted, with its secret.
type BootstrapToken struct {
	ID        BootstrapTokenID
	Secret    TokenSecret
	ExpiresAt time.Time
}

// TokenSecret is what a node enrols with. It does not print or marshal itself.
type TokenSecret struct{ text string }

const redacted = "[secret]"

// NewTokenSecret wraps a secret.
func NewTokenSecret(text string) TokenSecret { return TokenSecret{text} }

// Reveal returns the secret, for delivering it.
func (s TokenSecret) Reveal() string { return s.text }

func (TokenSecret) String() string { return redacted }

// GoString keeps the secret out of %#v.
func (TokenSecret) GoString() string { return redacted }

// MarshalText keeps the secret out of JSON.
func (TokenSecret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue keeps the secret out of logs.
func (TokenSecret) LogValue() slog.Value { return slog.StringValue(redacted) }

// TokenIssuer mints and revokes bootstrap tokens: single use, expiring, for one
// project. It keeps no secret that could be read again.
type TokenIssuer interface {
	// Mint makes a new token for a resource and, in the same transaction, revokes
	// every unused one that it made for that resource before. So at most one can
	// be used, and one whose secret was lost in a crash is worthless. It refuses
	// while a node that used one of them is registered: the caller was about to
	// lose its handle on that node.
	Mint(ctx context.Context, request MintRequest) (BootstrapToken, error)

	// State reads the state of a token: issued, or one of the final states
	// consumed, expired and revoked. One that is not known is revoked.
	State(ctx context.Context, id BootstrapTokenID) (TokenState, error)

	// Revoke makes an unused token worthless. Enrolment and revocation exclude
	// each other: after it returned nil the token is either consumed, and says
	// so, or can never be. One that is consumed, expired, revoked or not known is
	// a success and stays what it is.
	Revoke(ctx context.Context, id BootstrapTokenID) error
}

// NodeDeregistrar is the mesh, as far as teardown needs it.
//
// It is asked by the id of a bootstrap token and not of a node. The broker stores
// the former and cannot make the latter; to resolve one first would tie the
// broker to the mesh's own names, and would need a second lookup that can fail.
type NodeDeregistrar interface {
	// Deregister drains the node that used the token out of the mesh. It may
	// return before the node has left: NodeRegistered tells. No such node is a
	// success. An error is a *DeregistrationError: it names the step that failed.
	Deregister(ctx context.Context, id BootstrapTokenID) error

	// NodeRegistered says whether a node that used the token is in the mesh. A
	// token that was issued but never used has none. Ask after TokenIssuer.State:
	// see ObservedXR.
	NodeRegistered(ctx context.Context, id BootstrapTokenID) (bool, error)
}

// NodeReporter says what keeps a node in the mesh. It is for people only.
type NodeReporter interface {
	// Holding names the peer and what it still waits for.
	Holding(ctx context.Context, id BootstrapTokenID) ([]Reason, error)
}

// Substrate is the management cluster, on the way up.
type Substrate interface {
	// Observe reads what is there. That something does not exist may be said only
	// if the cluster said so: an unknown kind, a denied or a failed read are
	// errors. By "does not exist" nodes are drained.
	Observe(ctx context.Context, resource ProvisionedResource) (ObservedSubstrate, error)

	// DeliverToken puts the secret where the blueprint's injection strategy makes
	// the machine look for it, together with the token's id, in place of any
	// other. It must not come before the token was bound.
	DeliverToken(ctx context.Context, resource ProvisionedResource, version BlueprintVersion, token BootstrapToken) error

	// ApplyProviderConfig creates the ProviderConfig or brings it up to date.
	ApplyProviderConfig(ctx context.Context, resource ProvisionedResource, version BlueprintVersion) error

	// CreateXR creates the XR, after the ProviderConfig, and only if it was
	// observed not to exist: one that vanished after it was observed would be
	// made again with a spent token. One that exists is a success. The XR names
	// the resource's id, so that one created too late, by a round that lost its
	// turn, can be found and removed.
	CreateXR(ctx context.Context, resource ProvisionedResource, version BlueprintVersion) error
}

// SubstrateDeleter is the management cluster, on the way down. Both methods
// request a deletion and do not wait for it; what does not exist is a success.
type SubstrateDeleter interface {
	// DeleteXR deletes the XR with foreground propagation. In the background the
	// XR would be gone at once, while what it is composed of lives on.
	DeleteXR(ctx context.Context, resource ProvisionedResource) error

	// DeleteProviderConfig deletes the ProviderConfig and the token's secret.
	DeleteProviderConfig(ctx context.Context, resource ProvisionedResource) error
}
