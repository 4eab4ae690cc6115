package broker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/broker"
)

// world is a resource with everything around it, and a round of the loop that may be under
// way and knows only what it has read. It is a comparable value and a map key, so that the
// test visits every reachable world once.
type world struct {
	phase     broker.ProvisionedResourcePhase
	token     broker.TokenState // never undelivered: observed derives that
	delivered bool              // the machine can read the token's secret
	node      bool
	draining  bool
	xr        string // "", "creating", "ready", "failed", "deleting"
	ours      bool   // the broker deletes the XR
	config    bool
	secret    bool // an object with a token's secret exists
	overdue   bool

	round round
}

// round is what a round has read and decided. The zero value: no round has begun.
type round struct {
	step   int // how many steps are done
	token  broker.TokenState
	node   bool
	from   broker.ProvisionedResourcePhase
	action broker.Action
	to     broker.ProvisionedResourcePhase
	create bool // the XR did not exist
}

// A move is one event that can happen next.
type move struct {
	name string
	to   world
}

// environment returns everything that can happen around the loop at any moment.
func (w world) environment() []move {
	var moves []move
	can := func(name string, possible bool, change func(*world)) {
		if possible {
			after := w
			change(&after)
			moves = append(moves, move{name, after})
		}
	}
	machine := w.xr == "ready" || w.xr == "creating" || w.xr == "deleting"
	can("the XR becomes ready", w.xr == "creating", func(w *world) { w.xr = "ready" })
	can("the XR fails", w.xr == "creating", func(w *world) { w.xr = "failed" })
	can("the XR is no longer ready", w.xr == "ready", func(w *world) { w.xr = "creating" })
	can("the machine enrols", machine && w.delivered && w.token == broker.TokenIssued,
		func(w *world) { w.token, w.node = broker.TokenConsumed, true })
	can("the token expires", w.token == broker.TokenIssued, func(w *world) { w.token = broker.TokenExpired })
	can("the node has left", w.draining, func(w *world) { w.node, w.draining = false, false })
	can("an operator deletes the XR", w.xr != "" && w.xr != "deleting", func(w *world) { w.xr = "deleting" })
	can("the XR is gone", w.xr == "deleting", func(w *world) { w.xr, w.ours = "", false })
	can("the deadline passes", !w.overdue && w.phase != broker.PhaseReady, func(w *world) { w.overdue = true })
	can("deletion is requested", !slices.Contains(goingDown, w.phase), func(w *world) { w.phase = broker.PhaseDeregistering })
	can("the service revokes the token", slices.Contains(goingDown, w.phase) && w.token == broker.TokenIssued,
		func(w *world) { w.token = broker.TokenRevoked })
	return moves
}

// loop returns what the loop can do next: the next step of its round, or die.
func (w world) loop(check func(string, bool)) []move {
	moves := []move{{w.stepName(), w.step(check)}}
	if w.round.step > 0 {
		dead := w
		dead.round = round{}
		moves = append(moves, move{"the process dies", dead})
	}
	return moves
}

func (w world) stepName() string {
	return []string{"read token", "read node", "read the rest and decide", string(w.round.action), "deliver", "persist"}[w.round.step]
}

// step does the next step of the round, in the order that ObservedXR asks for.
func (w world) step(check func(string, bool)) world {
	r := &w.round
	r.step++
	switch r.step {
	case 1:
		r.from, r.token = w.phase, w.token
	case 2:
		r.node = w.node
	case 3:
		observed := w.observed(r.token, r.node)
		r.action, r.to = broker.Next(observed, r.from)
		r.create = !observed.XRExists
		r.token, r.node = "", false // no longer needed; fewer worlds to visit
	case 4:
		w.act(check)
	case 5:
		if w.round.action == broker.ActionMintToken {
			w.delivered, w.secret = true, true
		}
	case 6:
		if w.phase == r.from {
			w.phase = r.to
		}
		w.round = round{}
	}
	return w
}

func (w world) observed(token broker.TokenState, node bool) broker.ObservedXR {
	if token == broker.TokenIssued && !w.delivered {
		token = broker.TokenUndelivered
	}
	return broker.ObservedXR{
		NamespaceReady: true, Token: token, NodeRegistered: node,
		ProviderConfigExists: w.config, SecretExists: w.secret, XRExists: w.xr != "", XRDeleting: w.xr == "deleting",
		XRReady: w.xr == "ready", XRFailed: w.xr == "failed", Overdue: w.overdue,
	}
}

// act carries out the action on the current world, which may differ from the one for which
// it was decided. The checks must hold nevertheless.
func (w *world) act(check func(string, bool)) {
	switch w.round.action {
	case broker.ActionMintToken:
		check("a token is replaced while its node is registered", !w.node)
		if slices.Contains(goingDown, w.phase) {
			w.round = round{} // not bound: the round ends
			return
		}
		w.token, w.delivered = broker.TokenIssued, false
	case broker.ActionApplySubstrate:
		w.config = true
		if w.round.create && w.xr == "" {
			w.xr = "creating"
		}
	case broker.ActionDeregisterNode:
		w.draining = w.node
	case broker.ActionRevokeToken:
		if w.token == broker.TokenIssued {
			w.token = broker.TokenRevoked
		}
	case broker.ActionDeleteSubstrate:
		check("the substrate is deleted under a node", !w.node)
		check("the substrate is deleted while a node can enrol", w.token != broker.TokenIssued)
		if w.xr != "" {
			w.xr, w.ours = "deleting", true
		}
	case broker.ActionDeleteProviderConfig:
		check("the ProviderConfig is deleted before the XR", w.xr == "")
		check("the ProviderConfig is deleted under a node", !w.node)
		w.config, w.secret, w.delivered = false, false, false
	}
}

// TestEveryHistory visits every world that is reachable by interleaving rounds, deaths of
// the process between any two of their steps, and the environment. In every world the
// order holds; and from each world in which deletion was requested, the resource reaches
// Deleted once the faults are gone.
func TestEveryHistory(t *testing.T) {
	t.Parallel()
	start := world{phase: broker.PhasePending}
	cameFrom := map[world]world{}
	how := map[world]string{start: "start"}
	queue := []world{start}
	seen := map[broker.ProvisionedResourcePhase]bool{}
	for len(queue) > 0 {
		w := queue[0]
		queue = queue[1:]
		seen[w.phase] = true
		check := func(what string, ok bool) {
			if !ok {
				t.Fatalf("%s, after:\n%s", what, history(w, cameFrom, how))
			}
		}
		check("a node enrols while its substrate is deleted by us", !w.ours || !w.node)
		check("something is left behind a Deleted resource",
			w.phase != broker.PhaseDeleted || (!w.node && w.xr == "" && !w.config && !w.secret && w.token != broker.TokenIssued))
		if slices.Contains(goingDown, w.phase) {
			check("the teardown does not end", w.ends())
		}
		for _, m := range append(w.environment(), w.loop(check)...) {
			if slices.Contains(goingDown, w.phase) && !slices.Contains(goingDown, m.to.phase) {
				t.Fatalf("%q leads out of teardown, after:\n%s", m.name, history(w, cameFrom, how))
			}
			if _, known := how[m.to]; !known {
				cameFrom[m.to], how[m.to] = w, m.name
				queue = append(queue, m.to)
			}
		}
	}
	for _, phase := range broker.Phases() {
		if !seen[phase] {
			t.Errorf("no history leads to %s", phase)
		}
	}
	t.Logf("%d worlds", len(how))
}

// ends reports whether a few rounds lead to Deleted, if every node leaves when it is asked to
// and every XR goes.
func (w world) ends() bool {
	w.round = round{}
	for range 6 {
		if w.phase == broker.PhaseDeleted {
			return true
		}
		for range 6 {
			w = w.step(func(string, bool) {})
		}
		if w.draining {
			w.node, w.draining = false, false
		}
		if w.xr == "deleting" {
			w.xr = ""
		}
	}
	return w.phase == broker.PhaseDeleted
}

func history(w world, cameFrom map[world]world, how map[world]string) string {
	var steps []string
	for {
		steps = append(steps, fmt.Sprintf("%s: %+v", how[w], w))
		before, ok := cameFrom[w]
		if !ok {
			break
		}
		w = before
	}
	slices.Reverse(steps)
	return strings.Join(steps, "\n")
}
