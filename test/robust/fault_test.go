package robust_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/exeunt/exeunt/test/harness"
)

// fault is one thing that breaks, and how it is repaired.
type fault struct {
	name  string
	begin func()
	end   func()
	// last: repair it after all others, because the repair needs them.
	last bool
}

// breakThings breaks one or two things at a time, for a few seconds each.
func (w *world) breakThings() {
	w.Helper()
	for deadline := time.Now().Add(*robustFor); time.Now().Before(deadline) && !w.Failed(); {
		first := w.rng.IntN(replicas)
		faults := []fault{w.fault(first)}
		if w.rng.IntN(3) == 0 {
			// Of another replica: the repair of one fault must not end the other.
			faults = append(faults, w.fault((first+1+w.rng.IntN(replicas-1))%replicas))
		}
		if len(faults) == 2 && faults[0].name == faults[1].name {
			faults = faults[:1]
		}
		names := []string{}
		for _, f := range faults {
			names = append(names, f.name)
		}
		w.now.Store(strings.Join(names, ", "))
		w.done = append(w.done, names...)
		for _, f := range faults {
			f.begin()
		}
		time.Sleep(time.Duration(1+w.rng.IntN(4)) * time.Second)
		slices.SortStableFunc(faults, func(a, b fault) int { return order(a) - order(b) })
		for _, f := range faults {
			f.end()
		}
		time.Sleep(time.Duration(w.rng.IntN(1500)) * time.Millisecond)
	}
}

func order(f fault) int {
	if f.last {
		return 1
	}
	return 0
}

// fault chooses a fault, of replica i if it is one of a replica.
func (w *world) fault(i int) fault {
	l, s := w.links[i], w.servers[i]
	ways := []struct {
		name string
		mode mode
	}{{"reset", refusing}, {"cut off", holding}, {"requests held back", holdingRequests}, {"answers held back", holdingAnswers}}
	way := ways[w.rng.IntN(len(ways))]
	switch n := w.rng.IntN(9); n {
	case 0:
		return fault{fmt.Sprintf("replica %d killed", i), s.Kill, s.Start, true}
	case 1:
		return fault{fmt.Sprintf("replica %d stopped", i), func() { w.signal(i, syscall.SIGSTOP) }, func() { w.signal(i, syscall.SIGCONT) }, false}
	case 2:
		return fault{"failover", func() { w.failovers = append(w.failovers, w.cluster.failOver()) }, w.cluster.addStandby, false}
	case 3, 4:
		return w.cutDatabase(i, way.name, way.mode)
	case 5:
		return broken(fmt.Sprintf("replica %d to the bucket: %s", i, way.name), way.mode, l.bucket)
	case 6:
		return broken(fmt.Sprintf("clients to replica %d: %s", i, way.name), way.mode, l.api, l.registry)
	case 7:
		bytes := 200 + w.rng.IntN(20_000)
		links := []*link{l.api, l.registry}
		if w.rng.IntN(2) == 0 {
			links = []*link{l.nodes[0], l.nodes[1]}
		}
		return fault{fmt.Sprintf("connections of %s break every %d bytes", links[0].name, bytes), func() {
			for _, l := range links {
				l.breakEvery(bytes)
			}
		}, func() {
			for _, l := range links {
				l.set(passing)
			}
		}, false}
	}
	by := time.Duration(1+w.rng.IntN(100)) * time.Millisecond
	return fault{fmt.Sprintf("replica %d: answers of the database take %v longer", i, by), func() {
		l.nodes[0].slow(by)
		l.nodes[1].slow(by)
	}, func() {
		l.nodes[0].set(passing)
		l.nodes[1].set(passing)
	}, false}
}

func broken(name string, m mode, links ...*link) fault {
	set := func(m mode) func() {
		return func() {
			for _, l := range links {
				l.set(m)
			}
		}
	}
	return fault{name, set(m), set(passing), false}
}

func (w *world) signal(i int, signal syscall.Signal) {
	w.Helper()
	if err := syscall.Kill(w.servers[i].Pid(), signal); err != nil {
		w.Fatal(err)
	}
}

// cutDatabase cuts a replica off from the database. It must say in /readyz that it is not
// ready, and be ready again afterwards.
func (w *world) cutDatabase(i int, name string, m mode) fault {
	f := broken(fmt.Sprintf("replica %d to the database: %s", i, name), m, w.links[i].nodes[0], w.links[i].nodes[1])
	heal := f.end
	f.end = func() {
		w.awaitReady(i, false)
		heal()
		w.awaitReady(i, true)
	}
	return f
}

// awaitReady asks a replica, not through its link.
func (w *world) awaitReady(i int, want bool) {
	w.Helper()
	w.patiently(fmt.Sprintf("replica %d: ready: %v", i, want), func() error {
		a, err := w.servers[i].HTTP().Try(harness.Request{Method: "GET", Path: "/readyz"})
		if err != nil {
			return err
		}
		if (a.Code == http.StatusOK) != want {
			return fmt.Errorf("/readyz answers %d: %s", a.Code, a.Body)
		}
		return nil
	})
}

// queuesEmpty reads the status of a collector: the number of reviews, of its one queue or of
// several by name.
func queuesEmpty(body []byte) error {
	var status map[string]json.RawMessage
	if err := json.Unmarshal(body, &status); err != nil {
		return err
	}
	queues := 0
	for name, value := range status {
		var queue struct{ Depth *int }
		if name == "depth" {
			queue.Depth = new(int)
			if err := json.Unmarshal(value, queue.Depth); err != nil {
				return err
			}
		} else if json.Unmarshal(value, &queue) != nil || queue.Depth == nil {
			continue // not a queue
		}
		if queues++; *queue.Depth > 0 {
			return fmt.Errorf("%d reviews are left (%s)", *queue.Depth, name)
		}
	}
	if queues == 0 {
		return fmt.Errorf("no queue in %.200s", body)
	}
	return nil
}
