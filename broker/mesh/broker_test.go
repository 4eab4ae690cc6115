package mesh

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/store"
)

// mintFor makes a token for a provisioned resource, a moment after the last.
func (w *world) mintFor(resource string) v1alpha1.Token {
	w.Helper()
	w.clock.Advance(time.Millisecond)
	t, err := w.mesh.Mint(w.Context(), Order{Project: "shop", Resource: resource, TTL: time.Hour, Actor: brokerActor})
	if err != nil {
		w.Fatal(err)
	}
	return t
}

// failing is a reviewer whose reviews fail.
type failing struct{ err error }

func (f failing) Review(_ context.Context, _ review.Tx, _ time.Time, tasks []review.Task) ([]review.Verdict, error) {
	verdicts := make([]review.Verdict, len(tasks))
	for i := range verdicts {
		verdicts[i] = review.Failed(f.err)
	}
	return verdicts, nil
}

// TestDeregisterNamesItsStep: the status names the step of a deregistration that
// failed, until the step succeeds.
func TestDeregisterNamesItsStep(t *testing.T) {
	each(t, func(w *world) {
		n := w.enrol("web")
		id := broker.BootstrapTokenID(n.token.ID)
		expect := func(err error, step broker.DeregistrationStep, text string) {
			t.Helper()
			var failed *broker.DeregistrationError
			if !errors.As(err, &failed) || failed.Step != step || !strings.Contains(err.Error(), text) {
				t.Errorf("%v; want step %s and %q", err, step, text)
			}
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		err := w.mesh.Ports().Deregister(over, id)
		expect(err, broker.StepLookup, "lookup: ")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the cause is lost: %v", err)
		}

		closed, err := store.Open(t.Context(), store.Options{DB: w.db, Now: w.clock.Now, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := closed.Close(); err != nil {
			t.Fatal(err)
		}
		expect(w.newMesh(w.db, closed).Ports().Deregister(t.Context(), id), broker.StepDrain, "drain: drain node web: ")
		if o := w.object("web"); o == nil || o.DeletionTimestamp != nil {
			t.Fatalf("a drain that failed was asked for: %+v", o)
		}

		w.denied("deregister", w.mesh.Ports().Deregister(t.Context(), id), "")
		broken, err := review.New(w.db, queue, failing{errors.New("disk full")}, review.Transactions(w.db), review.Options{Now: w.clock.Now, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := broken.RunOne(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(w.mesh.Ports().Deregister(t.Context(), id), broker.StepRemoval, "removal: review of node web: disk full")

		w.clock.Advance(time.Hour)
		w.review()
		w.denied("deregister after the removal", w.mesh.Ports().Deregister(t.Context(), id), "")
		if w.registered(n.token) {
			t.Error("the node is still registered")
		}
		w.check()
	})
}

// TestPorts calls the ports in the order in which the broker does for a node.
func TestPorts(t *testing.T) {
	each(t, func(w *world) {
		p, ctx := w.mesh.Ports(), t.Context()
		mint := func() (broker.BootstrapToken, error) {
			return p.Mint(ctx, broker.MintRequest{Resource: "r", Project: "shop", TTL: time.Hour})
		}
		expect := func(what string, id broker.BootstrapTokenID, state broker.TokenState, node bool) {
			t.Helper()
			got, err := p.State(ctx, id)
			if err != nil || got != state {
				t.Errorf("%s: state %q, %v; want %q", what, got, err, state)
			}
			registered, err := p.NodeRegistered(ctx, id)
			if err != nil || registered != node {
				t.Errorf("%s: registered %t, %v", what, registered, err)
			}
		}
		expect("no such token", "aaaaaaaaaaaaaaaa", broker.TokenRevoked, false)
		for _, err := range []error{p.Revoke(ctx, "aaaaaaaaaaaaaaaa"), p.Deregister(ctx, "aaaaaaaaaaaaaaaa")} {
			w.denied("a token that is not known", err, "")
		}
		lost, err := mint()
		w.denied("mint", err, "")
		token, err := mint()
		w.denied("mint again", err, "")
		expect("replaced", lost.ID, broker.TokenRevoked, false)
		expect("minted", token.ID, broker.TokenIssued, false)
		w.denied("deregister before a node enrolled", p.Deregister(ctx, token.ID), "")

		n := w.enrolBy(v1alpha1.Token{ID: string(token.ID), Project: "shop", Text: token.Secret.Reveal()}, "web")
		expect("enrolled", token.ID, broker.TokenConsumed, true)
		if got := w.object("web").Spec.ProvisionedResource; got != "r" {
			t.Errorf("the node is of %q", got)
		}
		w.denied("revoke too late", p.Revoke(ctx, token.ID), "")
		expect("revoked too late", token.ID, broker.TokenConsumed, true)
		_, err = mint()
		w.denied("mint while the node is there", err, v1alpha1.ReasonNodeRegistered)

		for range 2 {
			w.denied("deregister", p.Deregister(ctx, token.ID), "")
		}
		w.review()
		expect("draining", token.ID, broker.TokenConsumed, true)
		reasons, err := p.Holding(ctx, token.ID)
		deadline := w.object("web").Status.DrainDeadline.UTC().Format(time.RFC3339)
		if err != nil || len(reasons) != 1 || reasons[0].Holder != broker.HolderPeer || reasons[0].Name != "web" ||
			reasons[0].Message != "it sends heartbeats; draining, removed without acknowledgement at "+deadline {
			t.Errorf("holding: %+v, %v", reasons, err)
		}
		w.denied("drained", w.mesh.Drained(ctx, n.Node), "")
		expect("gone", token.ID, broker.TokenConsumed, false)
		w.denied("deregister when it is gone", p.Deregister(ctx, token.ID), "")
		if reasons, err := p.Holding(ctx, token.ID); err != nil || len(reasons) != 0 {
			t.Errorf("holding when it is gone: %+v, %v", reasons, err)
		}
		_, err = mint()
		w.denied("mint after the node has left", err, "")
		w.check()
	})
}
