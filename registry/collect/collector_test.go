package collect

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestNewCollectorRefuses(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{})
	for want, o := range map[string]Options{
		"unknown event":     {ReviewAfter: map[string]time.Duration{"lunch": time.Hour}},
		"must be from 0":    {ReviewAfter: map[string]time.Duration{EventTagDelete: -time.Hour}},
		"cannot expire":     {UploadExpiry: -time.Second},
		"to 100 years":      {ReviewAfter: map[string]time.Duration{EventTagDelete: 1 << 62}},
		"event \"\": known": {ReviewAfter: map[string]time.Duration{"": 0}},
	} {
		if _, err := New(w.DB, w.Store, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got error %v, want %q", o, err, want)
		}
	}
	if _, err := New(nil, w.Store, Options{}); err == nil {
		t.Error("made a collector without a database")
	}
	if _, err := New(w.DB, nil, Options{}); err == nil {
		t.Error("made a collector without a blob store")
	}
}

func TestManifestKey(t *testing.T) {
	repository, digest, err := parseManifestKey(manifestKey(42, "sha256:abc"))
	if repository != 42 || digest != "sha256:abc" || err != nil {
		t.Errorf("got %d, %q, %v", repository, digest, err)
	}
	for _, key := range []string{"", "@", "1", "1@", "x@sha256:a", "@sha256:a", "99999999999999999999@a"} {
		if _, _, err := parseManifestKey(key); err == nil {
			t.Errorf("accepted %q", key)
		}
	}
}

// TestGCBadKey: a row with an invalid key fails, and does not stop other
// reviews.
func TestGCBadKey(t *testing.T) {
	each(t, func(w *world) {
		w.Push(image{Repo: "r", Name: "m"})
		w.Exec(`INSERT INTO gc_manifest_review_queue (manifest, review_after, review_count, event, created_at) VALUES ('nonsense', 0, 0, 'x', 0)`)
		w.Exec(`INSERT INTO gc_unlink_queue (path, review_after, review_count, event, created_at) VALUES ('../../etc/passwd', 0, 0, 'x', 0)`)
		w.clock.Advance(25 * time.Hour)
		turn, err := w.c.RunOne(t.Context())
		if err != nil || turn.Manifests.Failed != 1 || turn.Manifests.Acted != 1 || turn.Unlinks.Failed != 1 {
			t.Errorf("%+v, %v", turn, err)
		}
		w.WantLines("errors", `"../../etc/passwd": not a path of the blob store; "nonsense" is not a repository's id, @ and a digest`,
			`SELECT last_error FROM gc_manifest_review_queue WHERE review_count = 1
			 UNION ALL SELECT replace(last_error, 'effect: remove blob: ', '') FROM gc_unlink_queue WHERE review_count = 1`)
	})
}

// TestGCRun: the loop, with the real clock and no delays.
func TestGCRun(t *testing.T) {
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, db, Options{})
		none := map[string]time.Duration{}
		for _, event := range events {
			none[event] = 0
		}
		c, err := New(db, w.Store, Options{ReviewAfter: none, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w.Push(image{Repo: "r", Name: "kept", Layers: []string{"k"}, Tags: []string{"1"}})
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		dbtest.Await(w, "Run has set the delays", func() bool {
			return w.Count(`SELECT count(*) FROM gc_review_after_defaults WHERE value > 0`) == 0
		})
		w.upload("r", "old", time.Now().Add(-48*time.Hour))
		if _, err := c.RemoveAbandoned(ctx); err != nil {
			t.Fatal(err)
		}
		w.Push(image{Repo: "r", Name: "gone", Layers: []string{"g"}})
		for w.Lines(`SELECT digest FROM manifests UNION ALL SELECT digest FROM blobs UNION ALL SELECT path FROM gc_unlink_queue`) != "k; kept" {
			if ctx.Err() != nil {
				t.Fatal("not collected")
			}
			for _, e := range c.engines() {
				e.Wake()
			}
			time.Sleep(20 * time.Millisecond)
		}
		cancel()
		if err := w.ended(ended); err != nil {
			t.Errorf("ended with %v", err)
		}
		w.Check()
	})
}

// TestGCManifestOutcomes: the metrics count what the review decided.
func TestGCManifestOutcomes(t *testing.T) {
	t.Parallel()
	free := manifestReview{id: 1, taken: true}
	with := func(change func(*manifestReview)) manifestReview { m := free; change(&m); return m }
	for _, c := range []struct {
		name string
		m    manifestReview
		v    review.Verdict
		want string
	}{
		{"nothing keeps it", free, review.Acted(), outcomeDeleted},
		{"not there", manifestReview{}, review.Kept(), outcomeKept},
		{"bad key", manifestReview{invalid: errBadKey}, review.Failed(errBadKey), outcomeFailed},
		{"on hold", with(func(m *manifestReview) { m.onHold = true }), review.Again(holdRecheck), outcomePostponed},
		{"locked", with(func(m *manifestReview) { m.taken = false }), review.Again(busyRecheck), outcomePostponed},
		{"postponed", with(func(m *manifestReview) { m.postponed = true }), review.Again(busyRecheck), outcomePostponed},
		{"tagged", with(func(m *manifestReview) { m.kept = true }), review.Kept(), outcomeKept},
		{"subject kept", with(func(m *manifestReview) { m.subjectTaken, m.subjectExists = true, true }), review.Kept(), outcomeKept},
		{"subject locked", with(func(m *manifestReview) { m.subjectExists = true }), review.Again(busyRecheck), outcomePostponed},
	} {
		v, outcome := c.m.decide()
		if outcome != c.want || !reflect.DeepEqual(v, c.v) {
			t.Errorf("%s: %+v, %s; want %+v, %s", c.name, v, outcome, c.v, c.want)
		}
	}
}

var errBadKey = errors.New("bad key")

// TestGCFailuresCount: a review whose transaction fails counts as failed, once,
// for every worker; the other tasks of its batch do not.
func TestGCFailuresCount(t *testing.T) {
	each(t, func(w *world) {
		w.with(Options{ReviewAfter: map[string]time.Duration{
			EventManifestUpload: 0, EventBlobUpload: 0, EventLayerDelete: 0, EventExistenceCheck: 0, EventBlobDelete: 0,
		}})
		if err := w.c.configure(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Push(image{Repo: "r", Name: "bad", Layers: []string{"poison"}})
		w.Push(image{Repo: "r", Name: "good"})
		failed := func(worker, event string) float64 {
			return testutil.ToFloat64(w.c.metrics.reviews.WithLabelValues(worker, event, outcomeFailed))
		}
		w.refuseDeletes("manifests", "digest", w.DigestOf("bad"))
		w.collectFailing()
		if got := failed(workerManifest, EventManifestUpload); got != 1 {
			t.Errorf("%v manifest reviews failed, want 1", got)
		}
		w.allowDeletes("manifests")
		w.refuseDeletes("blobs", "digest", w.DigestOf("poison"))
		w.clock.Advance(24 * time.Hour) // past the backoff
		w.collectFailing()
		if got := failed(workerBlob, EventLayerDelete); got != 1 {
			t.Errorf("%v blob reviews failed, want 1", got)
		}
		w.allowDeletes("blobs")
		w.clock.Advance(24 * time.Hour)
		w.collectFailing()
		w.Want("")
	})
}

// collectFailing runs everything that is due. Reviews may fail.
func (w *world) collectFailing() {
	w.Helper()
	for range 100 {
		turn, err := w.c.RunOne(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if turn.Idle() {
			return
		}
	}
	w.Fatal("reviews do not end")
}

// refuseDeletes makes the deletion of a row fail.
func (w *world) refuseDeletes(table, column, value string) {
	w.Helper()
	condition := "OLD." + column + " = '" + value + "'"
	if w.DB.Engine() == sqldb.SQLite {
		w.Exec(`CREATE TRIGGER refuse_` + table + ` BEFORE DELETE ON ` + table + ` WHEN ` + condition + ` BEGIN SELECT raise(ABORT, 'refused'); END`)
		return
	}
	w.Exec(`CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$`)
	w.Exec(`CREATE TRIGGER refuse_` + table + ` BEFORE DELETE ON ` + table + ` FOR EACH ROW WHEN (` + condition + `) EXECUTE FUNCTION refuse()`)
}

func (w *world) allowDeletes(table string) {
	w.Helper()
	if w.DB.Engine() == sqldb.SQLite {
		w.Exec(`DROP TRIGGER refuse_` + table)
		return
	}
	w.Exec(`DROP TRIGGER refuse_` + table + ` ON ` + table)
}

// TestGCOff: a process that does not collect still writes the settings that the
// triggers read.
func TestGCOff(t *testing.T) {
	each(t, func(w *world) {
		w.with(Options{Off: true, ReviewAfter: map[string]time.Duration{EventManifestUpload: 0, EventExistenceCheck: 0}})
		w.Exec(`UPDATE gc_review_after_defaults SET value = 86400000`)
		w.upload("r", "old", time.Now().Add(-48*time.Hour)) // would be removed at once
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.c.Run(ctx) }()
		dbtest.Await(w, "Run has set the delays", func() bool {
			return w.Count(`SELECT count(*) FROM gc_review_after_defaults WHERE value = 0`) >= 2
		})
		w.Push(image{Repo: "r", Name: "m"})
		w.WantManifestQueue("r@m manifest_upload due")
		cancel()
		if err := w.ended(ended); err != nil {
			t.Errorf("ended with %v", err)
		}
		w.WantManifestQueue("r@m manifest_upload due") // not claimed
		w.WantLines("uploads", "old", `SELECT id FROM blob_uploads`)
	})
}

func TestGCMetrics(t *testing.T) {
	each(t, func(w *world) {
		w.Push(image{Repo: "r", Name: "m", Layers: []string{"layer"}})
		w.Push(image{Repo: "r", Name: "n", Tags: []string{"1"}})
		w.Small("r", "tiny")
		w.upload("r", "old", time.Now().Add(-48*time.Hour))
		w.drain()
		for counter, want := range map[prometheus.Collector]float64{
			w.c.metrics.bytes.WithLabelValues(workerUnlink, EventBlobDelete):   5, // layer
			w.c.metrics.bytes.WithLabelValues(workerUnlink, EventUploadDelete): 3, // old
			w.c.metrics.bytes.WithLabelValues(workerBlob, EventBlobDelete):     4, // tiny
			w.c.metrics.uploads: 1,
			w.c.metrics.reviews.WithLabelValues(workerManifest, EventManifestUpload, outcomeDeleted): 1,
			w.c.metrics.reviews.WithLabelValues(workerManifest, EventManifestUpload, outcomeKept):    1,
			w.c.metrics.reviews.WithLabelValues(workerBlob, EventLayerDelete, outcomeDeleted):        1,
			w.c.metrics.reviews.WithLabelValues(workerBlob, EventBlobUpload, outcomeDeleted):         1,
			w.c.metrics.reviews.WithLabelValues(workerUnlink, EventBlobDelete, outcomeDeleted):       1,
			w.c.metrics.reviews.WithLabelValues(workerUnlink, EventUploadDelete, outcomeDeleted):     1,
		} {
			if got := testutil.ToFloat64(counter); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		for worker, event := range map[string]string{workerManifest: EventManifestUpload, workerBlob: EventLayerDelete, workerUnlink: EventBlobDelete} {
			if took := testutil.ToFloat64(w.c.metrics.seconds.WithLabelValues(worker, event)); took <= 0 {
				t.Errorf("%s for %s took %v seconds", worker, event, took)
			}
		}
		registered := prometheus.NewPedanticRegistry()
		registered.MustRegister(w.c.Meters()...)
		for _, e := range w.c.Engines() {
			registered.MustRegister(e)
		}
		families, err := registered.Gather()
		if err != nil || len(families) < 10 {
			t.Errorf("%d families: %v", len(families), err)
		}
	})
}
