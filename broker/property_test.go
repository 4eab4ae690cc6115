package broker_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/exeunt/exeunt/broker"
)

var (
	goingDown = []broker.ProvisionedResourcePhase{broker.PhaseDeregistering, broker.PhaseDeprovisioning, broker.PhaseDeleted}
	actions   = []broker.Action{
		broker.ActionNoop, broker.ActionMintToken, broker.ActionApplySubstrate, broker.ActionDeregisterNode,
		broker.ActionRevokeToken, broker.ActionDeleteSubstrate, broker.ActionDeleteProviderConfig,
	}
	spent = []broker.TokenState{broker.TokenNone, broker.TokenConsumed, broker.TokenExpired, broker.TokenRevoked}
)

// A decision is an input of Next and its answer.
type decision struct {
	observed broker.ObservedXR
	phase    broker.ProvisionedResourcePhase
	action   broker.Action
	to       broker.ProvisionedResourcePhase
}

func (d decision) down() bool { return slices.Contains(goingDown, d.phase) }

// lost: the XR does not exist, or is being deleted.
func (d decision) lost() bool { return !d.observed.XRExists || d.observed.XRDeleting }

// rules hold for every decision: if "when" is true, "then" is true.
var rules = []struct {
	text       string
	when, then func(decision) bool
}{
	{"the answer is one of the actions and one of the phases",
		func(decision) bool { return true },
		func(d decision) bool {
			return slices.Contains(actions, d.action) && slices.Contains(broker.Phases(), d.to)
		}},
	{"teardown is not left",
		decision.down,
		func(d decision) bool { return slices.Contains(goingDown, d.to) }},
	{"teardown is not entered without a request",
		func(d decision) bool { return !d.down() },
		func(d decision) bool { return !slices.Contains(goingDown, d.to) }},
	{"Deleted is the end",
		func(d decision) bool { return d.phase == broker.PhaseDeleted },
		func(d decision) bool { return d.action == broker.ActionNoop && d.to == broker.PhaseDeleted }},
	{"Deleted is reached only when nothing is left",
		func(d decision) bool { return d.to == broker.PhaseDeleted && d.phase != broker.PhaseDeleted },
		func(d decision) bool {
			o := d.observed
			return d.down() && !o.NodeRegistered && !o.XRExists && !o.ProviderConfigExists && !o.SecretExists && slices.Contains(spent, o.Token)
		}},
	{"Failed stays, and does nothing",
		func(d decision) bool { return d.phase == broker.PhaseFailed },
		func(d decision) bool { return d.action == broker.ActionNoop && d.to == broker.PhaseFailed }},
	{"going down with a node, nothing but the node is touched",
		func(d decision) bool {
			return d.down() && d.phase != broker.PhaseDeleted && d.observed.NodeRegistered
		},
		func(d decision) bool {
			return d.action == broker.ActionDeregisterNode && d.to == broker.PhaseDeregistering
		}},
	{"the XR is deleted only in teardown, without a node, and when none can come",
		func(d decision) bool { return d.action == broker.ActionDeleteSubstrate },
		func(d decision) bool {
			return d.down() && !d.observed.NodeRegistered && slices.Contains(spent, d.observed.Token) &&
				d.observed.XRExists && d.to == broker.PhaseDeprovisioning
		}},
	{"the ProviderConfig is deleted only in teardown, after the XR is gone",
		func(d decision) bool { return d.action == broker.ActionDeleteProviderConfig },
		func(d decision) bool {
			return d.down() && !d.observed.NodeRegistered && !d.observed.XRExists && d.to == broker.PhaseDeprovisioning
		}},
	{"nothing is made in teardown",
		decision.down,
		func(d decision) bool {
			return d.action != broker.ActionMintToken && d.action != broker.ActionApplySubstrate
		}},
	{"on the way up a node is drained, or a token revoked, only if the XR is lost",
		func(d decision) bool {
			return !d.down() && (d.action == broker.ActionDeregisterNode || d.action == broker.ActionRevokeToken)
		},
		decision.lost},
	{"a token is not replaced while its node is registered, nor one that can be used",
		func(d decision) bool { return d.action == broker.ActionMintToken },
		func(d decision) bool {
			return !d.observed.NodeRegistered && d.observed.Token != broker.TokenIssued
		}},
	{"a spent token is replaced only for a new XR",
		func(d decision) bool {
			return d.action == broker.ActionMintToken && d.observed.Token == broker.TokenConsumed
		},
		func(d decision) bool { return !d.observed.XRExists }},
	{"an XR is made only with a token that can be used",
		func(d decision) bool { return d.action == broker.ActionApplySubstrate && !d.observed.XRExists },
		func(d decision) bool {
			return !slices.Contains(append(spent, broker.TokenUndelivered), d.observed.Token) && !d.observed.NodeRegistered
		}},
	{"nothing is made in a namespace that is not ready",
		func(d decision) bool { return !d.observed.NamespaceReady },
		func(d decision) bool {
			return d.action != broker.ActionMintToken && d.action != broker.ActionApplySubstrate
		}},
	{"Ready needs a ready XR that stays, and a node that came",
		func(d decision) bool { return d.to == broker.PhaseReady },
		func(d decision) bool {
			return d.observed.XRReady && !d.lost() && (d.observed.Token == broker.TokenConsumed || d.observed.NodeRegistered)
		}},
	{"what is ready and enrolled is Ready, however late",
		func(d decision) bool {
			return !d.down() && d.phase != broker.PhaseFailed && !d.lost() && d.observed.XRReady &&
				!d.observed.XRFailed && d.observed.Token == broker.TokenConsumed
		},
		func(d decision) bool { return d.to == broker.PhaseReady }},
	{"Failed comes from the XR or from the deadline",
		func(d decision) bool { return d.to == broker.PhaseFailed && d.phase != broker.PhaseFailed },
		func(d decision) bool {
			return d.observed.Overdue || (d.observed.XRExists && d.observed.XRFailed)
		}},
}

func TestNextRules(t *testing.T) {
	t.Parallel()
	for _, rule := range rules {
		t.Run(rule.text, func(t *testing.T) {
			t.Parallel()
			applied := 0
			for o, phase := range everything() {
				d := decision{observed: o, phase: phase}
				d.action, d.to = broker.Next(o, phase)
				if !rule.when(d) {
					continue
				}
				applied++
				if !rule.then(d) {
					t.Fatalf("%s, %+v: %s, %s", phase, o, d.action, d.to)
				}
			}
			if applied == 0 {
				t.Fatal("the rule applies to nothing")
			}
		})
	}
}

func TestNextIsIdempotent(t *testing.T) {
	t.Parallel()
	for o, phase := range everything() {
		action, to := broker.Next(o, phase)
		again, stays := broker.Next(o, to)
		if again != action || stays != to {
			t.Fatalf("%s, %+v: first %s, %s; then %s, %s", phase, o, action, to, again, stays)
		}
	}
}

func TestNextTakesUnknownPhasesForPending(t *testing.T) {
	t.Parallel()
	for o := range everything() {
		want := next(o, broker.PhasePending)
		for _, phase := range []broker.ProvisionedResourcePhase{unknown, "", "deleted", "Deleted "} {
			if got := next(o, phase); got != want {
				t.Fatalf("%q, %+v: %s, want %s as for Pending", phase, o, got, want)
			}
		}
	}
}

func TestNextIgnoresWhatAnAbsentXRSays(t *testing.T) {
	t.Parallel()
	for o, phase := range everything() {
		if o.XRExists {
			continue
		}
		bare := o
		bare.XRDeleting, bare.XRReady, bare.XRFailed = false, false, false
		if got, want := next(o, phase), next(bare, phase); got != want {
			t.Fatalf("%s, %+v: %s; without the fields of the XR: %s", phase, o, got, want)
		}
	}
}

func TestNextIgnoresReasonsAndLeavesThem(t *testing.T) {
	t.Parallel()
	reasons := []broker.Reason{{Holder: broker.HolderFinalizer, Name: "f"}}
	for o, phase := range everything() {
		with := o
		with.Reasons = slices.Clone(reasons)
		if got, want := next(with, phase), next(o, phase); got != want {
			t.Fatalf("%s, %+v: %s with reasons, %s without", phase, o, got, want)
		}
		if !reflect.DeepEqual(with.Reasons, reasons) {
			t.Fatalf("the reasons were changed: %v", with.Reasons)
		}
	}
}
