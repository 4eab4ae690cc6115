package broker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/broker"
)

// unwrapOnce removes the domain's error and returns its cause.
func unwrapOnce(err error) error {
	for {
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			return many.Unwrap()[1]
		}
		if err = errors.Unwrap(err); err == nil {
			return nil
		}
	}
}

func TestAdvanceEmitsThenPersists(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		from, to broker.ProvisionedResourcePhase
		event    broker.EventType // empty if the transition has no event
	}{
		{broker.PhasePending, broker.PhaseProvisioning, ""},
		{broker.PhaseProvisioning, broker.PhaseEnrolling, ""},
		{broker.PhaseEnrolling, broker.PhaseReady, broker.EventReady},
		{broker.PhaseReady, broker.PhaseProvisioning, ""},
		{broker.PhaseProvisioning, broker.PhasePending, ""},
		{broker.PhaseEnrolling, broker.PhaseFailed, broker.EventFailed},
		{broker.PhaseDeregistering, broker.PhaseDeprovisioning, ""},
		{broker.PhaseDeprovisioning, broker.PhaseDeregistering, ""},
		{broker.PhaseDeprovisioning, broker.PhaseDeleted, broker.EventDeleted},
		{broker.PhaseDeregistering, broker.PhaseDeleted, broker.EventDeleted},
		{unknown, broker.PhasePending, ""},
	} {
		h := newHarness(t)
		r, err := h.service().Advance(ctx, h.in(test.from, "t1"), test.to, "no more machines")
		if err != nil || r.Phase() != test.to {
			t.Errorf("%s to %s: got %s, %v", test.from, test.to, r.Phase(), err)
		}
		update := fmt.Sprintf("update %s to %s", test.from, test.to)
		if test.event == "" {
			h.wantCalls(update)
			continue
		}
		h.wantCalls("emit "+string(test.event), update)
		if failed, ok := h.outbox[0].(broker.ProvisionedResourceFailed); ok && failed.Reason != "no more machines" {
			t.Errorf("the reason is %q", failed.Reason)
		}
		head := h.outbox[0].Head()
		if head.XRName != r.XRName() || head.ProjectID != "shop" || head.ProvisionedResourceID != "id-1" || !head.OccurredAt.Equal(start) {
			t.Errorf("head %+v", head)
		}
	}
}

func TestAdvanceWithoutChange(t *testing.T) {
	t.Parallel()
	for _, phase := range phases() {
		h := newHarness(t)
		if r, err := h.service().Advance(ctx, h.in(phase, ""), phase, ""); err != nil || r.Phase() != phase {
			t.Errorf("%s: got %s, %v", phase, r.Phase(), err)
		}
		h.wantCalls()
	}
}

// TestAdvanceRefuses: a transition that Next never returns is refused before anything is
// written.
func TestAdvanceRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		from, to broker.ProvisionedResourcePhase
	}{
		{broker.PhaseDeregistering, broker.PhaseReady},
		{broker.PhaseDeprovisioning, broker.PhasePending},
		{broker.PhaseDeleted, broker.PhaseDeregistering},
		{broker.PhaseDeleted, broker.PhasePending},
		{broker.PhaseReady, broker.PhaseDeregistering},
		{broker.PhasePending, broker.PhaseDeleted},
		{broker.PhaseFailed, broker.PhaseReady},
		{broker.PhaseReady, unknown},
		{broker.PhaseReady, ""},
	} {
		h := newHarness(t)
		_, err := h.service().Advance(ctx, h.in(test.from, ""), test.to, "")
		if !errors.Is(err, broker.ErrPhaseConflict) {
			t.Errorf("%s to %s: %v, want a conflict", test.from, test.to, err)
		}
		h.wantCalls()
	}
}

// TestAdvanceDiesInBetween: the event is stored, the phase is not. The next round repeats
// both, and the outbox has one event.
func TestAdvanceDiesInBetween(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		from, to broker.ProvisionedResourcePhase
	}{
		{broker.PhaseEnrolling, broker.PhaseReady},
		{broker.PhaseProvisioning, broker.PhaseFailed},
		{broker.PhaseDeprovisioning, broker.PhaseDeleted},
	} {
		h := newHarness(t)
		r := h.in(test.from, "t1")
		h.repository.update = func(broker.ProvisionedResourcePhase, broker.ProvisionedResource) error { return errDown }
		same, err := h.service().Advance(ctx, r, test.to, "why")
		wantError(t, err, errDown)
		if same.Phase() != test.from {
			t.Errorf("the returned phase is %s", same.Phase())
		}
		h.wantPhase(test.from)
		first := h.outbox[0]

		h.repository.update = h.update
		h.now = start.Add(time.Minute)
		read, err := h.get("id-1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.service().Advance(ctx, read, test.to, "why"); err != nil {
			t.Fatal(err)
		}
		h.wantPhase(test.to)
		h.wantEvents(first.EventType())
	}
}

// TestAdvanceCannotEmit: if the event cannot be stored, the phase stays: otherwise the
// change would never be published.
func TestAdvanceCannotEmit(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	r := h.in(broker.PhaseDeprovisioning, "t1")
	h.config.Emitter = emitter(func(broker.ProvisionedResourcePhase, broker.Event) error { return errDown })
	_, err := h.service().Advance(ctx, r, broker.PhaseDeleted, "")
	wantError(t, err, errDown)
	h.wantCalls()
	h.wantPhase(broker.PhaseDeprovisioning)
}

// TestAdvanceAfterDeprovision: a slow round must not move a resource out of its teardown,
// nor publish that it is ready.
func TestAdvanceAfterDeprovision(t *testing.T) {
	t.Parallel()
	for _, to := range []broker.ProvisionedResourcePhase{broker.PhaseReady, broker.PhaseProvisioning} {
		h := newHarness(t)
		slow := h.in(broker.PhaseEnrolling, "t1")
		if _, err := h.service().Deprovision(ctx, "id-1"); err != nil {
			t.Fatal(err)
		}
		_, err := h.service().Advance(ctx, slow, to, "")
		wantError(t, err, broker.ErrPhaseConflict)
		h.wantPhase(broker.PhaseDeregistering)
		h.wantEvents(broker.EventDeleting)
	}
}

// TestReadyAgain: a resource that recovers gets a new deadline, and no second
// Ready event.
func TestReadyAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	r := h.in(broker.PhaseEnrolling, "t1")
	var err error
	for i, to := range []broker.ProvisionedResourcePhase{broker.PhaseReady, broker.PhaseProvisioning, broker.PhaseReady} {
		h.now = start.Add(time.Duration(i*100) * time.Hour)
		if r, err = h.service().Advance(ctx, r, to, ""); err != nil {
			t.Fatal(err)
		}
		if r.Overdue(h.now) {
			t.Errorf("overdue when it becomes %s", to)
		}
	}
	if want := start.Add(100 * time.Hour); !r.State().ConvergeStartedAt.Equal(want) {
		t.Errorf("the time counts from %s, want %s", r.State().ConvergeStartedAt, want)
	}
	h.wantEvents(broker.EventReady)
}

func TestMintToken(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.config.TokenTTL = 30 * time.Minute
	r, token, err := h.service().MintToken(ctx, h.in(broker.PhasePending, ""))
	if err != nil || r.TokenID() != token.ID || token.Secret.Reveal() != "s3cret" || !token.ExpiresAt.Equal(start.Add(30*time.Minute)) {
		t.Errorf("got %s, %+v, %v", r.TokenID(), token, err)
	}
	h.wantCalls("mint token-1", "bind token-1")
}

// TestMintTokenLate: deletion was requested after the round began. The round
// revokes the new token before any machine has it.
func TestMintTokenLate(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	slow := h.in(broker.PhasePending, "")
	if _, err := h.service().Deprovision(ctx, "id-1"); err != nil {
		t.Fatal(err)
	}
	h.calls = nil
	_, token, err := h.service().MintToken(ctx, slow)
	wantError(t, err, broker.ErrPhaseConflict)
	if token != (broker.BootstrapToken{}) {
		t.Errorf("a token is returned: %v", token)
	}
	h.wantCalls("mint token-1", "revoke token-1")

	h.calls = nil
	known, _ := h.get("id-1")
	_, _, err = h.service().MintToken(ctx, known)
	wantError(t, err, broker.ErrPhaseConflict)
	h.wantCalls()
}

func TestMintTokenFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*harness){
		"minting": func(h *harness) {
			h.issuer.mint = func(broker.MintRequest) (broker.BootstrapToken, error) { return broker.BootstrapToken{}, errDown }
		},
		"binding": func(h *harness) {
			h.repository.bind = func(broker.ProvisionedResourceID, broker.BootstrapTokenID, broker.BootstrapTokenID) error {
				return errDown
			}
		},
		"a token without an id": func(h *harness) {
			h.issuer.mint = func(broker.MintRequest) (broker.BootstrapToken, error) { return broker.BootstrapToken{}, nil }
		},
	} {
		h := newHarness(t)
		r := h.in(broker.PhaseProvisioning, "t1")
		fail(h)
		same, token, err := h.service().MintToken(ctx, r)
		wantError(t, err, broker.ErrBootstrapTokenFailed)
		if same.TokenID() != "t1" || token != (broker.BootstrapToken{}) {
			t.Errorf("%s: got %s, %v", name, same.TokenID(), token)
		}
	}
}

func TestDeregisterNode(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	var asked []broker.BootstrapTokenID
	var answer error
	nodes := deregistrar{deregister: func(id broker.BootstrapTokenID) error {
		asked = append(asked, id)
		return answer
	}}
	if err := broker.DeregisterNode(ctx, nodes, h.in(broker.PhaseDeregistering, "")); err != nil || len(asked) > 0 {
		t.Errorf("without a token: asked for %q, %v", asked, err)
	}
	r := h.in(broker.PhaseDeregistering, "t1")
	if err := broker.DeregisterNode(ctx, nodes, r); err != nil || len(asked) != 1 || asked[0] != "t1" {
		t.Errorf("asked for %q, %v", asked, err)
	}
	answer = errDown
	err := broker.DeregisterNode(ctx, nodes, r)
	wantError(t, err, broker.ErrNodeDeregistrationFailed)
	wantError(t, unwrapOnce(err), errDown)
	for _, step := range []broker.DeregistrationStep{broker.StepLookup, broker.StepDrain, broker.StepRemoval} {
		answer = &broker.DeregistrationError{Step: step, Err: errDown}
		err := broker.DeregisterNode(ctx, nodes, r)
		wantError(t, err, broker.ErrNodeDeregistrationFailed)
		wantError(t, unwrapOnce(err), errDown)
		var failed *broker.DeregistrationError
		if !errors.As(err, &failed) || failed.Step != step || !strings.Contains(err.Error(), string(step)+": "+errDown.Error()) {
			t.Errorf("step %s: %v", step, err)
		}
	}
}

func TestTokenSecretStaysSecret(t *testing.T) {
	t.Parallel()
	token := broker.BootstrapToken{ID: "t1", Secret: broker.NewTokenSecret("s3cret")}
	data, err := json.Marshal(token)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("minted", "token", token, "secret", token.Secret)
	slog.New(slog.NewTextHandler(&log, nil)).Info("minted", "token", token, "secret", token.Secret)
	all := fmt.Sprintf("%v %+v %#v %s %q %s %s", token, token, token, token.Secret, token.Secret, data, log.String())
	if strings.Contains(all, "s3cret") {
		t.Errorf("the secret is printed: %s", all)
	}
}
