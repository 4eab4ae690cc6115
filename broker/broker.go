// Package broker is the domain of provisioning: how a declaration becomes a
// machine that has joined the mesh, and how the machine leaves again. It
// decides, and it declares the ports that it needs. It imports the standard
// library only: no database, no Kubernetes, no network.
//
// Begin with [Next]: the whole state machine in one pure function.
// testdata/next.txt holds the table of all its answers; docs/spec/broker.md
// holds the races and their answers.
//
// # The story
//
// A [ProvisionedResource] joins a [BlueprintVersion], a cloud credential and a
// project, which is a namespace. [Service.Provision] checks all of that, and
// stores it, or refuses and stores nothing.
//
// From then on a loop looks at it, one resource at a time, in four steps:
//
//	observe           what is: the token, the node, the substrate    [ObservedXR]
//	decide            what follows from it                           [Next]
//	apply             the one action                                 ports
//	emit and persist  the event, then the phase                      [Service.Advance]
//
// Only the phase is stored between two rounds; a round reads all other facts
// again. So a round may be repeated, interrupted, or run by another process.
//
// On the way up the resource is Pending until its namespace is ready and a
// bootstrap token is minted. Then the broker applies the ProviderConfig and,
// second, the composite resource (XR): Provisioning. When the XR is ready, the
// machine runs and its node must enrol: Enrolling. When the node has used the
// token: Ready. A condition that the XR cannot leave by itself, or the
// deadline, makes the resource Failed; only deletion ends Failed. The broker
// replaces a token that can no longer be used, as long as no node has used it.
//
// On the way down, from any phase, [Service.Deprovision] records the intent and
// revokes the token, so that a machine that boots late cannot enrol. Then the
// mesh drains the node: Deregistering. Only then does the broker delete the XR,
// and after the XR is observed gone the ProviderConfig, whose credentials the
// substrate needs for its own deletion: Deprovisioning. Then the resource is
// Deleted, and no action follows.
//
// # What always holds
//
//   - The node leaves before its substrate. Deleting the substrate of a live
//     peer would leave a peer in the mesh that can no longer drain.
//   - Teardown is one way. No observation leads out of it.
//   - Deleted is the end: no action follows.
//   - From any phase, a requested deletion ends in Deleted once the causes that
//     hold it are gone.
//   - A token is not replaced while the node that used it is registered: the
//     token's id is the only handle on that node.
//   - Each of the five events of a resource is stored at most once, and
//     published at least once under one token.
package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
)

// The domain's errors: a closed set. Clients distinguish them with errors.Is,
// through any wrapping.
var (
	// ErrInvalidRequest: a field of a request, or a parameter, is invalid.
	ErrInvalidRequest = errors.New("broker: invalid request")
	// ErrBlueprintNotFound: no such blueprint, or no such version of it.
	ErrBlueprintNotFound = errors.New("broker: blueprint version not found")
	// ErrCloudCredentialNotFound: no such credential, or it is not the project's.
	ErrCloudCredentialNotFound = errors.New("broker: cloud credential not found")
	// ErrNamespaceUnavailable: the project's namespace is terminating or
	// missing. A namespace that is not ready yet is not an error: the resource waits in
	// Pending.
	ErrNamespaceUnavailable = errors.New("broker: namespace is terminating or missing")
	// ErrProvisionedResourceExists: the id, or the name in the project, belongs to
	// another resource.
	ErrProvisionedResourceExists = errors.New("broker: provisioned resource exists")
	// ErrProvisionedResourceNotFound: there is no resource of that id.
	ErrProvisionedResourceNotFound = errors.New("broker: provisioned resource not found")
	// ErrPhaseConflict: the resource has changed since it was read, or the move
	// is not allowed. Nothing was written; read again.
	ErrPhaseConflict = errors.New("broker: phase conflict")
	// ErrBootstrapTokenFailed: the token could not be minted, bound or revoked.
	ErrBootstrapTokenFailed = errors.New("broker: bootstrap token failed")
	// ErrNodeDeregistrationFailed: the node could not be drained. The round ends
	// here, before any phase is written and before any substrate is deleted.
	ErrNodeDeregistrationFailed = errors.New("broker: node deregistration failed")
)

// DeregistrationStep is a part of a node's deregistration.
type DeregistrationStep string

// The steps of a deregistration, in order.
const (
	StepLookup  DeregistrationStep = "lookup"  // find the node that used the token
	StepDrain   DeregistrationStep = "drain"   // ask the node to finish its connections
	StepRemoval DeregistrationStep = "removal" // remove the node when it has, or when its time is over
)

// DeregistrationError says which step of a deregistration failed. It is the cause
// of an ErrNodeDeregistrationFailed: errors.As finds it there.
type DeregistrationError struct {
	Step DeregistrationStep
	Err  error
}

func (e *DeregistrationError) Error() string { return string(e.Step) + ": " + e.Err.Error() }
func (e *DeregistrationError) Unwrap() error { return e.Err }

// ErrServiceTokenTTL is an error of wiring, as those of Incomplete: a program that has one does not start. They
// are not part of the domain's set.
var ErrServiceTokenTTL = errors.New("broker service: the token's lifetime must be from 5 minutes to 24 hours")

// Incomplete returns an error that names the parts which a program lacks; nil if it has all.
func Incomplete(program string, lacks map[string]bool) error {
	var errs []error
	for _, part := range slices.Sorted(maps.Keys(lacks)) {
		if lacks[part] {
			errs = append(errs, fmt.Errorf("%s: %s required", program, part))
		}
	}
	return errors.Join(errs...)
}

// FieldError says which field of a request is refused, why, and by which of the
// domain's errors.
type FieldError struct {
	Field  string // "blueprint", "credential", "parameters.size"
	Detail string
	Err    error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Detail }
func (e *FieldError) Unwrap() error { return e.Err }

// FieldErrors are all refused fields of a request, so that a person can correct
// them all at once.
type FieldErrors []*FieldError

func (e FieldErrors) Error() string {
	texts := make([]string, len(e))
	for i, field := range e {
		texts[i] = field.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap lets errors.Is and errors.As see each of them.
func (e FieldErrors) Unwrap() []error {
	all := make([]error, len(e))
	for i, field := range e {
		all[i] = field
	}
	return all
}

// add records an invalid field.
func (e *FieldErrors) add(field, detail string) { e.refuse(field, detail, ErrInvalidRequest) }

func (e *FieldErrors) refuse(field, detail string, err error) {
	*e = append(*e, &FieldError{Field: field, Detail: detail, Err: err})
}

// err is nil if there are none: a nil FieldErrors in an error would not be nil.
func (e FieldErrors) err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

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

	// BindToken replaces the bound token previous (empty if there is none) by token, with
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
