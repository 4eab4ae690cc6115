package gc

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// Path is the prefix that ServeHTTP expects.
const Path = "/exeunt/gc"

// maxReason bounds the reason of a pause, in bytes.
const maxReason = 1000

// ServeHTTP shows and switches the collector:
//
//	GET  /exeunt/gc                    the Status, as JSON
//	POST /exeunt/gc/pause?reason=TEXT  stop every replica's collector
//	POST /exeunt/gc/resume             let them go on
//	POST /exeunt/gc/scan               enqueue reviews that no trigger enqueued
//
// Each POST answers with the Status after it; scan adds how many it found. The
// server authorizes the client before it calls ServeHTTP.
func (c *Collector) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	verb, _ := strings.CutPrefix(strings.TrimSuffix(req.URL.Path, "/"), Path)
	method := http.MethodPost
	if verb == "" {
		method = http.MethodGet
	}
	answer := struct {
		Status
		Found *int `json:"found,omitempty"`
	}{}
	var err error
	switch verb {
	case "", "/pause", "/resume", "/scan":
	default:
		http.NotFound(w, req)
		return
	}
	if req.Method != method {
		w.Header().Set("Allow", method)
		http.Error(w, "use "+method, http.StatusMethodNotAllowed)
		return
	}
	switch verb {
	case "/pause":
		reason := strings.ToValidUTF8(strings.ReplaceAll(req.URL.Query().Get("reason"), "\x00", ""), "\uFFFD")
		if len(reason) > maxReason {
			http.Error(w, "the reason is longer than 1000 bytes", http.StatusBadRequest)
			return
		}
		err = c.Pause(req.Context(), reason)
	case "/resume":
		err = c.Resume(req.Context())
	case "/scan":
		var found int
		found, err = c.Scan(req.Context())
		answer.Found = &found
	}
	if err == nil {
		answer.Status, err = c.Status(req.Context())
	}
	if err != nil {
		c.opts.Logger.Error("request to the collector failed", "path", req.URL.Path, "error", err)
		if store.Unavailable(err) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the server is stopping, or its database does not answer; please try again", http.StatusServiceUnavailable)
			return
		}
		http.Error(w, "internal error, see the server's log", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // fails only if the client has disconnected
}

// shownFailing bounds the failing reviews in a Status.
const shownFailing = 20

// Status is the state of the collector, for operators.
type Status struct {
	Paused   bool       `json:"paused"`
	Reason   string     `json:"reason,omitempty"`   // why it is paused
	Depth    int        `json:"depth"`              // reviews in the queue
	Overdue  int        `json:"overdue"`            // of them, due
	Claimed  int        `json:"claimed"`            // of them, under review
	Failing  int        `json:"failing"`            // of them, failed last time
	Asking   int        `json:"asking"`             // deletes that wait for webhooks or policies
	Refused  int        `json:"refused"`            // of them, refused or without an answer last time
	Oldest   *time.Time `json:"oldest,omitempty"`   // when the oldest review was queued
	Failures []Failure  `json:"failures,omitempty"` // those with the most attempts
}

// Failure is a review that failed last time.
type Failure struct {
	UID       string    `json:"uid"`
	Kind      string    `json:"kind,omitempty"` // of the object, if it exists
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	Event     string    `json:"event"` // the reason that enqueued it
	Attempts  int       `json:"attempts"`
	Next      time.Time `json:"next"`
	Error     string    `json:"error"`
}

// Status reads the switch and the queue.
func (c *Collector) Status(ctx context.Context) (Status, error) {
	var s Status
	var err error
	if s.Paused, s.Reason, err = ReadPaused(ctx, c.store.Reader()); err != nil {
		return Status{}, err
	}
	stats, err := c.engine.Stats(ctx)
	if err != nil {
		return Status{}, err
	}
	s.Depth, s.Overdue, s.Claimed, s.Failing = stats.Depth, stats.Overdue, stats.Claimed, stats.Failing
	if !stats.Oldest.IsZero() {
		oldest := stats.Oldest.UTC()
		s.Oldest = &oldest
	}
	asks, err := c.admitter.engine.Stats(ctx)
	if err != nil {
		return Status{}, err
	}
	s.Asking, s.Refused = asks.Depth, asks.Failing
	if s.Failing+s.Refused > 0 {
		s.Failures, err = c.failures(ctx)
	}
	return s, err
}

func (c *Collector) failures(ctx context.Context) ([]Failure, error) {
	reader := c.store.Reader()
	var out []Failure
	var uids []types.UID
	err := sqldb.Each(ctx, reader, func(row sqldb.Row) error {
		var f Failure
		var attempts, next int64
		err := row.Scan(&f.UID, &f.Event, &attempts, &next, &f.Error)
		f.Attempts, f.Next = int(attempts), time.UnixMilli(next).UTC()
		out, uids = append(out, f), append(uids, types.UID(f.UID))
		return err
	}, failing, shownFailing)
	if err != nil {
		return nil, fmt.Errorf("list failing reviews: %w", err)
	}
	heads, err := reader.Heads(ctx, uids)
	for i := range out {
		h := heads[uids[i]]
		out[i].Kind, out[i].Namespace, out[i].Name = h.Kind, h.Namespace, h.Name
	}
	return out, err
}
