package robust_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// event is one change as a watch delivered it.
type event struct {
	Type    string
	Name    string
	UID     string
	Version int64
	// Deleting: it has a deletionTimestamp.
	Deleting bool
}

// watcher follows a collection through one replica, and resumes after every fault from
// the last version that it received.
type watcher struct {
	replica api
	path    string
	from    int64 // where it began

	mu       sync.Mutex
	events   []event  // guarded by mu
	resumed  int      // guarded by mu
	problems []string // guarded by mu
}

// run watches for a few seconds at a time, so that it also resumes without a fault. It pauses in
// between, so that there is something to catch up with.
func (w *watcher) run(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		w.follow(ctx, 1+n%5)
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(n%4) * 100 * time.Millisecond):
		}
	}
}

func (w *watcher) last() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events) == 0 {
		return w.from
	}
	return w.events[len(w.events)-1].Version
}

// follow reads one watch until it breaks, or for some seconds.
func (w *watcher) follow(ctx context.Context, seconds int) {
	req, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("%s%s?watch=1&resourceVersion=%d&timeoutSeconds=%d", w.replica.base, w.path, w.last(), seconds), nil)
	if err != nil {
		return
	}
	response, err := w.replica.http.Do(req)
	if err != nil {
		return
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusGone {
		w.complain("the watch from %d answers 410", w.last())
	}
	if response.StatusCode != http.StatusOK {
		return
	}
	w.mu.Lock()
	w.resumed++
	w.mu.Unlock()
	lines := bufio.NewReader(response.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil { // an event that broke off has no newline
			return
		}
		var e struct {
			Type   string
			Object struct {
				meta
				Code int
			}
		}
		if err := json.Unmarshal(line, &e); err != nil {
			w.complain("an event is not JSON: %v: %.200s", err, line)
			return
		}
		if e.Type == "ERROR" && e.Object.Code == http.StatusTooManyRequests {
			return // the database does not answer: the client continues from its last version
		}
		if e.Type == "ERROR" {
			w.complain("the watch from %d: %.300s", w.last(), line)
			return
		}
		w.note(event{e.Type, e.Object.Metadata.Name, e.Object.Metadata.UID, e.Object.version(), e.Object.Metadata.DeletionTimestamp != nil})
	}
}

func (w *watcher) note(e event) {
	last := w.last()
	if e.Version <= last {
		w.complain("%+v came after version %d", e, last)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

func (w *watcher) complain(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.problems) < 20 {
		w.problems = append(w.problems, fmt.Sprintf(format, args...))
	}
}

// compareWatches: every watch, on every replica, delivered the same events in the same
// order, up to the version last.
func compareWatches(t *testing.T, watchers []*watcher) []event {
	t.Helper()
	longest := watchers[0]
	for i, w := range watchers {
		for _, problem := range w.problems {
			t.Errorf("watch of replica %d: %s", i, problem)
		}
		if len(w.events) > len(longest.events) {
			longest = w
		}
	}
	for i, w := range watchers {
		for j, e := range longest.events {
			if j >= len(w.events) || w.events[j] != e {
				t.Errorf("watch of replica %d has, at place %d, %+v; another replica's has %+v", i, j, w.events[j:min(j+1, len(w.events))], e)
				break
			}
		}
	}
	checkLives(t, longest.events)
	return longest.events
}

// checkLives: each object is added once, changed while it is there, and deleted once.
func checkLives(t *testing.T, events []event) {
	t.Helper()
	alive, gone := map[string]bool{}, map[string]bool{}
	for _, e := range events {
		switch {
		case e.Type == "ADDED" && (alive[e.UID] || gone[e.UID]):
			t.Errorf("%+v: it was added before", e)
		case e.Type != "ADDED" && !alive[e.UID]:
			t.Errorf("%+v: it is not there", e)
		case e.Type == "DELETED":
			delete(alive, e.UID)
			gone[e.UID] = true
		default:
			alive[e.UID] = true
		}
	}
}

// checkLists: each LIST is the state at its version, as the events tell it.
func checkLists(t *testing.T, from int64, events []event, lists []snapshot) {
	t.Helper()
	slices.SortFunc(lists, func(a, b snapshot) int { return int(a.version - b.version) })
	state, next := map[string]int64{}, 0
	for _, l := range lists {
		if l.version < from {
			continue
		}
		for ; next < len(events) && events[next].Version <= l.version; next++ {
			e := events[next]
			if e.Type == "DELETED" {
				delete(state, e.Name)
			} else {
				state[e.Name] = e.Version
			}
		}
		for name, version := range state {
			if l.objects[name] != version {
				t.Errorf("a LIST at version %d has %s at version %d, and the events say %d", l.version, name, l.objects[name], version)
				return
			}
		}
		for name := range l.objects {
			if _, ok := state[name]; !ok && name != "kube-root-ca.crt" {
				t.Errorf("a LIST at version %d has %s, and the events say that it is not there", l.version, name)
				return
			}
		}
	}
}
