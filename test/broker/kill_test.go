package broker_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/harness"
)

// kills is how often the server is killed in each half of the lives.
const kills = 5

// TestKill kills the server at random moments while resources come up, and again
// while they go down. No event is lost, none comes out of order, and no machine
// is destroyed under its node.
func TestKill(t *testing.T) {
	each(t, func(w *world) {
		rng := rand.New(rand.NewPCG(7, 11))
		names := make([]string, 4)
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
			w.told(uids[name], "Requested", "Ready", "Deleting", "Deleted")
			w.checkOrder(since, xrs[name])
		}
	})
}

// killing kills and starts the server a few times.
func (w *world) killing(rng *rand.Rand) {
	w.Helper()
	for range kills {
		// The moment is the test's choice, not a wait for something.
		time.Sleep(time.Duration(50+rng.IntN(700)) * time.Millisecond)
		w.server.Kill()
		w.server.Start()
		w.gate.open(w.server.Config())
	}
}

// within waits until a resource is in a phase: a killed replica's turn has to end
// first, on PostgreSQL.
func (w *world) within(name, phase string) {
	w.Helper()
	harness.Within(w, 2*time.Minute, name+" is "+phase, func() error {
		if got := w.status(name, "phase"); got != phase {
			return errorf("it is %s: %s", got, w.status(name, "message"))
		}
		return nil
	})
}
