package broker

import (
	"context"
	"log/slog"
	"time"
)

// All ports: methods are safe for concurrent use. An error that is not one of
// the domain's own means "unknown": the client concludes nothing from it and
// may retry. Every write is idempotent.

// Repository stores resources. A write is durable when the method returns nil,
// and has no effect when it returns one of the domain's errors. A read sees
// every write that returned before it began.
type Repository interface {
	// Create stores a new resource and puts its RequestedEvent into the outbox,
	// in one transaction. Errors: ErrProvisionedResourceExists if the id is
	// stored, or if the name is taken in the project by a resource that is not
	// Deleted.
	Create(ctx context.Context, resource ProvisionedResource) error

	// Get reads a resource. Errors: ErrProvisionedResourceNotFound.
	Get(ctx context.Context, id ProvisionedResourceID) (ProvisionedResource, error)

	// UpdatePhase writes the resource's phase and ConvergeStartedAt, and
	// nothing else, and only if the stored phase is from. This comparison stops
	// a slow round from undoing a teardown that was requested meanwhile.
	// UpdatePhase puts nothing into the outbox. Errors: ErrPhaseConflict if the
	// stored phase is another, ErrProvisionedResourceNotFound.
	UpdatePhase(ctx context.Context, from ProvisionedResourcePhase, resource ProvisionedResource) error

	// BindToken replaces the bound token previous (empty: none) by token, with
	// a compare-and-swap. Errors: ErrPhaseConflict if another token is bound or
	// if deletion was requested, so after RecordDeletionIntent the bound token
	// never changes; ErrProvisionedResourceNotFound.
	BindToken(ctx context.Context, id ProvisionedResourceID, previous, token BootstrapTokenID) error

	// RecordDeletionIntent writes phase and deletion_requested_at of a resource
	// that RequestDeletion has advanced, and puts its DeletingEvent into the
	// outbox, in one transaction. It accepts any stored phase. A resource whose
	// deletion was already requested stays as it is, without a second event and
	// without an error. No other method writes deletion_requested_at. Errors:
	// ErrProvisionedResourceNotFound.
	RecordDeletionIntent(ctx context.Context, resource ProvisionedResource) error
}

// Emitter puts events into the outbox. The publisher delivers them at least
// once, in outbox order for each resource.
type Emitter interface {
	// Emit makes the event durable if the resource is still in phase from, with
	// one compare-and-write. So no event is stored after the Deleting event of
	// a concurrent deletion. An event whose EventID is already stored is a
	// success and stores nothing. Errors: ErrPhaseConflict if the phase is
	// another, ErrProvisionedResourceNotFound.
	Emit(ctx context.Context, from ProvisionedResourcePhase, event Event) error
}

// BlueprintCatalog knows the published blueprint versions. A version never
// changes.
type BlueprintCatalog interface {
	// Version reads one. Errors: ErrBlueprintNotFound.
	Version(ctx context.Context, project ProjectID, ref BlueprintVersionRef) (BlueprintVersion, error)
}

// CloudCredential is what the broker knows about a credential. It never holds
// the content.
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
	// State reads it. A namespace that does not exist is Missing, not an error.
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

// TokenSecret is the secret that a node enrols with. Printing and marshalling
// redact it.
type TokenSecret struct{ text string }

const redacted = "[secret]"

// NewTokenSecret wraps a secret.
func NewTokenSecret(text string) TokenSecret { return TokenSecret{text} }

// Reveal returns the secret, for delivery to the machine.
func (s TokenSecret) Reveal() string { return s.text }

func (TokenSecret) String() string { return redacted }

// GoString keeps the secret out of %#v.
func (TokenSecret) GoString() string { return redacted }

// MarshalText keeps the secret out of JSON.
func (TokenSecret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue keeps the secret out of logs.
func (TokenSecret) LogValue() slog.Value { return slog.StringValue(redacted) }

// TokenIssuer mints and revokes bootstrap tokens: single use, expiring, for one
// project. It stores no readable secret.
type TokenIssuer interface {
	// Mint makes a new token for a resource and, in the same transaction,
	// revokes every unused token that it minted for that resource before. So at
	// most one token can be used, and a token whose secret was lost in a crash
	// is worthless. Mint refuses while a node that used one of them is
	// registered: the old token's id is the only handle on that node.
	Mint(ctx context.Context, request MintRequest) (BootstrapToken, error)

	// State reads the state of a token: issued, or one of the final states
	// consumed, expired and revoked. An unknown token is revoked.
	State(ctx context.Context, id BootstrapTokenID) (TokenState, error)

	// Revoke makes an unused token worthless. Enrolment and revocation exclude
	// each other: after Revoke returned nil, the token is either consumed, and
	// State says so, or no node can ever use it. A token that is consumed,
	// expired, revoked or unknown is a success and keeps its state.
	Revoke(ctx context.Context, id BootstrapTokenID) error
}

// NodeDeregistrar is the mesh, as far as teardown needs it.
//
// Its methods take the id of a bootstrap token, not of a node. The broker
// stores token ids and does not know node ids; resolving one first would tie
// the broker to the mesh's names, and would need a second lookup that can fail.
type NodeDeregistrar interface {
	// Deregister drains the node that used the token out of the mesh. It may
	// return before the node has left: poll NodeRegistered. No such node is a
	// success. An error is a *DeregistrationError: it names the step that
	// failed.
	Deregister(ctx context.Context, id BootstrapTokenID) error

	// NodeRegistered reports whether a node that used the token is in the mesh;
	// a token that was never used has none. Call it after TokenIssuer.State:
	// see ObservedXR.
	NodeRegistered(ctx context.Context, id BootstrapTokenID) (bool, error)
}

// NodeReporter says what keeps a node in the mesh. Its answers are shown to
// people and decide nothing.
type NodeReporter interface {
	// Holding names the peer and what it still waits for.
	Holding(ctx context.Context, id BootstrapTokenID) ([]Reason, error)
}

// Substrate is the management cluster, on the way up.
type Substrate interface {
	// Observe reads what exists. It may report "does not exist" only if the
	// cluster said so: an unknown kind, a denied or a failed read are errors,
	// because the broker drains nodes when their XR does not exist.
	Observe(ctx context.Context, resource ProvisionedResource) (ObservedSubstrate, error)

	// DeliverToken stores the secret and the token's id where the blueprint's
	// injection strategy makes the machine look for it, and replaces any other.
	// Call it only after the token was bound.
	DeliverToken(ctx context.Context, resource ProvisionedResource, version BlueprintVersion, token BootstrapToken) error

	// ApplyProviderConfig creates the ProviderConfig or brings it up to date.
	ApplyProviderConfig(ctx context.Context, resource ProvisionedResource, version BlueprintVersion) error

	// CreateXR creates the XR, after the ProviderConfig, and only if it was
	// observed not to exist: recreating one that vanished after the observation
	// would reuse a spent token. An XR that exists is a success. The XR carries
	// the resource's id, so that one created too late, by a round that lost its
	// lock, can be found and removed.
	CreateXR(ctx context.Context, resource ProvisionedResource, version BlueprintVersion) error
}

// SubstrateDeleter is the management cluster, on the way down. Both methods
// request a deletion and do not wait for it; an object that does not exist is a
// success.
type SubstrateDeleter interface {
	// DeleteXR deletes the XR with foreground propagation. With background
	// propagation the XR would be gone at once while the resources that it is
	// composed of still exist.
	DeleteXR(ctx context.Context, resource ProvisionedResource) error

	// DeleteProviderConfig deletes the ProviderConfig and the token's secret.
	DeleteProviderConfig(ctx context.Context, resource ProvisionedResource) error
}
