package reconcile_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/reconcile"
	"github.com/exeunt/exeunt/review/reviewtest"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// each runs a test on each engine and checks the order of the external actions.
func each(t *testing.T, test func(w *world)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, db)
		test(w)
		w.checkOrder()
	})
}

// wholeLife lists the external actions of a life without faults.
var wholeLife = []string{
	"ProviderConfig applied", "XR created", "node enrolled",
	"node left", "XR deleted", "XR gone", "ProviderConfig gone",
}

// TestLife: a resource reaches Ready, then Deleted, and its row is removed.
func TestLife(t *testing.T) {
	each(t, func(w *world) {
		e := w.process()
		w.declare("id-1")
		w.turns(e, "Ready", w.reaches("id-1", broker.PhaseReady))
		w.wantEvents("id-1", broker.EventRequested, broker.EventReady)
		w.undeclare("id-1")
		w.turns(e, "Deleted", w.reaches("id-1", broker.PhaseDeleted))
		w.wantEvents("id-1", broker.EventRequested, broker.EventReady, broker.EventDeleting, broker.EventDeleted)
		w.turns(e, "its declaration is released", func() bool { return w.released("id-1") })
		if !slices.Equal(w.history, wholeLife) {
			w.Errorf("history %q, want %q", w.history, wholeLife)
		}
		w.publishAll()
		w.turns(e, "it is forgotten", func() bool { w.pass(lease); return w.phase("id-1") == "" })
		if stats, err := e.Stats(w.Context()); err != nil || stats.Depth != 0 {
			w.Errorf("the queue has %+v, %v", stats, err)
		}
	})
}

// TestDeclarationGone: the declaration is removed by force, without its finalizer. What it asked for is deprovisioned all the same.
func TestDeclarationGone(t *testing.T) {
	each(t, func(w *world) {
		e := w.process()
		w.declare("id-1")
		w.turns(e, "Ready", w.reaches("id-1", broker.PhaseReady))
		w.mu.Lock()
		w.things["id-1"].declared = false
		w.mu.Unlock()
		w.enqueue("id-1")
		w.turns(e, "Deleted", w.reaches("id-1", broker.PhaseDeleted))
		if !slices.Equal(w.history, wholeLife) {
			w.Errorf("history %q, want %q", w.history, wholeLife)
		}
	})
}

// publishAll marks all events as published, as the publisher does.
func (w *world) publishAll() {
	w.Helper()
	w.Exec(`DELETE FROM provisioned_resource_outbox_reviews`)
}

// TestStopAnywhere runs one life for each call to a port, and lets the process die before
// and after that call. Another process continues. No event is lost or repeated, the order
// holds, and nothing is left behind.
func TestStopAnywhere(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("after=%t", after), func(t *testing.T) {
			each(t, func(w *world) {
				dieAt, step := 1, 1
				if w.DB.Engine() == sqldb.Postgres { // slower: before every odd call, and after every even one
					step = 2
					if after {
						dieAt = 2
					}
				}
				for ; ; dieAt += step {
					id := broker.ProvisionedResourceID(fmt.Sprintf("id-%d", dieAt))
					if calls := w.liveAndDie(id, dieAt, after); calls < dieAt {
						break // the life ended before this call
					}
				}
				if dieAt <= 60 {
					w.Errorf("a life has fewer than %d calls: the test is void", dieAt)
				}
			})
		})
	}
}

// liveAndDie runs a life that is interrupted once, and returns how many calls it made.
func (w *world) liveAndDie(id broker.ProvisionedResourceID, dieAt int, after bool) (calls int) {
	w.Helper()
	w.mu.Lock()
	w.history = nil
	dead := false
	w.fault = func(_ string, ended bool) error {
		if dead {
			return errDown
		}
		if ended == after {
			calls++
			dead = calls == dieAt
		}
		if dead {
			return errDown
		}
		return nil
	}
	w.mu.Unlock()
	e := w.process()
	restart := func() {
		if !dead {
			return
		}
		w.mu.Lock()
		w.fault = nil
		w.mu.Unlock()
		dead = false
		w.pass(lease + time.Second) // the lease of the dead process expires
		e = w.process()
	}
	until := func(what string, done func() bool) {
		for range 100 {
			if done() {
				return
			}
			w.turn(e)
			restart()
			w.tick()
			w.pass(2 * time.Second)
		}
		w.Fatalf("cut off at call %d (after: %t): %s never", dieAt, after, what)
	}
	w.declare(id)
	until("Ready", w.reaches(id, broker.PhaseReady))
	w.undeclare(id)
	until("released", func() bool { return w.released(id) && w.phase(id) == broker.PhaseDeleted })
	w.wantEvents(id, broker.EventRequested, broker.EventReady, broker.EventDeleting, broker.EventDeleted)
	w.Exec(`DELETE FROM provisioned_resource_reviews`) // the next life starts with an empty queue
	w.mu.Lock()
	defer w.mu.Unlock()
	if th := w.things[id]; th.xr || th.provider || th.secret || th.node || th.state == broker.TokenIssued {
		w.Errorf("cut off at call %d (after: %t): left behind: %+v", dieAt, after, *th)
	}
	w.fault = nil
	return calls
}

// TestSuite: garbage is a resource that is to be deleted and of which nothing is left;
// live is a failed resource that needs no action.
func TestSuite(t *testing.T) {
	for _, engine := range dbtest.EnginesOf(t) {
		t.Run(string(engine), func(t *testing.T) {
			reviewtest.Run(t, func(t *testing.T) reviewtest.World { return suiteWorld(t, dbtest.OpenDB(t, engine)) })
		})
	}
}

func suiteWorld(t *testing.T, db *sqldb.DB) reviewtest.World {
	w := newWorld(t, db)
	n := 0
	prepare := func(t *testing.T, garbage bool) string {
		w.T = t
		n++
		id := broker.ProvisionedResourceID(fmt.Sprintf("id-%d", n))
		service := w.config().Service
		if _, err := service.Provision(t.Context(), broker.ProvisionRequest{
			ID: id, Project: "shop", Name: string(id), Blueprint: w.blueprint.Ref, Credential: "cloud",
		}); err != nil {
			t.Fatal(err)
		}
		th := &thing{declared: true, deleting: garbage, xr: !garbage, provider: !garbage, xrFailed: !garbage}
		w.mu.Lock()
		w.things[id] = th
		w.mu.Unlock()
		if garbage {
			if _, err := service.Deprovision(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		return string(id)
	}
	over := func(key string) bool {
		phase := w.phase(broker.ProvisionedResourceID(key))
		return phase == broker.PhaseDeleted || phase == "" // its row is removed
	}
	return reviewtest.World{
		DB: db, Queue: reconcile.Queue, Reviewer: ticking{w.reconciler(), w},
		Garbage:   func(t *testing.T) string { return prepare(t, true) },
		Live:      func(t *testing.T) string { return prepare(t, false) },
		Unknown:   "unknown",
		Collected: func(_ *testing.T, key string) bool { return over(key) },
		Intact: func(_ *testing.T, key string) bool {
			w.mu.Lock()
			th := *w.things[broker.ProvisionedResourceID(key)]
			w.mu.Unlock()
			return !over(key) && !th.released && (th.deleting || th.xr && th.provider)
		},
	}
}

// TestFaults: whichever port fails, the resource stays in its phase, its view says why,
// and it continues once the fault is gone.
func TestFaults(t *testing.T) {
	for _, test := range []struct {
		call  string
		phase broker.ProvisionedResourcePhase // it stays in
		is    error                           // nil means the port's own
		down  bool                            // it is on its way down
	}{
		{"credential", "", nil, false},
		{"version", "", nil, false},
		{"mint", broker.PhasePending, broker.ErrBootstrapTokenFailed, false},
		{"bind", broker.PhasePending, broker.ErrBootstrapTokenFailed, false},
		{"deliver", broker.PhasePending, nil, false},
		{"apply ProviderConfig", broker.PhasePending, nil, false},
		{"create XR", broker.PhasePending, nil, false},
		{"emit", broker.PhaseProvisioning, nil, false},
		{"deregister", broker.PhaseDeregistering, broker.ErrNodeDeregistrationFailed, true},
		{"delete XR", broker.PhaseDeprovisioning, nil, true},
		{"delete ProviderConfig", broker.PhaseDeprovisioning, nil, true},
		{"observe", broker.PhaseDeregistering, nil, true},
		{"token state", broker.PhaseDeregistering, nil, true},
		{"node registered", broker.PhaseDeregistering, nil, true},
	} {
		t.Run(test.call, func(t *testing.T) {
			each(t, func(w *world) { w.fails(test.call, test.phase, test.is, test.down) })
		})
	}
}

func (w *world) fails(call string, phase broker.ProvisionedResourcePhase, is error, down bool) {
	w.Helper()
	e := w.process()
	w.declare("id-1")
	if down {
		w.turns(e, "Ready", w.reaches("id-1", broker.PhaseReady))
		w.undeclare("id-1")
	}
	failures := 0
	w.mu.Lock()
	w.fault = func(asked string, after bool) error {
		if asked == call && !after {
			failures++
			return errDown
		}
		return nil
	}
	w.mu.Unlock()
	// The first failure may not count: a change of the phase takes the review's claim away.
	w.turns(e, "it fails four times", func() bool { w.pass(time.Minute); return failures >= 4 })
	if got := w.phase("id-1"); got != phase {
		w.Errorf("it is %q, want %q", got, phase)
	}
	if view := w.shown("id-1"); view.Phase != phase || !strings.Contains(view.Error, errDown.Error()) {
		w.Errorf("the view does not show %q and why: %+v", phase, view)
	}
	task, found, err := e.Get(w.Context(), "id-1")
	if err != nil || !found || task.Count < 3 || !strings.Contains(task.LastError, errDown.Error()) {
		w.Errorf("the task is %+v, %v, %v", task, found, err)
	}
	if is != nil && !strings.Contains(task.LastError, is.Error()) {
		w.Errorf("the error %q does not say %q", task.LastError, is)
	}
	w.mu.Lock()
	w.fault = nil
	w.mu.Unlock()
	w.pass(2 * time.Minute)
	if down {
		w.turns(e, "released", func() bool { return w.released("id-1") })
		w.wantEvents("id-1", broker.EventRequested, broker.EventReady, broker.EventDeleting, broker.EventDeleted)
		return
	}
	w.turns(e, "Ready", w.reaches("id-1", broker.PhaseReady))
	w.wantEvents("id-1", broker.EventRequested, broker.EventReady)
}

// TestEnrolBetweenReads: a node enrols in a teardown round, after the first of the two
// reads of the mesh and before the second. The round reads the token first, so it sees an
// issued token with a node; in the other order it would see a consumed token without a
// node, and delete the substrate while the node is in the mesh.
func TestEnrolBetweenReads(t *testing.T) {
	each(t, func(w *world) {
		e := w.process()
		w.declare("id-1")
		for i := 0; !slices.Contains(w.history, "XR created") && i < 20; i++ {
			w.turn(e) // without a tick, so its machine does not enrol yet
			w.pass(2 * time.Second)
		}
		w.undeclare("id-1")
		deleting, enrolled := false, false
		th := w.things["id-1"]
		if th.state != broker.TokenIssued || th.delivered != th.token || !th.xr {
			w.Fatalf("no machine can enrol: %+v", *th)
		}
		w.mu.Lock()
		w.fault = func(call string, after bool) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			switch {
			case call == "record" && after:
				deleting = true
			case call == "revoke" && !enrolled:
				return errDown // so the token stays issued during the teardown
			case (call == "token state" || call == "node registered") && after && deleting && !enrolled:
				enrolled, th.state, th.node = true, broker.TokenConsumed, true
				w.note("node enrolled")
			}
			return nil
		}
		w.mu.Unlock()
		for i := 0; !enrolled && i < 20; i++ {
			w.turn(e)
			w.pass(2 * time.Second)
		}
		if !enrolled {
			w.Fatal("no node enrolled between the two reads")
		}
		w.turns(e, "Deleted", w.reaches("id-1", broker.PhaseDeleted))
		w.checkOrder()
		want := []string{"ProviderConfig applied", "XR created", "node enrolled", "node left", "XR deleted", "XR gone", "ProviderConfig gone"}
		if !slices.Equal(w.history, want) {
			w.Errorf("history %q, want %q", w.history, want)
		}
	})
}

// TestHeld: a finalizer holds the XR without an error; the view names the finalizer.
func TestHeld(t *testing.T) {
	each(t, func(w *world) {
		e := w.process()
		w.declare("id-1")
		w.turns(e, "Ready", w.reaches("id-1", broker.PhaseReady))
		w.held = true
		w.undeclare("id-1")
		w.turns(e, "the view names the finalizer", func() bool {
			view := w.shown("id-1")
			return view.Phase == broker.PhaseDeprovisioning && strings.Contains(view.Why, "finalizer hold.example on XNode/x") && view.Error == ""
		})
		w.held = false
		w.turns(e, "Deleted", w.reaches("id-1", broker.PhaseDeleted))
	})
}

// TestDeletedOutOfBand: the XR is deleted while its node is registered. The broker still
// drains the node first.
func TestDeletedOutOfBand(t *testing.T) {
	each(t, func(w *world) {
		e := w.process()
		w.declare("id-1")
		w.turns(e, "Ready", w.reaches("id-1", broker.PhaseReady))
		w.undeclare("id-1")
		w.mu.Lock()
		w.things["id-1"].xr = false
		w.mu.Unlock()
		w.turns(e, "Deleted", w.reaches("id-1", broker.PhaseDeleted))
		want := []string{"ProviderConfig applied", "XR created", "node enrolled", "node left", "ProviderConfig gone"}
		if !slices.Equal(w.history, want) {
			w.Errorf("history %q, want %q", w.history, want)
		}
	})
}

// TestLeftBehind: a round that lost its lease creates objects after the teardown is complete: each
// alone or all. The broker does not look for them before no such round can be at work, and removes
// them before it removes the row.
func TestLeftBehind(t *testing.T) {
	for name, late := range map[string]func(*thing){
		"XR":             func(th *thing) { th.xr = true },
		"ProviderConfig": func(th *thing) { th.provider = true },
		"Secret":         func(th *thing) { th.secret = true },
		"all":            func(th *thing) { th.xr, th.provider, th.secret = true, true, true },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(w *world) {
				e := w.process()
				w.declare("id-1")
				w.turns(e, "Ready", w.reaches("id-1", broker.PhaseReady))
				w.undeclare("id-1")
				w.turns(e, "Deleted", w.reaches("id-1", broker.PhaseDeleted))
				w.publishAll()
				over := w.clock()
				w.turns(e, "two leases are over", func() bool { return w.clock().Sub(over) > 2*lease-10*time.Second })
				if w.phase("id-1") != broker.PhaseDeleted {
					w.Fatal("the row is gone while a late round may be at work")
				}
				w.mu.Lock()
				late(w.things["id-1"]) // the last moment of that round
				w.mu.Unlock()
				w.turns(e, "it is forgotten", func() bool { w.pass(lease / 2); return w.phase("id-1") == "" })
				if th := w.things["id-1"]; th.xr || th.provider || th.secret {
					w.Errorf("left behind: %+v", *th)
				}
			})
		})
	}
}

// TestClusterTakenAway: the cluster is gone for good after the teardown. The broker asks
// it for a day, then removes the row.
func TestClusterTakenAway(t *testing.T) {
	each(t, func(w *world) {
		e := w.process()
		w.declare("id-1")
		w.turns(e, "Ready", w.reaches("id-1", broker.PhaseReady))
		w.undeclare("id-1")
		w.turns(e, "Deleted", w.reaches("id-1", broker.PhaseDeleted))
		w.publishAll()
		asked := 0
		w.mu.Lock()
		over := w.now
		w.fault = func(call string, _ bool) error {
			if call != "observe" {
				return nil
			}
			asked++
			return errDown
		}
		w.mu.Unlock()
		w.turns(e, "it is forgotten", func() bool { w.pass(time.Hour); return w.phase("id-1") == "" })
		if took := w.clock().Sub(over); asked < 20 || took < 24*time.Hour {
			w.Errorf("the row was removed after %s and %d requests to the cluster", took, asked)
		}
	})
}

// TestOneRoundAtATime: a review that begins while another one works finds the lease taken,
// and does nothing.
func TestOneRoundAtATime(t *testing.T) {
	each(t, func(w *world) {
		first, second := w.process(), w.process()
		w.declare("id-1")
		w.turns(first, "accepted", w.reaches("id-1", broker.PhasePending))
		w.pass(10 * time.Second)
		asked := 0
		w.mu.Lock()
		w.fault = func(call string, after bool) error {
			if call != "observe" || after {
				return nil
			}
			if asked++; asked == 1 {
				w.enqueue("id-1") // takes the claim away
				if r := w.turn(second); r.Claimed != 1 || r.Postponed != 1 {
					w.Errorf("the second review returned %+v", r)
				}
			}
			return nil
		}
		w.mu.Unlock()
		w.turn(first)
		if asked != 1 {
			w.Errorf("the substrate was observed %d times", asked)
		}
	})
}

// TestWiring: New names each missing dependency.
func TestWiring(t *testing.T) {
	w := newWorld(t, nil)
	for want, change := range map[string]func(*reconcile.Config){
		"a Service is":          func(c *reconcile.Config) { c.Service = nil },
		"Rounds are":            func(c *reconcile.Config) { c.Rounds = nil },
		"Declarations are":      func(c *reconcile.Config) { c.Declarations = nil },
		"a BlueprintCatalog is": func(c *reconcile.Config) { c.Blueprints = nil },
		"a NamespaceGate is":    func(c *reconcile.Config) { c.Namespaces = nil },
		"a TokenIssuer is":      func(c *reconcile.Config) { c.Tokens = nil },
		"a NodeDeregistrar is":  func(c *reconcile.Config) { c.Nodes = nil },
		"a Substrate is":        func(c *reconcile.Config) { c.Substrate = nil },
	} {
		c := w.config()
		change(&c)
		if _, err := reconcile.NewReconciler(c); err == nil || err.Error() != "reconciler: "+want+" required" {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}
