package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

const (
	// watchPrefix keeps the written objects apart from those that are listed.
	watchPrefix = "watched-"
	// perWriter is how many objects a writer makes before it only updates them.
	perWriter = 100
	// quiet is how long RunWatch waits, after the last write, for events that
	// are under way: so long without a single delivery and the rest is missed.
	quiet = 5 * time.Second
)

// RunWatch opens watches on the namespace, then lets writers create and update
// objects, and follows every event to every watcher.
//
// Each writer numbers its writes and sends one only when the one before was
// answered. A watch shows changes in the order they were made, so each watcher
// must see each writer's numbers without gaps and in order: a number that jumps
// ahead means missed events, one that falls back means a duplicate.
func RunWatch(ctx context.Context, config Config) (Result, error) {
	s, err := open(ctx, config)
	if err != nil {
		return Result{}, err
	}
	defer s.pool.close()
	// Watchers get connections of their own: the answer to a write must not
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
	running  sync.WaitGroup     // watchers that still read
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

// openWatches opens all watches at the present state and returns when each has
// been answered: from here on, no event may pass any of them by.
func (r *race) openWatches(ctx context.Context, p *pool) error {
	version, err := r.version(ctx)
	if err != nil {
		return err
	}
	query := fmt.Sprintf("watch=1&resourceVersion=%s&timeoutSeconds=%d", version, int((r.Duration + time.Hour).Seconds()))
	watchCtx, cancel := context.WithCancel(ctx)
	r.cancel = cancel
	// A watch has no timeout of its own while it runs, only while it opens.
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

// write runs the writers to their end.
func (r *race) write(ctx context.Context) *tally {
	end := time.Now().Add(r.Duration)
	share := func(i int) int64 { // of Events; all writers together make them
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

// await returns when every watcher has everything or nothing comes any more.
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

// stop ends the watches and waits for the watchers; what they counted is safe
// to read afterwards.
func (r *race) stop() {
	r.cancel()
	r.running.Wait()
}

// measure adds up what the watchers saw.
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
			continue // what it would have missed says nothing
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
