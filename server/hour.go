package server

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/exeunt/exeunt/internal/task"
)

// HourPath is where administrators read the last hour, a Sample a minute.
const HourPath = StatusPath + "/hour"

const (
	sampleEvery = time.Minute
	mostSamples = 60
)

// Sample is the state of the server at the end of a minute.
type Sample struct {
	At       time.Time `json:"at"`
	Removed  int64     `json:"removed"` // objects that left in the minute, on all replicas; Events do not count
	Queued   int       `json:"queued"`  // reviews in all queues
	Overdue  int       `json:"overdue"` // of them, due
	Database int64     `json:"databaseBytes"`
	Disk     int64     `json:"diskBytes"` // of the data directory's file system; 0: not known
	Free     int64     `json:"diskFreeBytes"`
}

// hour keeps the samples of the last hour in memory: each replica those since its start.
type hour struct {
	mu      sync.Mutex
	samples []Sample // at most mostSamples, the oldest first; guarded by mu
	before  int64    // the removed objects at the last sample; owned by run
}

// run takes a sample each minute.
func (h *hour) run(ctx context.Context, removed func() int64, status func(context.Context) *Status) {
	for h.before = removed(); task.Sleep(ctx, sampleEvery); {
		h.add(removed(), status(ctx))
	}
}

// add appends a sample, and forgets the oldest beyond an hour.
func (h *hour) add(removed int64, now *Status) {
	if now.Database.Bytes == 0 {
		return // the database does not answer: nothing is known
	}
	next := Sample{At: time.Now().UTC(), Removed: removed - h.before, Database: now.Database.Bytes, Disk: now.Disk.Bytes, Free: now.Disk.Free}
	for _, q := range now.Queues {
		next.Queued, next.Overdue = next.Queued+q.Depth, next.Overdue+q.Overdue
	}
	h.before = removed
	h.mu.Lock()
	defer h.mu.Unlock()
	h.samples = append(h.samples, next)
	h.samples = h.samples[max(0, len(h.samples)-mostSamples):]
}

func (h *hour) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	all := append([]Sample{}, h.samples...)
	h.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"samples": all}) // the client may be gone
}
