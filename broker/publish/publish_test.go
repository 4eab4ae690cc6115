package publish_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/publish"
	"github.com/exeunt/exeunt/broker/sqlbroker"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

var errDown = errors.New("connection lost")

// sink records the events that it receives.
type sink struct {
	name string
	fail bool
	told []string
}

func (s *sink) Name() string { return s.name }

func (s *sink) Deliver(_ context.Context, e publish.Event) error {
	if s.fail {
		return errDown
	}
	s.told = append(s.told, strings.TrimPrefix(string(e.Type), "broker.ProvisionedResource")+" "+string(e.ProvisionedResourceID))
	return nil
}

// outbox is the real outbox, which can lose marks.
type outbox struct {
	*sqlbroker.Repository
	lost bool
}

func (o *outbox) MarkPublished(ctx context.Context, token broker.OutboxToken, sink string) error {
	if o.lost {
		return errDown
	}
	return o.Repository.MarkPublished(ctx, token, sink)
}

type world struct {
	*testing.T
	outbox *outbox
	db     *sqldb.DB
	now    time.Time
	sinks  []publish.Sink
}

func each(t *testing.T, test func(w *world)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		test(&world{T: t, db: db, outbox: &outbox{Repository: sqlbroker.New(db, nil)}, now: time.Now()})
	})
}

// live creates a resource with two events.
func (w *world) live(id broker.ProvisionedResourceID) {
	w.Helper()
	r, err := broker.Restore(broker.State{ID: id, Project: "shop", Name: string(id), Deadline: time.Hour, Phase: broker.PhasePending, CreatedAt: w.now, ConvergeStartedAt: w.now})
	if err != nil {
		w.Fatal(err)
	}
	if err := w.outbox.Create(w.Context(), r); err != nil {
		w.Fatal(err)
	}
	r, _ = r.RequestDeletion(w.now)
	if err := w.outbox.RecordDeletionIntent(w.Context(), r); err != nil {
		w.Fatal(err)
	}
}

// run runs turns of a new process until nothing is due.
func (w *world) run() review.Stats {
	w.Helper()
	e, err := review.New(w.db, publish.Queue, publish.New(w.outbox, w.sinks...), review.Transactions(w.db), review.Options{
		Now: func() time.Time { return w.now }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.Fatal(err)
	}
	for {
		r, err := e.RunOne(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if r.Claimed == 0 {
			stats, err := e.Stats(w.Context())
			if err != nil {
				w.Fatal(err)
			}
			return stats
		}
	}
}

func (w *world) want(s *sink, told ...string) {
	w.Helper()
	if !slices.Equal(s.told, told) {
		w.Errorf("%s received %q, want %q", s.name, s.told, told)
	}
}

// TestPublish: every sink receives every event once, in order.
func TestPublish(t *testing.T) {
	each(t, func(w *world) {
		a, b := &sink{name: "a"}, &sink{name: "b"}
		w.sinks = []publish.Sink{a, b}
		w.live("id-1")
		if stats := w.run(); stats.Depth != 0 {
			w.Errorf("the queue is %+v", stats)
		}
		w.live("id-2")
		w.run()
		for _, s := range []*sink{a, b} {
			w.want(s, "Requested id-1", "Deleting id-1", "Requested id-2", "Deleting id-2")
		}
	})
}

// TestSinkDown: a failing sink does not delay the others, and misses no event.
func TestSinkDown(t *testing.T) {
	each(t, func(w *world) {
		up, down := &sink{name: "up"}, &sink{name: "down", fail: true}
		w.sinks = []publish.Sink{down, up}
		w.live("id-1")
		if stats := w.run(); stats.Failing != 1 {
			w.Errorf("the queue is %+v", stats)
		}
		w.want(up, "Requested id-1", "Deleting id-1")
		w.want(down)
		down.fail = false
		w.now = w.now.Add(time.Hour)
		w.run()
		w.want(up, "Requested id-1", "Deleting id-1")
		w.want(down, "Requested id-1", "Deleting id-1")
	})
}

// TestDeathBeforeMark: the process dies after it sent an event and before it marked it.
// The event is sent again; no event is lost, and the order of first arrivals holds.
func TestDeathBeforeMark(t *testing.T) {
	each(t, func(w *world) {
		s := &sink{name: "a"}
		w.sinks = []publish.Sink{s}
		w.live("id-1")
		w.outbox.lost = true
		w.run()
		w.want(s, "Requested id-1")
		w.outbox.lost = false
		w.now = w.now.Add(time.Hour)
		w.run()
		w.want(s, "Requested id-1", "Requested id-1", "Deleting id-1")
	})
}

// TestWebhook: the webhook receives a CloudEvent with its token as id; only a 2xx counts
// as delivered.
func TestWebhook(t *testing.T) {
	status := http.StatusOK
	var got *http.Request
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		if status == http.StatusFound {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(status)
	}))
	defer server.Close()
	event := publish.Event{Token: "broker.X/id-1", Type: broker.EventReady, Payload: json.RawMessage(`{"xrName":"web-1"}`)}
	event.ProvisionedResourceID, event.ProjectID, event.OccurredAt = "id-1", "shop", time.UnixMilli(0)
	hook := publish.Webhook{URL: server.URL}
	for code, arrives := range map[int]bool{200: true, 204: true, 202: true, 302: false, 400: false, 429: false, 500: false} {
		status = code
		if err := hook.Deliver(t.Context(), event); (err == nil) != arrives {
			t.Errorf("%d: %v", code, err)
		}
		if got.URL.Path != "/" {
			t.Errorf("%d: it went to %s", code, got.URL.Path)
		}
	}
	if got.Method != "POST" || got.Header.Get("Idempotency-Key") != "broker.X/id-1" || got.Header.Get("Content-Type") != "application/cloudevents+json" {
		t.Errorf("%s with %v", got.Method, got.Header)
	}
	const want = `{"data":{"xrName":"web-1"},"datacontenttype":"application/json","id":"broker.X/id-1","source":"/exeunt/broker","specversion":"1.0","subject":"shop/id-1","time":"1970-01-01T00:00:00Z","type":"broker.ProvisionedResourceReady"}`
	if string(body) != want {
		t.Errorf("body\n%s, want\n%s", body, want)
	}
	server.Close()
	if err := hook.Deliver(t.Context(), event); err == nil {
		t.Error("Publish succeeded without a server")
	}
}

func TestLog(t *testing.T) {
	var out bytes.Buffer
	event := publish.Event{Token: "broker.X/id-1", Type: broker.EventReady}
	if err := (publish.Log{Logger: slog.New(slog.NewTextHandler(&out, nil))}).Deliver(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "msg=broker.ProvisionedResourceReady token=broker.X/id-1") {
		t.Errorf("log: %s", out.String())
	}
}
