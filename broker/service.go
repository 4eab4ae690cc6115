package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Config is what a Service is made of. All ports are required.
type Config struct {
	Repository  Repository
	Blueprints  BlueprintCatalog
	Credentials CredentialDirectory
	Namespaces  NamespaceGate
	Tokens      TokenIssuer
	Emitter     Emitter

	// TokenTTL is how long a bootstrap token can be used, from 5 minutes to 24
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

// Service is what callers of the broker, and its loop, call. It keeps nothing
// and is safe for concurrent use.
type Service struct{ config Config }

// NewService makes a service. It does no I/O.
func NewService(c Config) (*Service, error) {
	switch {
	case c.Repository == nil:
		return nil, ErrServiceRepositoryRequired
	case c.Blueprints == nil:
		return nil, ErrServiceBlueprintsRequired
	case c.Credentials == nil:
		return nil, ErrServiceCredentialsRequired
	case c.Namespaces == nil:
		return nil, ErrServiceNamespacesRequired
	case c.Tokens == nil:
		return nil, ErrServiceTokensRequired
	case c.Emitter == nil:
		return nil, ErrServiceEmitterRequired
	}
	if c.TokenTTL == 0 {
		c.TokenTTL = defaultTokenTTL
	}
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
	// ID is chosen by the caller and makes the request repeatable.
	ID         ProvisionedResourceID
	Project    ProjectID
	Name       string
	Blueprint  BlueprintVersionRef
	Credential CloudCredentialRef
	// Parameters are as encoding/json decodes them.
	Parameters map[string]any
}

// Provision accepts a declaration, or refuses it and stores nothing. A request
// that was accepted before is answered with the resource as it is now, whatever
// has become of blueprint, credential and namespace since: a caller who did not
// hear the first answer asks again.
//
// A refusal is FieldErrors and names every field at fault. Errors:
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

// Admit says whether Provision would accept a new request now. It stores nothing.
// Errors are those of Provision.
func (s *Service) Admit(ctx context.Context, request ProvisionRequest) error {
	if err := request.check(); err != nil {
		return err
	}
	_, err := s.admit(ctx, request)
	return err
}

// check checks what can be seen from the request alone.
func (r ProvisionRequest) check() error {
	var errs FieldErrors
	checkIdentity(&errs, r.ID, r.Project, r.Name)
	checkBlueprintRef(&errs, r.Blueprint)
	if !validLabel.MatchString(string(r.Credential)) {
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

// create stores a resource. Where another request with the same id was faster,
// the answer is the same as if it had come first.
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

// same answers a request whose id is stored.
func same(existing ProvisionedResource, digest string, request ProvisionRequest) (ProvisionedResource, error) {
	if existing.state.RequestDigest != digest {
		return ProvisionedResource{}, exists("id", fmt.Sprintf("%s belongs to a resource that was declared otherwise", request.ID))
	}
	return existing, nil
}

// digest is the same for requests that are the same. It is stored, because the
// blueprint that a repeated request would be checked against may be gone.
func (r ProvisionRequest) digest() (string, error) {
	if len(r.Parameters) == 0 {
		r.Parameters = nil // none given and no map given are the same
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

// Deprovision accepts the deletion of a resource, whatever phase it is in, and
// revokes its token if no node has used it. To ask again is harmless.
//
// The intent is recorded first and the token revoked second. The other way
// round, a crash in between would have taken the token from a resource that
// nobody deletes. This way a crash, or an error of the issuer, leaves a resource
// that is going down with a token that could still be used; Next asks for its
// revocation before it lets the substrate go. The token is read after the intent
// was recorded: from then on no other can be bound.
//
// Errors: ErrProvisionedResourceNotFound; ErrBootstrapTokenFailed if the token
// could not be revoked, in which case the deletion is accepted all the same.
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
