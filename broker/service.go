package broker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Config holds the parts of a Service. All ports are required.
type Config struct {
	Repository  Repository
	Blueprints  BlueprintCatalog
	Credentials CredentialDirectory
	Namespaces  NamespaceGate
	Tokens      TokenIssuer
	Emitter     Emitter

	// TokenTTL is the lifetime of a bootstrap token, from 5 minutes to 24
	// hours. Default one hour.
	TokenTTL time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

const (
	defaultTokenTTL = time.Hour
	minTokenTTL     = 5 * time.Minute
	maxTokenTTL     = 24 * time.Hour
)

// Service is the broker's entry point for clients and for its loop. It has no
// state and is safe for concurrent use.
type Service struct{ config Config }

// NewService makes a service. It does no I/O.
func NewService(c Config) (*Service, error) {
	err := Incomplete("broker service", map[string]bool{
		"a Repository is": c.Repository == nil, "a BlueprintCatalog is": c.Blueprints == nil, "a CredentialDirectory is": c.Credentials == nil,
		"a NamespaceGate is": c.Namespaces == nil, "a TokenIssuer is": c.Tokens == nil, "an Emitter is": c.Emitter == nil,
	})
	if err != nil {
		return nil, err
	}
	c.TokenTTL = cmp.Or(c.TokenTTL, defaultTokenTTL)
	if c.TokenTTL < minTokenTTL || c.TokenTTL > maxTokenTTL {
		return nil, fmt.Errorf("%w: it is %s", ErrServiceTokenTTL, c.TokenTTL)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Service{c}, nil
}

// ProvisionRequest declares a resource.
type ProvisionRequest struct {
	// ID is chosen by the client and makes the request idempotent.
	ID         ProvisionedResourceID
	Project    ProjectID
	Name       string
	Blueprint  BlueprintVersionRef
	Credential CloudCredentialRef
	// Parameters are as encoding/json decodes them.
	Parameters map[string]any
}

// Provision accepts a declaration, or refuses it and stores nothing. A request
// that was accepted before gets the resource as it is now, even if blueprint,
// credential or namespace have changed since: a client that lost the first
// answer retries.
//
// A refusal is FieldErrors and names every refused field. Errors:
// ErrInvalidRequest, ErrBlueprintNotFound, ErrCloudCredentialNotFound,
// ErrNamespaceUnavailable, ErrProvisionedResourceExists; any other is a port's.
func (s *Service) Provision(ctx context.Context, request ProvisionRequest) (ProvisionedResource, error) {
	if err := request.check(); err != nil {
		return ProvisionedResource{}, err
	}
	digest, err := request.digest()
	if err != nil {
		return ProvisionedResource{}, err
	}
	existing, err := s.config.Repository.Get(ctx, request.ID)
	if err == nil {
		return same(existing, digest, request)
	}
	if !errors.Is(err, ErrProvisionedResourceNotFound) {
		return ProvisionedResource{}, fmt.Errorf("provision %s: %w", request.ID, err)
	}
	resource, err := s.admit(ctx, request)
	if err != nil {
		return ProvisionedResource{}, err
	}
	resource.state.RequestDigest = digest
	return s.create(ctx, request, resource)
}

// Admit reports whether Provision would accept a new request now. It stores
// nothing. Errors are those of Provision.
func (s *Service) Admit(ctx context.Context, request ProvisionRequest) error {
	if err := request.check(); err != nil {
		return err
	}
	_, err := s.admit(ctx, request)
	return err
}

// check checks the request by itself, without reading anything.
func (r ProvisionRequest) check() error {
	var errs FieldErrors
	checkIdentity(&errs, r.ID, r.Project, r.Name)
	checkBlueprintRef(&errs, r.Blueprint)
	if !validLabel().MatchString(string(r.Credential)) {
		errs.add("credential", labelRule)
	}
	return errs.err()
}

// admit checks a request against what it refers to.
func (s *Service) admit(ctx context.Context, request ProvisionRequest) (ProvisionedResource, error) {
	fail := func(err error) (ProvisionedResource, error) {
		return ProvisionedResource{}, fmt.Errorf("provision %s: %w", request.ID, err)
	}
	var errs FieldErrors
	namespace, err := s.config.Namespaces.State(ctx, request.Project)
	if err != nil {
		return fail(err)
	}
	if namespace == NamespaceTerminating || namespace == NamespaceMissing {
		errs.refuse("project", fmt.Sprintf("namespace %s is %s", request.Project, namespace), ErrNamespaceUnavailable)
	}
	version, parameters, err := s.admitBlueprint(ctx, request, &errs)
	if err != nil {
		return fail(err)
	}
	if err := s.admitCredential(ctx, request, version.Provider, &errs); err != nil {
		return fail(err)
	}
	if err := errs.err(); err != nil {
		return ProvisionedResource{}, err
	}
	now := s.config.Now()
	return ProvisionedResource{State{
		ID: request.ID, Project: request.Project, Name: request.Name,
		Blueprint: request.Blueprint, Credential: request.Credential,
		Parameters: parameters, Deadline: version.deadline(),
		XR: version.XR.ObjectType, ProviderConfig: version.ProviderConfig.ObjectType,
		Phase: PhasePending, CreatedAt: now, ConvergeStartedAt: now,
	}}, nil
}

func (s *Service) admitBlueprint(ctx context.Context, request ProvisionRequest, errs *FieldErrors) (BlueprintVersion, Parameters, error) {
	version, err := s.config.Blueprints.Version(ctx, request.Project, request.Blueprint)
	if errors.Is(err, ErrBlueprintNotFound) {
		errs.refuse("blueprint", fmt.Sprintf("there is no blueprint %s", request.Blueprint), ErrBlueprintNotFound)
		return version, nil, nil
	}
	if err != nil {
		return version, nil, err
	}
	if err := version.Validate(); err != nil {
		errs.add("blueprint", fmt.Sprintf("%s cannot be used: %v", request.Blueprint, err))
		return version, nil, nil
	}
	parameters, err := version.Schema.Check(request.Parameters)
	var refused FieldErrors
	if errors.As(err, &refused) {
		*errs = append(*errs, refused...)
	}
	return version, parameters, nil
}

// admitCredential checks the credential. Without a blueprint there is no provider
// to compare it with.
func (s *Service) admitCredential(ctx context.Context, request ProvisionRequest, provider ProviderKind, errs *FieldErrors) error {
	credential, err := s.config.Credentials.Find(ctx, request.Project, request.Credential)
	if errors.Is(err, ErrCloudCredentialNotFound) {
		errs.refuse("credential", fmt.Sprintf("the project has no credential %s", request.Credential), ErrCloudCredentialNotFound)
		return nil
	}
	if err != nil {
		return err
	}
	if provider != "" && credential.Provider != provider {
		errs.add("credential", fmt.Sprintf("is for %s; the blueprint is for %s", credential.Provider, provider))
	}
	return nil
}

// create stores a resource. If another request with the same id was faster, the
// answer is the same as if it had come first.
func (s *Service) create(ctx context.Context, request ProvisionRequest, resource ProvisionedResource) (ProvisionedResource, error) {
	err := s.config.Repository.Create(ctx, resource)
	if err == nil {
		return resource, nil
	}
	if !errors.Is(err, ErrProvisionedResourceExists) {
		return ProvisionedResource{}, fmt.Errorf("provision %s: %w", request.ID, err)
	}
	existing, getErr := s.config.Repository.Get(ctx, request.ID)
	if errors.Is(getErr, ErrProvisionedResourceNotFound) {
		return ProvisionedResource{}, exists("name", fmt.Sprintf("%s is taken in project %s", request.Name, request.Project))
	}
	if getErr != nil {
		return ProvisionedResource{}, fmt.Errorf("provision %s: %w", request.ID, getErr)
	}
	return same(existing, resource.state.RequestDigest, request)
}

// same answers a request whose id is already stored.
func same(existing ProvisionedResource, digest string, request ProvisionRequest) (ProvisionedResource, error) {
	if existing.state.RequestDigest != digest {
		return ProvisionedResource{}, exists("id", fmt.Sprintf("%s belongs to a resource that was declared otherwise", request.ID))
	}
	return existing, nil
}

// digest is equal for equal requests. The resource stores it, because the
// blueprint that a repeated request would be checked against may be gone.
func (r ProvisionRequest) digest() (string, error) {
	if len(r.Parameters) == 0 {
		r.Parameters = nil // a nil map and an empty map are the same request
	}
	data, err := json.Marshal(r)
	if err != nil {
		return "", FieldErrors{{Field: "parameters", Detail: "must be values that JSON has", Err: ErrInvalidRequest}}
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

func exists(field, detail string) error {
	return FieldErrors{{Field: field, Detail: detail, Err: ErrProvisionedResourceExists}}
}

// Deprovision accepts the deletion of a resource in any phase, and revokes its
// token if no node has used it. It is idempotent.
//
// It records the intent first and revokes the token second. In the other order,
// a crash in between would leave a resource without token that no client
// deletes. In this order a crash, or an error of the issuer, leaves a resource
// in teardown with a usable token; Next asks for its revocation before it
// deletes the substrate. Deprovision reads the token after it recorded the
// intent: from then on no other can be bound.
//
// Errors: ErrProvisionedResourceNotFound; ErrBootstrapTokenFailed if the token
// could not be revoked: then the deletion is accepted nevertheless.
func (s *Service) Deprovision(ctx context.Context, id ProvisionedResourceID) (ProvisionedResource, error) {
	resource, err := s.config.Repository.Get(ctx, id)
	if err != nil {
		return ProvisionedResource{}, fmt.Errorf("deprovision %s: %w", id, err)
	}
	if advanced, requested := resource.RequestDeletion(s.config.Now()); requested {
		if err := s.config.Repository.RecordDeletionIntent(ctx, advanced); err != nil {
			return ProvisionedResource{}, fmt.Errorf("deprovision %s: %w", id, err)
		}
		if resource, err = s.config.Repository.Get(ctx, id); err != nil {
			return ProvisionedResource{}, fmt.Errorf("deprovision %s: %w", id, err)
		}
	}
	if resource.Phase() == PhaseDeleted {
		return resource, nil
	}
	return resource, s.RevokeToken(ctx, resource)
}

// MintToken mints a token, binds it to the resource, and returns both. The
// reconciler then delivers the secret, with Substrate.DeliverToken.
//
// The order is mint, bind, deliver, and each crash in between heals:
//   - after mint: the secret is lost, so the token cannot be used. The next
//     Mint for the resource revokes it.
//   - after bind: the token is observed as undelivered, and the next round
//     mints another.
//
// If delivery came before binding, a machine could enrol with a token that the
// resource does not know, and teardown would not find its node.
//
// Errors: ErrPhaseConflict if the resource has changed, with the new token
// revoked; ErrBootstrapTokenFailed.
func (s *Service) MintToken(ctx context.Context, resource ProvisionedResource) (ProvisionedResource, BootstrapToken, error) {
	fail := func(err error) (ProvisionedResource, BootstrapToken, error) {
		return resource, BootstrapToken{}, fmt.Errorf("mint token for %s: %w", resource.ID(), err)
	}
	if isDeletionPhase(resource.Phase()) {
		return fail(fmt.Errorf("%w: it is %s", ErrPhaseConflict, resource.Phase()))
	}
	token, err := s.config.Tokens.Mint(ctx, MintRequest{
		Resource: resource.state.ID, Project: resource.state.Project, TTL: s.config.TokenTTL,
	})
	if err != nil {
		return fail(fmt.Errorf("%w: %w", ErrBootstrapTokenFailed, err))
	}
	if token.ID == "" {
		return fail(fmt.Errorf("%w: the issuer returned a token without an id", ErrBootstrapTokenFailed))
	}
	err = s.config.Repository.BindToken(ctx, resource.ID(), resource.TokenID(), token.ID)
	if errors.Is(err, ErrPhaseConflict) || errors.Is(err, ErrProvisionedResourceNotFound) {
		// The token is certainly not bound and its secret is not delivered: if
		// this revocation fails too, the token expires unused.
		return fail(errors.Join(err, s.config.Tokens.Revoke(ctx, token.ID)))
	}
	if err != nil {
		// Bound or not, its secret is not delivered: the next round mints
		// another.
		return fail(fmt.Errorf("%w: bind: %w", ErrBootstrapTokenFailed, err))
	}
	resource.state.TokenID = token.ID
	return resource, token, nil
}

// RevokeToken makes the resource's token worthless if no node has used it.
// Errors: ErrBootstrapTokenFailed.
func (s *Service) RevokeToken(ctx context.Context, resource ProvisionedResource) error {
	if resource.TokenID() == "" {
		return nil
	}
	if err := s.config.Tokens.Revoke(ctx, resource.TokenID()); err != nil {
		return fmt.Errorf("revoke token of %s: %w: %w", resource.ID(), ErrBootstrapTokenFailed, err)
	}
	return nil
}

// DeregisterNode drains the node of a resource. On an error the reconciler ends
// the round: it writes no phase and touches no substrate. Errors:
// ErrNodeDeregistrationFailed.
func DeregisterNode(ctx context.Context, nodes NodeDeregistrar, resource ProvisionedResource) error {
	if resource.TokenID() == "" {
		return nil // without a token no node can have enrolled
	}
	if err := nodes.Deregister(ctx, resource.TokenID()); err != nil {
		return fmt.Errorf("deregister node of %s: %w: %w", resource.ID(), ErrNodeDeregistrationFailed, err)
	}
	return nil
}

// Advance ends a round: it emits the event of the new phase, if there is one,
// and then writes the phase. why is the text of a Failed event. Advance returns
// the resource as stored now; if the phase is the same it does nothing.
//
// The event comes first. The phase is the only memory between rounds: once it
// is written, no later round sees the transition, and an event that was not
// emitted by then is silently lost, and with it the end of a teardown that a
// client waits for. With the event first, a crash in between leaves the old
// phase; the next round sees the same transition and emits the same event
// again, under the same outbox token, and the outbox keeps one. What remains is
// an event without its phase, if the resource changed in between: the event
// says what was true when it was emitted, and it precedes the event of the
// later change, because Emit compares the phase too.
//
// Errors: ErrPhaseConflict if the resource has changed since it was read;
// ErrProvisionedResourceNotFound.
func (s *Service) Advance(ctx context.Context, resource ProvisionedResource, to ProvisionedResourcePhase, why string) (ProvisionedResource, error) {
	from := resource.Phase()
	if to == from {
		return resource, nil
	}
	now := s.config.Now()
	next, err := resource.advance(to, now)
	if err != nil {
		return resource, fmt.Errorf("advance %s: %w", resource.ID(), err)
	}
	if event := next.crossing(now, why); event != nil {
		if err := s.config.Emitter.Emit(ctx, from, event); err != nil {
			return resource, fmt.Errorf("advance %s: emit %s: %w", resource.ID(), event.EventType(), err)
		}
	}
	if err := s.config.Repository.UpdatePhase(ctx, from, next); err != nil {
		return resource, fmt.Errorf("advance %s from %s to %s: %w", resource.ID(), from, to, err)
	}
	return next, nil
}
