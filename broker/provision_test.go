package broker_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/broker"
)

func TestProvision(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	r, err := h.service().Provision(ctx, request())
	if err != nil {
		t.Fatal(err)
	}
	got := r.State()
	if got.RequestDigest == "" {
		t.Error("no digest of the request is stored")
	}
	got.RequestDigest = ""
	want := broker.State{
		ID: "id-1", Project: "shop", Name: "web", Blueprint: request().Blueprint, Credential: "cloud",
		Parameters: broker.Parameters{"region": "north", "size": int64(2)}, Deadline: broker.DefaultDeadline,
		XR: blueprint().XR.ObjectType, ProviderConfig: blueprint().ProviderConfig.ObjectType,
		Phase: broker.PhasePending, CreatedAt: start, ConvergeStartedAt: start,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if !reflect.DeepEqual(h.stored["id-1"], r.State()) {
		t.Errorf("stored %+v, returned %+v", h.stored["id-1"], r.State())
	}
	h.wantEvents(broker.EventRequested)
	event := h.outbox[0].(broker.ProvisionedResourceRequested)
	if event.Blueprint != request().Blueprint || event.Credential != "cloud" || event.ProjectID != "shop" ||
		event.XRName != r.XRName() || !event.OccurredAt.Equal(start) || event.ProvisionedResourceID != "id-1" {
		t.Errorf("event %+v", event)
	}
}

func TestProvisionTakesTheBlueprintsDeadline(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.config.Blueprints = catalog(func(broker.BlueprintVersionRef) (broker.BlueprintVersion, error) {
		b := blueprint()
		b.Deadline = 5 * time.Minute
		return b, nil
	})
	r, err := h.service().Provision(ctx, request())
	if err != nil || r.State().Deadline != 5*time.Minute {
		t.Errorf("deadline %s, %v; want 5m", r.State().Deadline, err)
	}
}

// TestProvisionRefuses: a refusal names the field, and nothing is stored.
func TestProvisionRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*broker.ProvisionRequest, *broker.Config)
		want   error
		fields string
	}{
		"no id":         {func(r *broker.ProvisionRequest, _ *broker.Config) { r.ID = "" }, broker.ErrInvalidRequest, "id"},
		"an id of dirt": {func(r *broker.ProvisionRequest, _ *broker.Config) { r.ID = "a/../b" }, broker.ErrInvalidRequest, "id"},
		"a long id": {func(r *broker.ProvisionRequest, _ *broker.Config) {
			r.ID = broker.ProvisionedResourceID(strings.Repeat("x", 129))
		}, broker.ErrInvalidRequest, "id"},
		"no project": {func(r *broker.ProvisionRequest, _ *broker.Config) { r.Project = "" }, broker.ErrInvalidRequest, "project"},
		"a name that is no label, and no version": {func(r *broker.ProvisionRequest, _ *broker.Config) {
			r.Name, r.Blueprint.Version = "Web\n", ""
		}, broker.ErrInvalidRequest, "name blueprint.version"},
		"no blueprint":  {func(r *broker.ProvisionRequest, _ *broker.Config) { r.Blueprint.Name = "" }, broker.ErrInvalidRequest, "blueprint.name"},
		"no credential": {func(r *broker.ProvisionRequest, _ *broker.Config) { r.Credential = "" }, broker.ErrInvalidRequest, "credential"},
		"parameters off schema": {func(r *broker.ProvisionRequest, _ *broker.Config) {
			r.Parameters = map[string]any{"size": 9.0, "x": 1.0}
		}, broker.ErrInvalidRequest, "parameters.region parameters.size parameters.x"},
		"parameters that JSON does not have": {func(r *broker.ProvisionRequest, _ *broker.Config) {
			r.Parameters["x"] = make(chan int)
		}, broker.ErrInvalidRequest, "parameters"},
		"an unknown blueprint": {func(_ *broker.ProvisionRequest, c *broker.Config) {
			c.Blueprints = catalog(func(broker.BlueprintVersionRef) (broker.BlueprintVersion, error) {
				return broker.BlueprintVersion{}, broker.ErrBlueprintNotFound
			})
		}, broker.ErrBlueprintNotFound, "blueprint"},
		"a blueprint that is broken": {func(_ *broker.ProvisionRequest, c *broker.Config) {
			c.Blueprints = catalog(func(broker.BlueprintVersionRef) (broker.BlueprintVersion, error) {
				return broker.BlueprintVersion{Provider: "hetzner"}, nil
			})
		}, broker.ErrInvalidRequest, "blueprint"},
		"a credential that is not the project's": {func(_ *broker.ProvisionRequest, c *broker.Config) {
			c.Credentials = directory(func(broker.CloudCredentialRef) (broker.CloudCredential, error) {
				return broker.CloudCredential{}, broker.ErrCloudCredentialNotFound
			})
		}, broker.ErrCloudCredentialNotFound, "credential"},
		"a credential for another cloud": {func(_ *broker.ProvisionRequest, c *broker.Config) {
			c.Credentials = directory(func(ref broker.CloudCredentialRef) (broker.CloudCredential, error) {
				return broker.CloudCredential{Ref: ref, Provider: "aws"}, nil
			})
		}, broker.ErrInvalidRequest, "credential"},
		"a terminating namespace": {func(_ *broker.ProvisionRequest, c *broker.Config) {
			c.Namespaces = inState(broker.NamespaceTerminating)
		}, broker.ErrNamespaceUnavailable, "project"},
		"a missing namespace": {func(_ *broker.ProvisionRequest, c *broker.Config) {
			c.Namespaces = inState(broker.NamespaceMissing)
		}, broker.ErrNamespaceUnavailable, "project"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			r := request()
			test.change(&r, &h.config)
			_, err := h.service().Provision(ctx, r)
			wantError(t, err, test.want)
			if got := fieldsOf(err); got != test.fields {
				t.Errorf("fields %q, want %q; the error is %v", got, test.fields, err)
			}
			h.wantCalls()
		})
	}
}

func inState(s broker.NamespaceState) gate {
	return func(broker.ProjectID) (broker.NamespaceState, error) { return s, nil }
}

func fieldsOf(err error) string {
	var fields broker.FieldErrors
	errors.As(err, &fields)
	var names []string
	for _, f := range fields {
		names = append(names, f.Field)
	}
	return strings.Join(names, " ")
}

// TestProvisionNamesEveryFault: the error names all faults, so that a person can fix them
// at once.
func TestProvisionNamesEveryFault(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.config.Namespaces = inState(broker.NamespaceTerminating)
	h.config.Credentials = directory(func(broker.CloudCredentialRef) (broker.CloudCredential, error) {
		return broker.CloudCredential{}, broker.ErrCloudCredentialNotFound
	})
	r := request()
	r.Parameters["region"] = "west"
	_, err := h.service().Provision(ctx, r)
	for _, want := range []error{broker.ErrNamespaceUnavailable, broker.ErrCloudCredentialNotFound, broker.ErrInvalidRequest} {
		if !errors.Is(err, want) {
			t.Errorf("%v is missing in %v", want, err)
		}
	}
	if got, want := fieldsOf(err), "project parameters.region credential"; got != want {
		t.Errorf("fields %q, want %q", got, want)
	}
	h.wantCalls()
}

func TestProvisionWaitsForANamespaceThatIsNotReady(t *testing.T) {
	t.Parallel()
	for _, state := range []broker.NamespaceState{broker.NamespacePending, "Degraded"} {
		h := newHarness(t)
		h.config.Namespaces = inState(state)
		if r, err := h.service().Provision(ctx, request()); err != nil || r.Phase() != broker.PhasePending {
			t.Errorf("%s: %s, %v; want Pending", state, r.Phase(), err)
		}
	}
}

// TestProvisionAgain: a repeated request returns the current state of the first one, even
// if it would be refused now.
func TestProvisionAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	first, err := h.service().Provision(ctx, request())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.service().Advance(ctx, first, broker.PhaseProvisioning, ""); err != nil {
		t.Fatal(err)
	}
	h.config.Namespaces = inState(broker.NamespaceTerminating)
	calls := slices.Clone(h.calls)
	again, err := h.service().Provision(ctx, request())
	if err != nil || again.Phase() != broker.PhaseProvisioning {
		t.Errorf("got %s, %v; want Provisioning", again.Phase(), err)
	}
	h.wantCalls(calls...)

	other := request()
	other.Parameters = map[string]any{"region": "south"}
	_, err = h.service().Provision(ctx, other)
	wantError(t, err, broker.ErrProvisionedResourceExists)
	if got := fieldsOf(err); got != "id" {
		t.Errorf("field %q, want id", got)
	}
}

func TestProvisionTakenName(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	if _, err := h.service().Provision(ctx, request()); err != nil {
		t.Fatal(err)
	}
	second := request()
	second.ID = "id-2"
	_, err := h.service().Provision(ctx, second)
	wantError(t, err, broker.ErrProvisionedResourceExists)
	if got := fieldsOf(err); got != "name" {
		t.Errorf("field %q, want name", got)
	}
	h.wantEvents(broker.EventRequested)
}

// TestProvisionRace: two equal requests run concurrently; the slower one finds the row
// only when it writes.
func TestProvisionRace(t *testing.T) {
	t.Parallel()
	for name, faster := range map[string]func(*broker.ProvisionRequest){
		"the same request":    func(*broker.ProvisionRequest) {},
		"another with its id": func(r *broker.ProvisionRequest) { r.Name = "db" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			other := request()
			faster(&other)
			h.config.Namespaces = gate(func(broker.ProjectID) (broker.NamespaceState, error) {
				if len(h.stored) == 0 {
					winner := newHarness(t)
					if _, err := winner.service().Provision(ctx, other); err != nil {
						t.Error(err)
					}
					h.stored, h.outbox = winner.stored, winner.outbox
				}
				return broker.NamespaceReady, nil
			})
			r, err := h.service().Provision(ctx, request())
			if other.Name == request().Name {
				if err != nil || r.ID() != "id-1" {
					t.Errorf("got %q, %v; want that of the first request", r.ID(), err)
				}
			} else {
				wantError(t, err, broker.ErrProvisionedResourceExists)
			}
			h.wantEvents(broker.EventRequested)
		})
	}
}

// TestProvisionPortsFail: the service returns an error of a port unchanged and concludes
// nothing from it.
func TestProvisionPortsFail(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*harness){
		"repository, reading": func(h *harness) {
			h.repository.get = func(broker.ProvisionedResourceID) (broker.ProvisionedResource, error) {
				return broker.ProvisionedResource{}, errDown
			}
		},
		"repository, writing": func(h *harness) {
			h.repository.create = func(broker.ProvisionedResource) error { return errDown }
		},
		"repository, reading again": func(h *harness) {
			h.repository.create = func(broker.ProvisionedResource) error {
				h.repository.get = func(broker.ProvisionedResourceID) (broker.ProvisionedResource, error) {
					return broker.ProvisionedResource{}, errDown
				}
				return broker.ErrProvisionedResourceExists
			}
		},
		"blueprints": func(h *harness) {
			h.config.Blueprints = catalog(func(broker.BlueprintVersionRef) (broker.BlueprintVersion, error) {
				return broker.BlueprintVersion{}, errDown
			})
		},
		"credentials": func(h *harness) {
			h.config.Credentials = directory(func(broker.CloudCredentialRef) (broker.CloudCredential, error) {
				return broker.CloudCredential{}, errDown
			})
		},
		"namespaces": func(h *harness) {
			h.config.Namespaces = gate(func(broker.ProjectID) (broker.NamespaceState, error) { return "", errDown })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			fail(h)
			_, err := h.service().Provision(ctx, request())
			wantError(t, err, errDown)
			h.wantCalls()
		})
	}
}
