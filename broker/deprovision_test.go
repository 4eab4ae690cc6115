package broker_test

import (
	"testing"

	"github.com/exeunt/exeunt/broker"
)

// TestDeprovision: in every phase of the way up, the service first records the intent,
// then revokes the token.
func TestDeprovision(t *testing.T) {
	t.Parallel()
	for _, phase := range broker.Phases()[:5] {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.in(phase, "t1")
			r, err := h.service().Deprovision(ctx, "id-1")
			if err != nil {
				t.Fatal(err)
			}
			if r.Phase() != broker.PhaseDeregistering || !r.State().DeletionRequestedAt.Equal(start) {
				t.Errorf("got %+v", r.State())
			}
			h.wantCalls("record deletion of id-1", "emit broker.ProvisionedResourceDeleting", "revoke t1")
			h.wantPhase(broker.PhaseDeregistering)
			if h.tokens["t1"] != broker.TokenRevoked {
				t.Errorf("the token is %s", h.tokens["t1"])
			}
		})
	}
}

func TestDeprovisionAgain(t *testing.T) {
	t.Parallel()
	for phase, want := range map[broker.ProvisionedResourcePhase][]string{
		broker.PhaseDeregistering:  {"revoke t1"}, // the first call may have failed before it
		broker.PhaseDeprovisioning: {"revoke t1"},
		broker.PhaseDeleted:        nil,
	} {
		h := newHarness(t)
		h.in(phase, "t1")
		h.now = start.Add(1e9)
		r, err := h.service().Deprovision(ctx, "id-1")
		if err != nil || r.Phase() != phase || !r.State().DeletionRequestedAt.Equal(start) {
			t.Errorf("%s: got %+v, %v", phase, r.State(), err)
		}
		h.wantCalls(want...)
		h.wantEvents()
	}
}

func TestDeprovisionWithoutToken(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.in(broker.PhasePending, "")
	if _, err := h.service().Deprovision(ctx, "id-1"); err != nil {
		t.Fatal(err)
	}
	h.wantCalls("record deletion of id-1", "emit broker.ProvisionedResourceDeleting")
}

func TestDeprovisionUnknown(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	_, err := h.service().Deprovision(ctx, "unknown")
	wantError(t, err, broker.ErrProvisionedResourceNotFound)

	h.in(broker.PhaseReady, "t1")
	h.repository.recordDel = func(broker.ProvisionedResource) error { return broker.ErrProvisionedResourceNotFound }
	_, err = h.service().Deprovision(ctx, "id-1")
	wantError(t, err, broker.ErrProvisionedResourceNotFound)
	h.wantCalls()
}

// TestDeprovisionTwiceAtOnce: the slower of two calls finds the recorded intent. There is
// one event.
func TestDeprovisionTwiceAtOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.in(broker.PhaseReady, "t1")
	h.repository.recordDel = func(r broker.ProvisionedResource) error {
		h.repository.recordDel = h.recordDel
		if _, err := h.service().Deprovision(ctx, "id-1"); err != nil {
			t.Error(err)
		}
		return h.recordDel(r)
	}
	if _, err := h.service().Deprovision(ctx, "id-1"); err != nil {
		t.Fatal(err)
	}
	h.wantEvents(broker.EventDeleting)
}

// TestDeprovisionRevokesTheLastToken: a round binds another token between the read and the
// record. The service revokes that one too.
func TestDeprovisionRevokesTheLastToken(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	r := h.in(broker.PhaseEnrolling, "t1")
	h.tokens["t1"] = broker.TokenExpired
	h.repository.recordDel = func(advanced broker.ProvisionedResource) error {
		if _, _, err := h.service().MintToken(ctx, r); err != nil {
			t.Error(err)
		}
		return h.recordDel(advanced)
	}
	if _, err := h.service().Deprovision(ctx, "id-1"); err != nil {
		t.Fatal(err)
	}
	for id, state := range h.tokens {
		if state == broker.TokenIssued {
			t.Errorf("%s can still be used", id)
		}
	}
}

// TestDeprovisionFailsInBetween: the recorded intent stays, and a second call or Next does
// the rest.
func TestDeprovisionFailsInBetween(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.in(broker.PhaseEnrolling, "t1")
	revoke := h.issuer.revoke
	h.issuer.revoke = func(broker.BootstrapTokenID) error { return errDown }
	r, err := h.service().Deprovision(ctx, "id-1")
	wantError(t, err, broker.ErrBootstrapTokenFailed)
	wantError(t, unwrapOnce(err), errDown)
	if r.Phase() != broker.PhaseDeregistering {
		t.Errorf("the returned phase is %s", r.Phase())
	}
	h.wantPhase(broker.PhaseDeregistering)

	action, phase := broker.Next(broker.ObservedXR{Token: h.tokens["t1"], XRExists: true}, h.stored["id-1"].Phase)
	if action != broker.ActionRevokeToken || phase != broker.PhaseDeregistering {
		t.Errorf("Next answers %s, %s", action, phase)
	}
	h.issuer.revoke = revoke
	if _, err := h.service().Deprovision(ctx, "id-1"); err != nil {
		t.Fatal(err)
	}
	h.wantEvents(broker.EventDeleting)
	if h.tokens["t1"] != broker.TokenRevoked {
		t.Errorf("the token is %s", h.tokens["t1"])
	}
}

// TestDeprovisionNotRecorded: if the intent cannot be recorded, nothing else happens.
func TestDeprovisionNotRecorded(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*harness){
		"reading": func(h *harness) {
			h.repository.get = func(broker.ProvisionedResourceID) (broker.ProvisionedResource, error) {
				return broker.ProvisionedResource{}, errDown
			}
		},
		"recording": func(h *harness) {
			h.repository.recordDel = func(broker.ProvisionedResource) error { return errDown }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			h.in(broker.PhaseReady, "t1")
			fail(h)
			_, err := h.service().Deprovision(ctx, "id-1")
			wantError(t, err, errDown)
			h.wantCalls()
			h.wantPhase(broker.PhaseReady)
		})
	}
}

func TestDeprovisionCannotReadBack(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.in(broker.PhaseReady, "t1")
	h.repository.recordDel = func(r broker.ProvisionedResource) error {
		h.repository.get = func(broker.ProvisionedResourceID) (broker.ProvisionedResource, error) {
			return broker.ProvisionedResource{}, errDown
		}
		return h.recordDel(r)
	}
	_, err := h.service().Deprovision(ctx, "id-1")
	wantError(t, err, errDown)
	h.wantPhase(broker.PhaseDeregistering)
}
