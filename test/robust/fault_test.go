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
	kind  string // for the report
	name  string // kind, and which
	begin func()
	end   func()
	// last: repair it after all others, because the repair needs them.
	last bool
	// database: one of the primary or the standby. There is one at a time, because the repair of
	// one needs the nodes of another.
	database bool
}

// period is the time of one or two faults, with their repair.
type period struct {
	from, to time.Time
	kinds    []string
}

// breakThings breaks one or two things at a time, for a few seconds each.
func (w *world) breakThings() {
	w.Helper()
	for deadline := time.Now().Add(*robustFor); time.Now().Before(deadline) && !w.Failed(); {
		first := w.rng.IntN(replicas)
		faults := []fault{w.fault(first)}
		if w.rng.IntN(3) == 0 {
			// Of another replica: the repair of one fault must not end the other.
			second := w.fault((first + 1 + w.rng.IntN(replicas-1)) % replicas)
			if !faults[0].database || !second.database {
				faults = append(faults, second)
			}
		}
		p := period{from: time.Now()}
		names := []string{}
		for _, f := range faults {
			p.kinds, names = append(p.kinds, f.kind), append(names, f.name)
		}
		w.Logf("%v: %s", time.Since(w.history.began).Round(time.Millisecond), strings.Join(names, ", "))
		for _, f := range faults {
			f.begin()
		}
		time.Sleep(time.Duration(1+w.rng.IntN(4)) * time.Second)
		slices.SortStableFunc(faults, func(a, b fault) int { return order(a) - order(b) })
		for _, f := range faults {
			f.end()
		}
		p.to = time.Now()
		w.periods = append(w.periods, p)
		time.Sleep(time.Duration(w.rng.IntN(1500)) * time.Millisecond)
	}
}

// order says which fault ends first. One of the database does: a replica that was cut off from it
// must be ready again when its own fault has ended.
func order(f fault) int {
	switch {
	case f.database:
		return 0
	case f.last:
		return 2
	}
	return 1
}

// fault draws the next fault from a shuffled deck, so that a short run has most kinds. Those
// of a replica are of replica i.
func (w *world) fault(i int) fault {
	if len(w.deck) == 0 {
		w.deck = w.newDeck()
	}
	draw := w.deck[0]
	w.deck = w.deck[1:]
	return draw(i)
}

// ofCluster is a fault of the database's nodes as one of the deck.
func ofCluster(choose func() fault) func(int) fault {
	return func(int) fault {
		f := choose()
		f.name, f.database = f.kind, true
		return f
	}
}

func (w *world) fullDeck() []func(int) fault {
	deck := []func(int) fault{
		w.kill, w.stop, w.cutDatabase, w.cutDatabase, w.cutBucket, w.cutClients, w.breakDatabase, w.breakClients, w.breakCommits, w.breakCommits, w.slowLink,
		ofCluster(w.failOver), ofCluster(w.failOverAlone), ofCluster(w.standbyCut), ofCluster(w.slowDisk),
	}
	if w.cluster.nodes[0].disk != "" {
		deck = append(deck, ofCluster(w.primaryFull), ofCluster(w.standbyFull))
	}
	if w.bucketDisk != "" {
		deck = append(deck, w.bucketFull)
	}
	if w.steps {
		deck = append(deck, w.clockStep)
	}
	if w.cluster.fakeTime != "" {
		deck = append(deck, ofCluster(w.databaseClockStep))
	}
	return w.shuffled(deck)
}

func (w *world) shuffled(deck []func(int) fault) []func(int) fault {
	w.rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck
}

func ofReplica(i int) string { return fmt.Sprintf(" (replica %d)", i) }

func (w *world) kill(i int) fault {
	const kind = "replica killed"
	return fault{kind: kind, name: kind + ofReplica(i), begin: w.servers[i].Kill, end: w.servers[i].Start, last: true}
}

func (w *world) stop(i int) fault {
	const kind = "replica stopped"
	return fault{kind: kind, name: kind + ofReplica(i), begin: func() { w.signal(i, syscall.SIGSTOP) }, end: func() { w.signal(i, syscall.SIGCONT) }}
}

// way chooses how a link is cut.
func (w *world) way() (string, mode) {
	ways := []mode{refusing, holding, holdingRequests, holdingAnswers}
	n := w.rng.IntN(len(ways))
	return []string{"reset", "cut off", "requests held back", "answers held back"}[n], ways[n]
}

func (w *world) cutBucket(i int) fault {
	name, m := w.way()
	return broken("replica to the bucket: "+name, i, m, w.links[i].bucket)
}

func (w *world) cutClients(i int) fault {
	name, m := w.way()
	return broken("clients to a replica: "+name, i, m, w.links[i].api, w.links[i].registry)
}

// breakCommits resets the connections of a replica at its commits: before the database has the
// commit, or before the replica has the answer.
func (w *world) breakCommits(i int) fault {
	kind, m := "connection lost before the commit", losingCommits
	if w.rng.IntN(2) == 0 {
		kind, m = "connection lost after the commit", losingCommitted
	}
	return broken(kind, i, m, w.links[i].nodes[:]...)
}

func (w *world) breakDatabase(i int) fault {
	return w.breaking("database connections break off", i, w.links[i].nodes[:]...)
}

func (w *world) breakClients(i int) fault {
	return w.breaking("clients' connections break off", i, w.links[i].api, w.links[i].registry)
}

// breaking resets connections in the middle of messages.
func (w *world) breaking(kind string, i int, links ...*link) fault {
	bytes := 200 + w.rng.IntN(20_000)
	return fault{kind: kind, name: fmt.Sprintf("%s every %d bytes (replica %d)", kind, bytes, i), begin: func() {
		for _, l := range links {
			l.breakEvery(bytes)
		}
	}, end: pass(links...)}
}

// slowLink delays the answers of the database to one replica.
func (w *world) slowLink(i int) fault {
	nodes := w.links[i].nodes
	by := time.Duration(1+w.rng.IntN(100)) * time.Millisecond
	return fault{kind: "slow answers of the database", name: fmt.Sprintf("answers of the database take %v longer (replica %d)", by, i), begin: func() {
		nodes[0].slow(by)
		nodes[1].slow(by)
	}, end: pass(nodes[:]...)}
}

// clockStep steps a replica's wall clock, and back. A step is shorter than what the clock
// decides here: a drain that is forced after ten minutes, a resource that fails after ten.
func (w *world) clockStep(i int) fault {
	s := w.servers[i]
	by := time.Duration(1+w.rng.IntN(300)) * time.Second
	if w.rng.IntN(2) == 0 {
		by = -by
	}
	return fault{kind: "clock step", name: fmt.Sprintf("clock step of %v (replica %d)", by, i), begin: func() { s.SetClock(by) }, end: func() { s.SetClock(0) }}
}

// databaseClockStep steps the primary's clock. What it puts into queues meanwhile may be due that
// much later, and settle waits for it.
func (w *world) databaseClockStep() fault {
	by := time.Duration(1+w.rng.IntN(60)) * time.Second
	if w.rng.IntN(2) == 0 {
		by = -by
	}
	c := w.cluster
	return fault{kind: "clock step of the database", begin: func() { c.setClock(c.primary, by) }, end: func() { c.setClock(c.primary, 0) }}
}

func (w *world) failOver() fault {
	return fault{kind: "failover", begin: func() { w.failovers = append(w.failovers, w.cluster.failOver()) }, end: w.cluster.addStandby}
}

// failOverAlone: commits wait for the standby when the primary goes. None of them may have been
// acknowledged: the new primary does not have them.
func (w *world) failOverAlone() fault {
	f := w.failOver()
	wait := time.Duration(w.rng.IntN(3000)) * time.Millisecond
	return fault{kind: "failover while the standby is cut off", begin: func() {
		w.cluster.cutStandby(holding)
		time.Sleep(wait)
		f.begin()
	}, end: f.end}
}

func (w *world) standbyCut() fault {
	_, m := w.way()
	return fault{kind: "standby cut off", begin: func() { w.cluster.cutStandby(m) }, end: w.cluster.joinStandby}
}

func (w *world) slowDisk() fault {
	by := time.Duration(10+w.rng.IntN(90)) * time.Millisecond // PostgreSQL allows at most 100 ms
	return fault{kind: "slow disk", begin: func() { w.cluster.slowDisk(by) }, end: w.cluster.fastDisk}
}

func (w *world) primaryFull() fault {
	c := w.cluster
	return fault{kind: "primary's disk full", begin: func() { c.nodes[c.primary].disk.fill(c.t) }, end: func() { c.empty(c.primary) }}
}

func (w *world) standbyFull() fault {
	c := w.cluster
	return fault{kind: "standby's disk full", begin: func() { c.nodes[1-c.primary].disk.fill(c.t) }, end: func() { c.empty(1 - c.primary) }}
}

func (w *world) bucketFull(int) fault {
	const kind = "bucket's disk full"
	return fault{kind: kind, name: kind, begin: func() { w.bucketDisk.fill(w) }, end: func() { w.bucketDisk.empty(w) }}
}

func pass(links ...*link) func() {
	return func() {
		for _, l := range links {
			l.set(passing)
		}
	}
}

func broken(kind string, i int, m mode, links ...*link) fault {
	return fault{kind: kind, name: kind + ofReplica(i), begin: func() {
		for _, l := range links {
			l.set(m)
		}
	}, end: pass(links...)}
}

func (w *world) signal(i int, signal syscall.Signal) {
	w.Helper()
	if err := syscall.Kill(w.servers[i].Pid(), signal); err != nil {
		w.Fatal(err)
	}
}

// cutDatabase cuts a replica off from the database. It must say in /readyz that it is not
// ready, and be ready again afterwards.
func (w *world) cutDatabase(i int) fault {
	name, m := w.way()
	f := broken("replica to the database: "+name, i, m, w.links[i].nodes[:]...)
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
