package robust_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report prints the run as Markdown.
func (w *world) report(events []event) {
	w.Helper()
	if len(w.history.ops) < 100 || len(w.pusher.pushed) == 0 || len(w.breeder.families) == 0 || w.lives.ended == 0 {
		w.Errorf("the run is void: %d operations, %d images, %d families, %d provisioned resources", len(w.history.ops), len(w.pusher.pushed), len(w.breeder.families), w.lives.ended)
	}
	var b strings.Builder
	result := "passed"
	if w.Failed() {
		result = "FAILED"
	}
	version, err := w.cluster.query("SHOW server_version")
	if err != nil {
		version = err.Error()
	}
	row := func(cells ...any) {
		for _, c := range cells {
			fmt.Fprintf(&b, "| %v ", c)
		}
		b.WriteString("|\n")
	}
	fmt.Fprintf(&b, "Result: %s. Seed %d, %v of faults, %d replicas, PostgreSQL %s, %d processors, clock steps: %v, of the database: %v, full disks: %v, of the bucket: %v.\n\n",
		result, w.seed, *robustFor, replicas, version, runtime.NumCPU(), w.steps, w.cluster.fakeTime != "", w.cluster.nodes[0].disk != "", w.bucketDisk != "")
	row("operation", "succeeded", "refused", "without an answer")
	b.WriteString("|---|---|---|---|\n")
	counts := w.operations()
	for _, v := range []verb{doCreate, doGet, doUpdate, doDelete} {
		n := counts[v]
		row(v, n[0], n[1], n[2])
	}
	b.WriteString("\n")
	row("checked", "count")
	b.WriteString("|---|---|\n")
	watches, lists := w.informerCounts()
	row("events, the same on each replica's watch", len(events))
	row("watches resumed", w.resumed())
	row("lists compared with the events", len(w.history.lists))
	row("informers: watches, of which began with a list", fmt.Sprintf("%d, %d", watches, lists))
	row("cascades", len(w.breeder.families))
	row("images pushed or mounted, of tries", fmt.Sprintf("%d of %d", w.pusher.acknowledged, w.pusher.tries))
	row("provisioned resources torn down in order", w.lives.ended)
	row("writes through the load balancer", w.balanced.writes)
	row("failovers", len(w.failovers))
	row("database nodes that ended on a full disk", w.cluster.panics)
	b.WriteString("\n")
	row("fault", "count", "longest time without a successful write", "with another fault")
	b.WriteString("|---|---|---|---|\n")
	faults := w.gapsByFault()
	for _, kind := range slices.SortedFunc(maps.Keys(faults), cmp.Compare[string]) {
		f := faults[kind]
		row(kind, f.alone.periods+f.together.periods, f.alone, f.together)
	}
	fmt.Println(b.String())
	if *robustInto != "" {
		if err := os.WriteFile(*robustInto, []byte(b.String()), 0o644); err != nil {
			w.Error(err)
		}
	}
}

// operations counts, by verb, those that succeeded, were refused, and have no answer.
// Reads without an answer are not in the history.
func (w *world) operations() map[verb][3]int {
	counts := map[verb][3]int{}
	for _, op := range w.history.ops {
		in, out := op.Input.(request), op.Output.(outcome)
		n := counts[in.Verb]
		switch {
		case out.Unknown:
			n[2]++
		case out.Code < 300:
			n[0]++
		default:
			n[1]++
		}
		counts[in.Verb] = n
	}
	n := counts[doGet]
	n[2] = int(w.history.unread.Load())
	counts[doGet] = n
	return counts
}

func (w *world) resumed() (n int) {
	for _, watch := range w.watchers {
		n += watch.resumed
	}
	return n
}

func (w *world) informerCounts() (watches, lists int) {
	for _, i := range w.informers {
		c := i.counts()
		watches, lists = watches+c.watches, lists+c.lists
	}
	return watches, lists
}

// faultGaps is how long no write succeeded because of one kind of fault.
type faultGaps struct {
	alone, together gaps
}

// gaps are of the periods of a fault: alone, or with another one.
type gaps struct {
	periods int
	longest time.Duration
}

// of is the part that a period counts in.
func (f *faultGaps) of(p period) *gaps {
	if len(p.kinds) == 1 {
		return &f.alone
	}
	return &f.together
}

// gapsByFault gives each gap to the period that overlaps most of it.
func (w *world) gapsByFault() map[string]*faultGaps {
	found := map[string]*faultGaps{}
	for _, p := range w.periods {
		for _, kind := range p.kinds {
			if found[kind] == nil {
				found[kind] = &faultGaps{}
			}
			found[kind].of(p).periods++
		}
	}
	for _, g := range w.balanced.gaps {
		var during period
		most := time.Duration(0)
		for _, p := range w.periods {
			if o := overlap(p, g); o > most {
				during, most = p, o
			}
		}
		for _, kind := range during.kinds {
			part := found[kind].of(during)
			part.longest = max(part.longest, g.to.Sub(g.from))
		}
	}
	return found
}

func overlap(p period, g gap) time.Duration {
	from, to := p.from, p.to
	if g.from.After(from) {
		from = g.from
	}
	if g.to.Before(to) {
		to = g.to
	}
	return to.Sub(from)
}

func (g gaps) String() string {
	switch {
	case g.periods == 0:
		return "–"
	case g.longest == 0:
		return fmt.Sprintf("under %.1f s", shortGap.Seconds())
	}
	return fmt.Sprintf("%.1f s", g.longest.Seconds())
}
