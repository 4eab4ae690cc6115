package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

const (
	// watchPrefix separates the written objects from the listed ones.
	watchPrefix = "watched-"
	// perWriter is the number of objects that a writer creates before it only
	// updates.
	perWriter = 100
	// quiet is how long RunWatch waits, after the last delivery, for further
	// events; then the rest counts as missed.
	quiet = 5 * time.Second
)

// RunWatch opens watches on the namespace, then lets writers create and update
// objects, and follows every event to every watcher.
//
// Each writer numbers its writes and sends the next after the response to the
// last. A watch shows changes in order, so each watcher must see each writer's
// numbers in order and without gaps: a number that jumps ahead means missed
// events, one that falls back means a duplicate.
func RunWatch(ctx context.Context, config Config) (Result, error) {
	s, err := open(ctx, config)
	if err != nil {
		return Result{}, err
	}
	defer s.pool.close()
	// Watchers get their own connections: the response to a write must not
	// queue behind events.
	watchPool, err := openPool(s.REST, s.Connections)
	if err != nil {
		return Result{}, err
	}
	defer watchPool.close()
	r := newRace(s)
	defer r.stop()
	if err := r.openWatches(ctx, watchPool); err != nil {
		return Result{}, err
	}
	m, err := startMeter(s.PID)
	if err != nil {
		return Result{}, err
	}
	writes := r.write(ctx)
	r.await(ctx)
	r.stop()
	measure, err := r.measure(m, writes)
	if err != nil {
		return Result{}, err
	}
	return Result{Workload: "watch", Measures: []Measure{measure}}, ctx.Err()
}

// race is one run of writers against watchers.
type race struct {
	*session
	writers  []*writer
	watchers []*watcher
	cancel   context.CancelFunc // ends the watches; set by openWatches
	running  sync.WaitGroup     // running watchers
}

func newRace(s *session) *race {
	r := &race{session: s, cancel: func() {}}
	clock := time.Now()
	for i := range s.Writers {
		r.writers = append(r.writers, newWriter(i, s, clock))
	}
	for range s.Watchers {
		r.watchers = append(r.watchers, &watcher{writers: r.writers, clock: clock, next: make([]int64, s.Writers)})
	}
	return r
}

// openWatches opens all watches at the present revision and returns when each
// has been answered: from here on, each must see every event.
func (r *race) openWatches(ctx context.Context, p *pool) error {
	version, err := r.version(ctx)
	if err != nil {
		return err
	}
	query := fmt.Sprintf("watch=1&resourceVersion=%s&timeoutSeconds=%d", version, int((r.Duration + time.Hour).Seconds()))
	watchCtx, cancel := context.WithCancel(ctx)
	r.cancel = cancel
	// The timeout applies to opening a watch only.
	timer := time.AfterFunc(requestTimeout, cancel)
	defer timer.Stop()
	for i, w := range r.watchers {
		answer, err := p.client(i).send(watchCtx, "GET", r.path, query, plainHeader, nil)
		if err != nil {
			return fmt.Errorf("open watch %d: %w", i+1, err)
		}
		r.running.Go(func() { w.follow(watchCtx, answer.Body) })
	}
	return nil
}

// version is the resource version to watch from.
func (r *race) version(ctx context.Context) (string, error) {
	data, err := r.pool.client(0).get(ctx, r.path, "limit=1")
	if err != nil {
		return "", fmt.Errorf("list before watch: %w", err)
	}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return "", fmt.Errorf("list before watch: %w", err)
	}
	if list.Metadata.ResourceVersion == "" {
		return "", fmt.Errorf("list before watch: the answer has no resourceVersion: %.200q", data)
	}
	return list.Metadata.ResourceVersion, nil
}

// write runs the writers until they end.
func (r *race) write(ctx context.Context) *tally {
	end := time.Now().Add(r.Duration)
	share := func(i int) int64 { // of Events, which all writers make together
		if r.Events == 0 {
			return 0
		}
		return int64((r.Events + r.Writers - 1 - i) / r.Writers)
	}
	var group sync.WaitGroup
	for i, w := range r.writers {
		if r.Events != 0 && share(i) == 0 {
			continue
		}
		group.Go(func() { w.run(ctx, r.pool.client(i), end, share(i)) })
	}
	group.Wait()
	total := &tally{}
	for _, w := range r.writers {
		total.merge(&w.tally)
	}
	return total
}

// await returns when every watcher has all events or no more arrive.
func (r *race) await(ctx context.Context) {
	last, since := int64(-1), time.Now()
	for ctx.Err() == nil {
		var delivered int64
		complete := true
		for _, w := range r.watchers {
			delivered += w.delivered.Load()
			complete = complete && (w.ended.Load() || w.complete())
		}
		if complete {
			return
		}
		if delivered != last {
			last, since = delivered, time.Now()
		} else if time.Since(since) > quiet {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// stop ends the watches and waits for the watchers; their counts are safe to
// read afterwards.
func (r *race) stop() {
	r.cancel()
	r.running.Wait()
}

// measure adds up the watchers' counts.
func (r *race) measure(m meter, writes *tally) (Measure, error) {
	var t tally
	var fromSend histogram
	delivery := &Delivery{Watchers: len(r.watchers), Writes: writes.ops, WriteErrs: writes.errors, Write: writes.latency.summary()}
	elapsed := time.Duration(0)
	for _, w := range r.watchers {
		t.merge(&w.tally)
		fromSend.merge(&w.fromSend)
		delivery.Missed += w.missed
		delivery.Duplicated += w.duplicated
		elapsed = max(elapsed, w.last-m.begin.Sub(w.clock))
		if w.cut != nil {
			delivery.CutOff++
			if t.firstErr == nil {
				t.firstErr = w.cut
			}
			continue // a watch that was cut off says nothing about missed events
		}
		for i, writer := range r.writers {
			delivery.Missed += max(0, writer.acked.Load()-w.next[i])
		}
	}
	t.errors += writes.errors
	if writes.firstErr != nil {
		t.firstErr = writes.firstErr
	}
	delivery.FromSend = fromSend.summary()
	measure, err := m.stopAfter("watch", &t, elapsed)
	measure.Watch = delivery
	return measure, err
}
