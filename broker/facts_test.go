package broker_test

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/exeunt/exeunt/broker"
)

// A fact is one input of Next, with all its values.
type fact struct {
	name   string
	values []string
	set    func(*broker.ObservedXR, string)
}

func yesNo(name string, set func(*broker.ObservedXR, bool)) fact {
	return fact{name, []string{"no", "yes"}, func(o *broker.ObservedXR, v string) { set(o, v == "yes") }}
}

// facts are all inputs of Next; they have 3,584 combinations.
var facts = map[string]fact{
	"namespace": yesNo("namespace", func(o *broker.ObservedXR, v bool) { o.NamespaceReady = v }),
	"node":      yesNo("node", func(o *broker.ObservedXR, v bool) { o.NodeRegistered = v }),
	"config":    yesNo("config", func(o *broker.ObservedXR, v bool) { o.ProviderConfigExists = v }),
	"secret":    yesNo("secret", func(o *broker.ObservedXR, v bool) { o.SecretExists = v }),
	"xr":        yesNo("xr", func(o *broker.ObservedXR, v bool) { o.XRExists = v }),
	"deleting":  yesNo("deleting", func(o *broker.ObservedXR, v bool) { o.XRDeleting = v }),
	"ready":     yesNo("ready", func(o *broker.ObservedXR, v bool) { o.XRReady = v }),
	"failed":    yesNo("failed", func(o *broker.ObservedXR, v bool) { o.XRFailed = v }),
	"overdue":   yesNo("overdue", func(o *broker.ObservedXR, v bool) { o.Overdue = v }),
	"token": {"token", []string{"none", "issued", "undelivered", "consumed", "expired", "revoked", "other"},
		func(o *broker.ObservedXR, v string) { o.Token = tokenStates[v] }},
}

var tokenStates = map[string]broker.TokenState{
	"none":        broker.TokenNone,
	"issued":      broker.TokenIssued,
	"undelivered": broker.TokenUndelivered,
	"consumed":    broker.TokenConsumed,
	"expired":     broker.TokenExpired,
	"revoked":     broker.TokenRevoked,
	"other":       "a state of a later version",
}

// unknown stands for every phase that is not one of the eight.
const unknown broker.ProvisionedResourcePhase = "Melting"

func phases() []broker.ProvisionedResourcePhase { return append(broker.Phases(), unknown) }

// A combination maps each fact, by name, to a value.
type combination map[string]string

func (c combination) observed() broker.ObservedXR {
	var o broker.ObservedXR
	for name, value := range c {
		facts[name].set(&o, value)
	}
	return o
}

// combinations yields every assignment of values to the named facts, in addition to the
// fixed ones.
func combinations(names []string, fixed combination) iter.Seq[combination] {
	return func(yield func(combination) bool) {
		combine(names, fixed, yield)
	}
}

func combine(names []string, fixed combination, yield func(combination) bool) bool {
	if len(names) == 0 {
		return yield(fixed)
	}
	for _, value := range facts[names[0]].values {
		next := combination{names[0]: value}
		for k, v := range fixed {
			next[k] = v
		}
		if !combine(names[1:], next, yield) {
			return false
		}
	}
	return true
}

// snapshots are all combinations, computed once.
var snapshots = sync.OnceValue(func() []broker.ObservedXR {
	var all []broker.ObservedXR
	for c := range combinations(slices.Sorted(maps.Keys(facts)), nil) {
		all = append(all, c.observed())
	}
	return all
})

// everything yields every snapshot with every phase.
func everything() iter.Seq2[broker.ObservedXR, broker.ProvisionedResourcePhase] {
	return func(yield func(broker.ObservedXR, broker.ProvisionedResourcePhase) bool) {
		for _, o := range snapshots() {
			for _, phase := range phases() {
				if !yield(o, phase) {
					return
				}
			}
		}
	}
}

func next(o broker.ObservedXR, phase broker.ProvisionedResourcePhase) string {
	action, to := broker.Next(o, phase)
	return fmt.Sprintf("%s, %s", action, to)
}
