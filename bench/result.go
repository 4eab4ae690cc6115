package bench

import (
	"errors"
	"fmt"
	"time"
)

// Result is the result of one workload, with a line for each kind of operation.
type Result struct {
	Workload string    `json:"workload"`
	Measures []Measure `json:"measures"`
}

// Measure is one line of a result. Durations are in nanoseconds.
type Measure struct {
	Name       string        `json:"name"`
	Operations int64         `json:"operations"` // that succeeded
	Errors     int64         `json:"errors"`     // that failed
	FirstError string        `json:"firstError,omitempty"`
	Elapsed    time.Duration `json:"elapsed"`
	PerSecond  float64       `json:"perSecond"`
	Latency    Summary       `json:"latency"`
	// Bytes is the size of the response bodies on the wire.
	Bytes int64 `json:"bytes"`
	// Server is set when the configuration named the server's process.
	Server *Cost `json:"server,omitempty"`
	// LoadCPU is the CPU time of the load itself. If it is close to Elapsed
	// times the number of cores, the load was the bottleneck, not the server.
	LoadCPU time.Duration `json:"loadCPU,omitempty"`
	// Watch is set for watches.
	Watch *Delivery `json:"watch,omitempty"`
	// Yardstick is set for comparisons.
	Yardstick *Ratio `json:"yardstick,omitempty"`
}

// Ratio is the median of a measure divided by that of another measure of the
// same result.
type Ratio struct {
	Name  string  `json:"name"`
	Times float64 `json:"times"`
}

// Cost is the usage of the server's process.
type Cost struct {
	CPU             time.Duration `json:"cpu"`
	CPUPerOperation time.Duration `json:"cpuPerOperation"`
	Resident        int64         `json:"resident"` // bytes, at the end of the workload
}

// Delivery is the result for the watchers. Operations and latency beside it are
// deliveries, from the response to the write until the event's arrival; an
// event that arrives before that response counts as zero.
type Delivery struct {
	Watchers   int     `json:"watchers"`
	CutOff     int     `json:"cutOff"`     // watches that ended early
	Missed     int64   `json:"missed"`     // events that an open watch did not deliver
	Duplicated int64   `json:"duplicated"` // events that arrived twice, or out of order
	Writes     int64   `json:"writes"`
	WriteErrs  int64   `json:"writeErrors"`
	Write      Summary `json:"write"`    // latency of the writes themselves
	FromSend   Summary `json:"fromSend"` // from sending the write until an event's arrival
}

// Err reports the failures of a complete run: operations with errors and events
// that did not arrive.
func (r Result) Err() error {
	var all []error
	for _, m := range r.Measures {
		if m.Errors > 0 {
			all = append(all, fmt.Errorf("%s: %d of %d operations had errors, the first: %s",
				m.Name, m.Errors, m.Errors+m.Operations, m.FirstError))
		}
		if w := m.Watch; w != nil && (w.CutOff > 0 || w.Missed > 0 || w.Duplicated > 0) {
			all = append(all, fmt.Errorf("%s: %d of %d watchers cut off, %d events missed, %d duplicated; first: %s",
				m.Name, w.CutOff, w.Watchers, w.Missed, w.Duplicated, m.FirstError))
		}
	}
	return errors.Join(all...)
}

// tally holds the counts of one worker, which owns it until it is merged.
type tally struct {
	latency  histogram
	ops      int64
	errors   int64
	firstErr error
	bytes    int64
	inTurn   bool // sequential operations: elapsed is the sum of their times
}

// count records one operation.
func (t *tally) count(took time.Duration, bytes int64, err error) {
	t.bytes += bytes
	if err != nil {
		t.fail(err)
		return
	}
	t.ops++
	t.latency.add(took)
}

func (t *tally) fail(err error) {
	t.errors++
	if t.firstErr == nil {
		t.firstErr = err
	}
}

func (t *tally) merge(other *tally) {
	t.latency.merge(&other.latency)
	t.ops += other.ops
	t.errors += other.errors
	t.bytes += other.bytes
	if t.firstErr == nil {
		t.firstErr = other.firstErr
	}
}

// meter holds the clock and the processes' usage at the start of a workload.
type meter struct {
	pid    int
	begin  time.Time
	server usage
	load   time.Duration
}

func startMeter(pid int) (meter, error) {
	m := meter{pid: pid}
	if pid != 0 {
		var err error
		if m.server, err = readUsage(pid); err != nil {
			return meter{}, err
		}
		m.load = loadCPU()
	}
	m.begin = time.Now()
	return m, nil
}

// stop turns a tally into a line of the result.
func (m meter) stop(name string, t *tally) (Measure, error) {
	return m.stopAfter(name, t, time.Since(m.begin))
}

// stopAfter is stop for a workload that ended before this call.
func (m meter) stopAfter(name string, t *tally, elapsed time.Duration) (Measure, error) {
	out := Measure{
		Name: name, Operations: t.ops, Errors: t.errors, Elapsed: elapsed,
		Latency: t.latency.summary(), Bytes: t.bytes,
	}
	if t.firstErr != nil {
		out.FirstError = t.firstErr.Error()
	}
	if elapsed > 0 {
		out.PerSecond = float64(t.ops) / elapsed.Seconds()
	}
	if m.pid == 0 {
		return out, nil
	}
	now, err := readUsage(m.pid)
	if err != nil {
		return Measure{}, err
	}
	cost := &Cost{CPU: now.cpu - m.server.cpu, Resident: now.resident}
	if t.ops > 0 {
		cost.CPUPerOperation = cost.CPU / time.Duration(t.ops)
	}
	out.Server, out.LoadCPU = cost, loadCPU()-m.load
	return out, nil
}
