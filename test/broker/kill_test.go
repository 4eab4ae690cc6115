package broker_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/crossplane"
	"github.com/exeunt/exeunt/test/harness"
)

var killsEachWay = flag.Int("kills", 1, "how often TestKill kills the server on the way up, and again on the way down")

// TestKill kills the server at random moments while resources come up, and again while
// they go down. No event is lost or out of order, and no machine is destroyed while its
// node is in the mesh.
func TestKill(t *testing.T) {
	each(t, func(w *world) {
		rng := rand.New(rand.NewPCG(7, 11))
		names := make([]string, 3)
		uids := map[string]string{}
		since := w.now()
		for i := range names {
			names[i] = fmt.Sprintf("web-%d", i)
			w.apply(resource(names[i]))
			uids[names[i]] = w.uid(names[i])
		}
		w.killing(rng)
		xrs := map[string]string{}
		for _, name := range names {
			w.within(name, "Ready")
			xrs[name] = w.status(name, "xr.name")
		}
		for _, name := range names {
			w.kubectl("delete", "pr", name, "--wait=false")
		}
		w.killing(rng)
		for _, name := range names {
			w.within(name, "gone")
			w.awaitEvents(uids[name], "Requested", "Ready", "Deleting", "Deleted")
			w.checkOrder(since, xrs[name])
			for token, n := range w.webhook.counts(uids[name]) {
				if most := 1 + 2**killsEachWay; n > most {
					w.Errorf("the webhook received %s %d times from %d processes", token, n, most)
				}
			}
		}
	})
}

// killing kills the server and starts it again, a few times.
func (w *world) killing(rng *rand.Rand) {
	w.Helper()
	for range *killsEachWay {
		// The random moment of the kill, not a wait for a condition.
		time.Sleep(time.Duration(50+rng.IntN(700)) * time.Millisecond)
		w.server.Kill()
		w.server.Start()
		w.gate.open(w.server.Config())
	}
}

// within waits until a resource is in a phase.
func (w *world) within(name, phase string) {
	w.Helper()
	harness.Within(w, 2*time.Minute, name+" is "+phase, func() error {
		if got := w.status(name, "phase"); got != phase {
			return errorf("it is %s: %s", got, w.status(name, "message"))
		}
		return nil
	})
}

// stop is a step in the life of a resource at which the test kills the server. Either a
// write hangs in the server's database, with its transaction open, or a request to the
// management cluster hangs: before it is forwarded or, with after, before it is answered.
type stop struct {
	name    string
	fault   harness.Fault
	request func(*http.Request) bool
	after   bool
	prepare func(w *world) // runs when the step is armed and the server is up
}

// writing matches requests that write a resource.
func writing(resource string, deletes bool) func(*http.Request) bool {
	return func(r *http.Request) bool {
		write := r.Method == http.MethodPost || r.Method == http.MethodPatch || r.Method == http.MethodPut
		if deletes {
			write = r.Method == http.MethodDelete
		}
		return write && strings.Contains(r.URL.Path+"/", "/"+resource+"/")
	}
}

// both returns two stops at a request: before it is forwarded, and after.
func both(name string, request func(*http.Request) bool) []stop {
	return []stop{{name: name, request: request}, {name: name + ", done", request: request, after: true}}
}

func write(name, event, table, when string) stop {
	return stop{name: name, fault: harness.Fault{Table: table, Event: event, When: when, Hang: true}}
}

const (
	aResource = "'provisionedresources.provisioning.exeunt.dev'"
	aNode     = "'meshnodes.mesh.exeunt.dev'"
)

// wayUp and wayDown are the steps of a life, in order. Machines do not boot, machines are
// not destroyed and the webhook refuses until a step allows it: otherwise they could pass
// a step before it is armed.
var wayUp = slices.Concat(
	[]stop{
		write("take up", "INSERT", "provisioned_resources", "NEW.id <> ''"),
		write("mint", "INSERT", "bootstrap_tokens", "NEW.resource <> ''"),
		write("bind", "UPDATE", "provisioned_resources", "NEW.token_id <> OLD.token_id"),
	},
	both("deliver", writing("secrets", false)),
	both("apply ProviderConfig", writing("providerconfigs", false)),
	both("create XR", writing("xnodes", false)),
	[]stop{
		write("persist", "UPDATE", "provisioned_resources", "NEW.phase <> OLD.phase AND NEW.phase IN ('Provisioning', 'Enrolling')"),
		boots(write("enrol", "INSERT", "mesh_nodes", "NEW.uid <> ''")),
		write("emit Ready", "INSERT", "provisioned_resource_outbox", "NEW.event_type LIKE '%Ready'"),
		write("persist Ready", "UPDATE", "provisioned_resources", "NEW.phase <> OLD.phase AND NEW.phase = 'Ready'"),
		delivers(write("mark as sent", "INSERT", "provisioned_resource_published", "NEW.sink = 'webhook'")),
	})

var wayDown = slices.Concat(
	[]stop{
		write("record the intent", "UPDATE", "provisioned_resources", "NEW.deletion_requested_at IS NOT NULL AND OLD.deletion_requested_at IS NULL"),
		write("ask for the drain", "UPDATE", "objects", "NEW.kind = "+aNode+" AND NEW.deletion_time IS NOT NULL AND OLD.deletion_time IS NULL"),
		write("the node leaves", "DELETE", "mesh_nodes", "OLD.uid <> ''"),
	},
	[]stop{write("persist Deprovisioning", "UPDATE", "provisioned_resources", "NEW.phase <> OLD.phase AND NEW.phase = 'Deprovisioning'")},
	both("delete XR", writing("xnodes", true)),
	destroys(both("delete ProviderConfig", writing("providerconfigs", true))),
	both("delete secret", writing("secrets", true)),
	[]stop{
		write("emit Deleted", "INSERT", "provisioned_resource_outbox", "NEW.event_type LIKE '%Deleted'"),
		write("persist Deleted", "UPDATE", "provisioned_resources", "NEW.phase <> OLD.phase AND NEW.phase = 'Deleted'"),
		write("release", "DELETE", "objects", "OLD.kind = "+aResource),
		delivers(write("mark Deleted as sent", "INSERT", "provisioned_resource_published", "NEW.sink = 'webhook' AND NEW.token LIKE '%Deleted/%'")),
	})

// destroys allows machines to be destroyed from these steps on. Before, the XR stays, and
// the resource stays in its phase.
func destroys(s []stop) []stop {
	s[0].prepare = func(w *world) { w.double.Set(crossplane.Behaviour{}) }
	return s
}

// boots allows machines to boot from this step on; delivers allows the webhook to accept
// events.
func boots(s stop) stop {
	s.prepare = func(w *world) { w.double.Set(crossplane.Behaviour{}) }
	return s
}

func delivers(s stop) stop {
	s.prepare = func(w *world) { w.webhook.set(false) }
	return s
}

// TestKillBetween kills the server between every two steps of a life. No event is lost; an
// event is sent twice only if a kill fell between sending it and marking it as sent; the
// node leaves before its machine; nothing is left behind.
func TestKillBetween(t *testing.T) {
	each(t, func(w *world) {
		since := w.now()
		w.double.Set(crossplane.Behaviour{NoBoot: true})
		allowed := map[string]int{} // how often an event may be repeated
		w.webhook.set(true)
		w.stops(wayUp, allowed, func() { w.apply(resource("web")) })
		w.within("web", "Ready")
		uid, xr := w.uid("web"), w.status("web", "xr.name")
		w.awaitEvents(uid, "Requested", "Ready")
		w.webhook.set(true)
		w.double.Set(crossplane.Behaviour{HoldMachines: true})
		w.stops(wayDown, allowed, func() { w.kubectl("delete", "pr", "web", "--wait=false") })
		w.within("web", "gone")
		w.awaitEvents(uid, "Requested", "Ready", "Deleting", "Deleted")
		w.checkOrder(since, xr)
		w.checkRepeats(uid, allowed)
		w.checkEmpty(uid)
	})
}

// stops goes through the steps and kills the server at each. It calls begin when the first
// step is armed.
func (w *world) stops(steps []stop, allowed map[string]int, begin func()) {
	w.Helper()
	disarm, await := w.arm(steps[0])
	begin()
	for i, s := range steps {
		if s.prepare != nil {
			s.prepare(w)
		}
		await()
		w.server.Kill()
		w.server.Unhang()
		disarm()
		if !w.webhook.refuses() {
			for _, token := range w.server.Query(`SELECT token FROM provisioned_resource_outbox o WHERE NOT EXISTS
				(SELECT 1 FROM provisioned_resource_published p WHERE p.token = o.token AND p.sink = 'webhook')`) {
				allowed[token]++
			}
		}
		if i+1 < len(steps) {
			disarm, await = w.arm(steps[i+1])
		}
		w.server.Start()
		w.gate.open(w.server.Config())
	}
}

// arm makes the server hang at a step. await returns when it hangs.
func (w *world) arm(s stop) (disarm, await func()) {
	w.Helper()
	if s.request == nil {
		return w.server.Break(s.fault), func() { w.Helper(); w.Log(s.name); w.server.AwaitHang() }
	}
	hangs := w.gate.hang(s.request, s.after)
	await = func() {
		w.Helper()
		w.Log(s.name)
		select {
		case <-hangs:
		case <-time.After(2 * harness.Patience):
			w.Fatalf("%s: no such request", s.name)
		}
	}
	return func() { w.gate.hang(nil, false) }, await
}

// checkRepeats expects each event once, and again only where a kill allows it, and one
// Kubernetes Event for each.
func (w *world) checkRepeats(uid string, allowed map[string]int) {
	w.Helper()
	counts := w.webhook.counts(uid)
	repeats := 0
	for token, n := range counts {
		if n > 1+allowed[token] {
			w.Errorf("the webhook received %s %d times; the kills allow %d", token, n, 1+allowed[token])
		}
		repeats += n - 1
	}
	if repeats == 0 {
		w.Errorf("no event was sent twice (%v): no kill fell between sending an event and marking it as sent", slices.Sorted(maps.Keys(counts)))
	}
	for _, reason := range []string{"Requested", "Ready", "Deleting", "Deleted"} {
		out := w.kubectl("get", "events", "-o", "name", "--field-selector", "reason="+reason+",involvedObject.uid="+uid)
		if strings.Count(out, "\n") != 1 {
			w.Errorf("Events %s:\n%s", reason, out)
		}
	}
}

// checkEmpty expects that nothing of a resource is left, and no usable token.
func (w *world) checkEmpty(uid string) {
	w.Helper()
	for _, kind := range []string{"xnodes", "machines", "providerconfigs", "meshnodes"} {
		if out := w.kubectl("get", kind, "-o", "name"); out != "" {
			w.Errorf("left behind: %s", out)
		}
	}
	if out := w.kubectl("get", "secrets", "-l", "provisioning.exeunt.dev/resource-id", "-o", "name"); out != "" {
		w.Errorf("left behind: %s", out)
	}
	if left := w.server.Query("SELECT id FROM bootstrap_tokens WHERE state = 'issued' AND resource = $1", uid); len(left) > 0 {
		w.Errorf("tokens that can be used: %v", left)
	}
}
