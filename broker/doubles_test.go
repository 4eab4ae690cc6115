package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/exeunt/exeunt/broker"
)

var (
	ctx   = context.Background()
	start = time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	// errDown is the error of a port that cannot be reached and of a process that dies:
	// the result of the call is unknown.
	errDown = errors.New("connection lost")
)

// Each port's double is a struct of functions.
type (
	repository struct {
		create    func(broker.ProvisionedResource) error
		get       func(broker.ProvisionedResourceID) (broker.ProvisionedResource, error)
		update    func(broker.ProvisionedResourcePhase, broker.ProvisionedResource) error
		bind      func(id broker.ProvisionedResourceID, previous, token broker.BootstrapTokenID) error
		recordDel func(broker.ProvisionedResource) error
	}
	emitter     func(broker.ProvisionedResourcePhase, broker.Event) error
	catalog     func(broker.BlueprintVersionRef) (broker.BlueprintVersion, error)
	directory   func(broker.CloudCredentialRef) (broker.CloudCredential, error)
	gate        func(broker.ProjectID) (broker.NamespaceState, error)
	tokenIssuer struct {
		mint   func(broker.MintRequest) (broker.BootstrapToken, error)
		state  func(broker.BootstrapTokenID) (broker.TokenState, error)
		revoke func(broker.BootstrapTokenID) error
	}
	deregistrar struct {
		deregister func(broker.BootstrapTokenID) error
		registered func(broker.BootstrapTokenID) (bool, error)
	}
)

func (f *repository) Create(_ context.Context, r broker.ProvisionedResource) error {
	return f.create(r)
}
func (f *repository) Get(_ context.Context, id broker.ProvisionedResourceID) (broker.ProvisionedResource, error) {
	return f.get(id)
}
func (f *repository) UpdatePhase(_ context.Context, from broker.ProvisionedResourcePhase, r broker.ProvisionedResource) error {
	return f.update(from, r)
}
func (f *repository) BindToken(_ context.Context, id broker.ProvisionedResourceID, previous, token broker.BootstrapTokenID) error {
	return f.bind(id, previous, token)
}
func (f *repository) RecordDeletionIntent(_ context.Context, r broker.ProvisionedResource) error {
	return f.recordDel(r)
}
func (f *tokenIssuer) Mint(_ context.Context, r broker.MintRequest) (broker.BootstrapToken, error) {
	return f.mint(r)
}
func (f *tokenIssuer) State(_ context.Context, id broker.BootstrapTokenID) (broker.TokenState, error) {
	return f.state(id)
}
func (f *tokenIssuer) Revoke(_ context.Context, id broker.BootstrapTokenID) error {
	return f.revoke(id)
}
func (f deregistrar) Deregister(_ context.Context, id broker.BootstrapTokenID) error {
	return f.deregister(id)
}
func (f deregistrar) NodeRegistered(_ context.Context, id broker.BootstrapTokenID) (bool, error) {
	return f.registered(id)
}
func (f emitter) Emit(_ context.Context, from broker.ProvisionedResourcePhase, e broker.Event) error {
	return f(from, e)
}
func (f catalog) Version(_ context.Context, _ broker.ProjectID, ref broker.BlueprintVersionRef) (broker.BlueprintVersion, error) {
	return f(ref)
}
func (f directory) Find(_ context.Context, _ broker.ProjectID, ref broker.CloudCredentialRef) (broker.CloudCredential, error) {
	return f(ref)
}
func (f gate) State(_ context.Context, project broker.ProjectID) (broker.NamespaceState, error) {
	return f(project)
}

// harness is a service over doubles that keep the contracts of the ports. A test replaces
// the function that should fail.
type harness struct {
	*testing.T
	now        time.Time
	stored     map[broker.ProvisionedResourceID]broker.State
	outbox     []broker.Event
	tokens     map[broker.BootstrapTokenID]broker.TokenState
	calls      []string // writes, in order
	repository *repository
	issuer     *tokenIssuer
	config     broker.Config
}

func newHarness(t *testing.T) *harness {
	h := &harness{
		T: t, now: start,
		stored: map[broker.ProvisionedResourceID]broker.State{},
		tokens: map[broker.BootstrapTokenID]broker.TokenState{},
	}
	h.repository = &repository{create: h.create, get: h.get, update: h.update, bind: h.bind, recordDel: h.recordDel}
	h.issuer = &tokenIssuer{
		mint:  h.mint,
		state: func(id broker.BootstrapTokenID) (broker.TokenState, error) { return h.tokens[id], nil },
		revoke: func(id broker.BootstrapTokenID) error {
			h.call("revoke %s", id)
			if h.tokens[id] == broker.TokenIssued {
				h.tokens[id] = broker.TokenRevoked
			}
			return nil
		},
	}
	h.config = broker.Config{
		Repository: h.repository, Tokens: h.issuer, Emitter: emitter(h.emit),
		Now:        func() time.Time { return h.now },
		Blueprints: catalog(func(broker.BlueprintVersionRef) (broker.BlueprintVersion, error) { return blueprint(), nil }),
		Credentials: directory(func(ref broker.CloudCredentialRef) (broker.CloudCredential, error) {
			return broker.CloudCredential{Ref: ref, Provider: "hetzner"}, nil
		}),
		Namespaces: gate(func(broker.ProjectID) (broker.NamespaceState, error) { return broker.NamespaceReady, nil }),
	}
	return h
}

func (h *harness) call(format string, args ...any) {
	h.calls = append(h.calls, fmt.Sprintf(format, args...))
}

// service makes the service late, so that a test can change the config first.
func (h *harness) service() *broker.Service {
	h.Helper()
	s, err := broker.NewService(h.config)
	if err != nil {
		h.Fatal(err)
	}
	return s
}

func (h *harness) create(r broker.ProvisionedResource) error {
	for id, s := range h.stored {
		if id == r.ID() || (s.Name == r.State().Name && s.Project == r.State().Project && s.Phase != broker.PhaseDeleted) {
			return fmt.Errorf("create: %w", broker.ErrProvisionedResourceExists)
		}
	}
	h.call("create %s", r.ID())
	h.stored[r.ID()] = r.State()
	h.append(r.RequestedEvent())
	return nil
}

func (h *harness) get(id broker.ProvisionedResourceID) (broker.ProvisionedResource, error) {
	s, ok := h.stored[id]
	if !ok {
		return broker.ProvisionedResource{}, fmt.Errorf("get: %w", broker.ErrProvisionedResourceNotFound)
	}
	return broker.Restore(s)
}

func (h *harness) update(from broker.ProvisionedResourcePhase, r broker.ProvisionedResource) error {
	s := h.stored[r.ID()]
	if s.Phase != from {
		return fmt.Errorf("update: %w", broker.ErrPhaseConflict)
	}
	h.call("update %s to %s", from, r.Phase())
	s.Phase, s.ConvergeStartedAt = r.Phase(), r.State().ConvergeStartedAt
	h.stored[r.ID()] = s
	return nil
}

func (h *harness) bind(id broker.ProvisionedResourceID, previous, token broker.BootstrapTokenID) error {
	s := h.stored[id]
	if s.TokenID != previous || !s.DeletionRequestedAt.IsZero() {
		return fmt.Errorf("bind: %w", broker.ErrPhaseConflict)
	}
	h.call("bind %s", token)
	s.TokenID = token
	h.stored[id] = s
	return nil
}

func (h *harness) recordDel(r broker.ProvisionedResource) error {
	s, ok := h.stored[r.ID()]
	if !ok {
		return fmt.Errorf("record: %w", broker.ErrProvisionedResourceNotFound)
	}
	if s.DeletionRequestedAt.IsZero() {
		h.call("record deletion of %s", r.ID())
		s.Phase, s.DeletionRequestedAt = r.Phase(), r.State().DeletionRequestedAt
		h.stored[r.ID()] = s
		h.append(r.DeletingEvent())
	}
	return nil
}

func (h *harness) mint(r broker.MintRequest) (broker.BootstrapToken, error) {
	for id, state := range h.tokens {
		if state == broker.TokenIssued {
			h.tokens[id] = broker.TokenRevoked
		}
	}
	id := broker.BootstrapTokenID(fmt.Sprintf("token-%d", len(h.tokens)+1))
	h.call("mint %s", id)
	h.tokens[id] = broker.TokenIssued
	return broker.BootstrapToken{ID: id, Secret: broker.NewTokenSecret("s3cret"), ExpiresAt: h.now.Add(r.TTL)}, nil
}

func (h *harness) emit(from broker.ProvisionedResourcePhase, e broker.Event) error {
	if h.stored[e.Head().ProvisionedResourceID].Phase != from {
		return fmt.Errorf("emit: %w", broker.ErrPhaseConflict)
	}
	h.append(e)
	return nil
}

// append adds to the outbox: one event per token.
func (h *harness) append(e broker.Event) {
	h.call("emit %s", e.EventType())
	if !slices.ContainsFunc(h.outbox, func(o broker.Event) bool { return o.Head().EventID == e.Head().EventID }) {
		h.outbox = append(h.outbox, e)
	}
}

func (h *harness) events() []broker.EventType {
	var types []broker.EventType
	for _, e := range h.outbox {
		types = append(types, e.EventType())
	}
	return types
}

// in stores a resource in a phase.
func (h *harness) in(phase broker.ProvisionedResourcePhase, token broker.BootstrapTokenID) broker.ProvisionedResource {
	h.Helper()
	s := broker.State{
		ID: "id-1", Project: "shop", Name: "web", Blueprint: request().Blueprint, Credential: "cloud",
		Deadline: time.Hour, Phase: phase, TokenID: token, CreatedAt: start, ConvergeStartedAt: start,
	}
	if slices.Contains(goingDown, phase) {
		s.DeletionRequestedAt = start
	}
	r, err := broker.Restore(s)
	if err != nil {
		h.Fatal(err)
	}
	h.stored[s.ID] = s
	if token != "" {
		h.tokens[token] = broker.TokenIssued
	}
	return r
}

func (h *harness) wantCalls(want ...string) {
	h.Helper()
	if !slices.Equal(h.calls, want) {
		h.Errorf("writes:\n got %q\nwant %q", h.calls, want)
	}
}

func (h *harness) wantEvents(want ...broker.EventType) {
	h.Helper()
	if got := h.events(); !slices.Equal(got, want) {
		h.Errorf("outbox: %q, want %q", got, want)
	}
}

func (h *harness) wantPhase(want broker.ProvisionedResourcePhase) {
	h.Helper()
	if got := h.stored["id-1"].Phase; got != want {
		h.Errorf("stored phase %s, want %s", got, want)
	}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
	for _, other := range sentinels {
		if !errors.Is(want, other) && errors.Is(err, other) {
			t.Errorf("the error is also %v: %v", other, err)
		}
	}
}

// sentinels is the closed set of the domain's errors.
var sentinels = []error{
	broker.ErrInvalidRequest, broker.ErrBlueprintNotFound, broker.ErrCloudCredentialNotFound,
	broker.ErrNamespaceUnavailable, broker.ErrProvisionedResourceExists, broker.ErrProvisionedResourceNotFound,
	broker.ErrPhaseConflict, broker.ErrBootstrapTokenFailed, broker.ErrNodeDeregistrationFailed,
}

func ptr[T any](v T) *T { return &v }

func blueprint() broker.BlueprintVersion {
	return broker.BlueprintVersion{
		Ref: broker.BlueprintVersionRef{Name: "node", Version: "1.2.0"},
		XR: broker.Template{
			ObjectType: broker.ObjectType{APIVersion: "example.org/v1", Kind: "XNode"},
			Spec:       []byte(`{"a":1,"b":"${xr.name}"}`),
		},
		ProviderConfig: broker.Template{
			ObjectType: broker.ObjectType{APIVersion: "hetzner.example.org/v1", Kind: "ProviderConfig"},
			Spec:       []byte(`{"secret":"${credential.name}"}`),
		},
		Provider: "hetzner", Injection: broker.InjectCloudInitUserData,
		Schema: broker.ParameterSchema{
			{Name: "region", Type: broker.TypeString, Required: true, Enum: []any{"north", "south"}},
			{Name: "size", Type: broker.TypeInteger, Default: 2, Minimum: ptr(1.0), Maximum: ptr(8.0)},
		},
	}
}

func request() broker.ProvisionRequest {
	return broker.ProvisionRequest{
		ID: "id-1", Project: "shop", Name: "web",
		Blueprint:  broker.BlueprintVersionRef{Name: "node", Version: "1.2.0"},
		Credential: "cloud", Parameters: map[string]any{"region": "north"},
	}
}
