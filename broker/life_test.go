package broker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/exeunt/exeunt/broker"
)

// life is a harness with a cluster and a mesh around it, and the loop that runs rounds.
// The process can die at any write, before or after it.
type life struct {
	*harness
	xr, provider bool // the XR and the ProviderConfig exist
	delivered    broker.BootstrapTokenID
	node         bool
	drained      bool // Deregister was called; the node leaves after the round

	writes int  // done so far
	dieAt  int  // the write at which the process dies; 0 if there is none
	after  bool // it dies after that write, not before
}

func newLife(t *testing.T, dieAt int, after bool) *life {
	l := &life{harness: newHarness(t), dieAt: dieAt, after: after}
	l.repository.create = func(r broker.ProvisionedResource) error { return l.write(func() error { return l.create(r) }) }
	l.repository.update = func(from broker.ProvisionedResourcePhase, r broker.ProvisionedResource) error {
		return l.write(func() error { return l.update(from, r) })
	}
	l.repository.bind = func(id broker.ProvisionedResourceID, previous, token broker.BootstrapTokenID) error {
		return l.write(func() error { return l.bind(id, previous, token) })
	}
	l.repository.recordDel = func(r broker.ProvisionedResource) error { return l.write(func() error { return l.recordDel(r) }) }
	revoke, mint := l.issuer.revoke, l.issuer.mint
	l.issuer.revoke = func(id broker.BootstrapTokenID) error { return l.write(func() error { return revoke(id) }) }
	l.issuer.mint = func(r broker.MintRequest) (token broker.BootstrapToken, err error) {
		err = l.write(func() error { token, err = mint(r); return err })
		return token, err
	}
	l.harness.config.Emitter = emitter(func(from broker.ProvisionedResourcePhase, e broker.Event) error {
		return l.write(func() error { return l.emit(from, e) })
	})
	return l
}

func (l *life) write(do func() error) error {
	l.writes++
	if l.writes != l.dieAt {
		return do()
	}
	if l.after {
		if err := do(); err != nil {
			return err
		}
	}
	return errDown
}

// change is a write to the cluster or the mesh.
func (l *life) change(what string, do func()) error {
	return l.write(func() error {
		l.call("%s", what)
		do()
		return nil
	})
}

func (l *life) Deregister(context.Context, broker.BootstrapTokenID) error {
	return l.change("drain", func() { l.drained = true })
}

func (l *life) NodeRegistered(context.Context, broker.BootstrapTokenID) (bool, error) {
	return l.node, nil
}

// turn runs one round: observe, decide, apply, emit and persist.
func (l *life) turn() error {
	r, err := l.get("id-1")
	if err != nil {
		return err
	}
	reads := broker.Reads{
		Token: l.tokens[r.TokenID()], NodeRegistered: l.node, Namespace: broker.NamespaceReady, Overdue: r.Overdue(l.now),
		Substrate: broker.ObservedSubstrate{ProviderConfigExists: l.provider, SecretExists: l.delivered != "", XRExists: l.xr, XRReady: l.xr, DeliveredToken: l.delivered},
	}
	observed := broker.Fold(r, reads)
	action, to := broker.Next(observed, r.Phase())
	if r, err = l.apply(r, action, observed); err != nil {
		return err
	}
	_, err = l.service().Advance(ctx, r, to, broker.Why(observed, to))
	return err
}

func (l *life) apply(r broker.ProvisionedResource, action broker.Action, o broker.ObservedXR) (broker.ProvisionedResource, error) {
	switch action {
	case broker.ActionMintToken:
		minted, token, err := l.service().MintToken(ctx, r)
		if err != nil {
			return r, err
		}
		return minted, l.change("deliver", func() { l.delivered = token.ID })
	case broker.ActionApplySubstrate:
		if err := l.change("apply ProviderConfig", func() { l.provider = true }); err != nil || o.XRExists {
			return r, err
		}
		return r, l.change("create XR", func() { l.xr = true })
	case broker.ActionDeregisterNode:
		return r, broker.DeregisterNode(ctx, l, r)
	case broker.ActionRevokeToken:
		return r, l.service().RevokeToken(ctx, r)
	case broker.ActionDeleteSubstrate:
		return r, l.change("delete XR", func() {
			if l.node {
				l.Error("the XR is deleted while its node is in the mesh")
			}
			l.xr = false
		})
	case broker.ActionDeleteProviderConfig:
		return r, l.change("delete ProviderConfig", func() {
			if l.xr {
				l.Error("the ProviderConfig is deleted before the XR")
			}
			l.provider, l.delivered = false, ""
		})
	}
	return r, nil
}

// until runs rounds, and between them what the cluster and the mesh do by themselves.
func (l *life) until(phase broker.ProvisionedResourcePhase) {
	l.Helper()
	for range 20 {
		err := l.turn()
		if l.drained {
			l.node, l.drained = false, false
		}
		if l.xr && l.delivered != "" && l.tokens[l.delivered] == broker.TokenIssued {
			l.tokens[l.delivered], l.node = broker.TokenConsumed, true
		}
		if err == nil && l.stored["id-1"].Phase == phase {
			return
		}
	}
	l.Fatalf("%s is not reached: %+v; writes %q", phase, l.stored["id-1"], l.calls)
}

// run is a whole life. A client without an answer repeats its request.
func (l *life) run() {
	l.Helper()
	again := func(do func() error) {
		l.Helper()
		if do() == nil {
			return
		}
		if err := do(); err != nil {
			l.Fatal(err)
		}
	}
	again(func() error { _, err := l.service().Provision(ctx, request()); return err })
	l.until(broker.PhaseReady)
	again(func() error { _, err := l.service().Deprovision(ctx, "id-1"); return err })
	l.until(broker.PhaseDeleted)
	if l.node || l.xr || l.provider || l.delivered != "" {
		l.Errorf("left behind: node %t, XR %t, ProviderConfig %t, secret of %q", l.node, l.xr, l.provider, l.delivered)
	}
	for id, state := range l.tokens {
		if state == broker.TokenIssued {
			l.Errorf("%s can still be used", id)
		}
	}
	l.wantEvents(broker.EventRequested, broker.EventReady, broker.EventDeleting, broker.EventDeleted)
	order := []string{"apply ProviderConfig", "create XR", "drain", "delete XR", "delete ProviderConfig"}
	for i := 1; i < len(order); i++ {
		if slices.Index(l.calls, order[i-1]) >= slices.Index(l.calls, order[i]) {
			l.Errorf("%q does not come before %q in %q", order[i-1], order[i], l.calls)
		}
	}
}

// TestLife: one life, and one for each death before and after every write.
func TestLife(t *testing.T) {
	t.Parallel()
	whole := newLife(t, 0, false)
	whole.run()
	if whole.writes < 15 {
		t.Fatalf("a life has %d writes: %q", whole.writes, whole.calls)
	}
	for at := 1; at <= whole.writes; at++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("death at write %d, after it: %t", at, after), func(t *testing.T) {
				t.Parallel()
				newLife(t, at, after).run()
			})
		}
	}
}
