package collect

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// BenchmarkReclaim removes 500 images that nothing references while clients push and pull
// others, in a registry with -blobs-in-use blobs in use. It reports the reviewed rows per
// second, and the clients' p99 before the reviews (for the same time) and during them.
func BenchmarkReclaim(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		b.Run(string(engine), func(b *testing.B) {
			w := newReclaimWorld(b, dbtest.OpenDB(b, engine))
			for b.Loop() {
				b.StopTimer()
				w.round++
				w.addDoomed()
				w.watch("quiet", func() { time.Sleep(3 * time.Second) })
				b.StartTimer()
				w.watch("reclaim", w.reclaim)
			}
			w.report()
		})
	}
}

const (
	reclaimPushers, reclaimPullers = 4, 2
	reclaimRows                    = 5 * benchImages // a manifest and four blobs each

	// reclaimIdle is shorter than the sleep of an idle engine.
	reclaimIdle = 10 * time.Millisecond
)

// The blobs of images to remove are like those in use, and their manifests are due.
const (
	reclaimUnqueueBlobs = `DELETE FROM gc_blob_review_queue WHERE digest IN (SELECT b.digest FROM blobs b WHERE b.path >= $1 AND b.path < $1 || 'a')`
	reclaimDueManifests = `
UPDATE gc_manifest_review_queue SET review_after = 1 WHERE manifest_id IN (
    SELECT g.manifest_id FROM blobs c JOIN gc_blobs_configurations g ON g.blob_id = c.id WHERE c.path >= $1 AND c.path < $1 || 'a')`
)

type reclaimWorld struct {
	*testing.B
	db    *sqldb.DB
	c     *Collector
	url   string
	round int
	made  atomic.Int64
	pull  []string // paths to pull

	reclaimed time.Duration
	mu        sync.Mutex
	took      map[string][]time.Duration // by what and when; guarded by mu
}

func newReclaimWorld(b *testing.B, db *sqldb.DB) *reclaimWorld {
	store, err := blobstore.OpenDir(filepath.Join(b.TempDir(), "blobs"))
	if err != nil {
		b.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	// Content that is pushed meanwhile keeps the delay of a day; blobs that lost their
	// manifest are due at once.
	c, err := New(db, store, Options{Logger: quiet, ReviewAfter: map[string]time.Duration{
		EventLayerDelete: 0, EventManifestDelete: 0, EventExistenceCheck: 0,
	}})
	if err == nil {
		err = c.configure(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.Config{DB: db, Blobs: store, Logger: quiet}))
	b.Cleanup(server.Close)
	addImagesInUse(b, c, *benchBlobsInUse/4)
	w := &reclaimWorld{B: b, db: db, c: c, url: server.URL + "/v2/r/", took: map[string][]time.Duration{}}
	if err := w.pushOne(true); err != nil {
		b.Fatal(err)
	}
	return w
}

// addDoomed adds images that nothing references and whose review is due.
func (w *reclaimWorld) addDoomed() {
	prefix := fmt.Sprintf("%d-", 1+w.round) // 1- are in use
	addImages(w.B, w.c, prefix, benchImages, reclaimUnqueueBlobs, reclaimDueManifests)
}

// reclaim runs the engines, as Collector.Run does, until the images are gone.
func (w *reclaimWorld) reclaim() {
	ctx, stop := context.WithCancel(w.Context())
	defer stop()
	begin := time.Now()
	var gone atomic.Int64
	var engines sync.WaitGroup
	for _, e := range []*review.Engine{w.c.manifests, w.c.blobRows} {
		engines.Go(func() {
			for ctx.Err() == nil {
				r, err := e.RunOne(ctx)
				if err != nil && ctx.Err() == nil || r.Failed > 0 {
					w.Errorf("%+v: %v", r, err)
					stop()
				}
				if gone.Add(int64(r.Acted)) >= reclaimRows {
					stop()
				}
				if r.Claimed == 0 {
					time.Sleep(reclaimIdle)
				}
			}
		})
	}
	engines.Wait()
	w.reclaimed += time.Since(begin)
}

// watch runs fn while clients push and pull.
func (w *reclaimWorld) watch(when string, fn func()) {
	var over atomic.Bool
	var clients sync.WaitGroup
	client := func(what string, step func() error) {
		for !over.Load() {
			begin := time.Now()
			if err := step(); err != nil {
				w.Error(what, err)
				return
			}
			w.mu.Lock()
			w.took[when+"-"+what] = append(w.took[when+"-"+what], time.Since(begin))
			w.mu.Unlock()
		}
	}
	for range reclaimPushers {
		clients.Go(func() { client("push", func() error { return w.pushOne(false) }) })
	}
	for range reclaimPullers {
		clients.Go(func() { client("pull", w.pullOne) })
	}
	fn()
	over.Store(true)
	clients.Wait()
}

// pushOne pushes an image of three layers of 16 KiB.
func (w *reclaimWorld) pushOne(keep bool) error {
	n := w.made.Add(1)
	var descriptors []any
	for i := range 4 {
		content := bytes.Repeat(fmt.Appendf(nil, "%15d%d", n, i), 1024)
		d := digest.FromBytes(content).String()
		if err := w.call(http.MethodPost, "blobs/uploads/?digest="+d, content, http.StatusCreated); err != nil {
			return err
		}
		descriptors = append(descriptors, fmt.Sprintf(`{"mediaType":"application/octet-stream","digest":%q,"size":%d}`, d, len(content)))
		if keep {
			w.pull = append(w.pull, "blobs/"+d)
		}
	}
	manifest := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s,"layers":[%s,%s,%s]}`, descriptors...)
	if keep {
		w.pull = append(w.pull, fmt.Sprint("manifests/t", n))
	}
	return w.call(http.MethodPut, fmt.Sprint("manifests/t", n), manifest, http.StatusCreated)
}

func (w *reclaimWorld) pullOne() error {
	for _, path := range w.pull {
		if err := w.call(http.MethodGet, path, nil, http.StatusOK); err != nil {
			return err
		}
	}
	return nil
}

func (w *reclaimWorld) call(method, path string, body []byte, want int) error {
	req, err := http.NewRequestWithContext(w.Context(), method, w.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != want {
		err = fmt.Errorf("%s %s: %s %s", method, path, answer.Status, text)
	}
	return err
}

func (w *reclaimWorld) report() {
	w.ReportMetric(float64(reclaimRows*w.round)/w.reclaimed.Seconds(), "reviews/s")
	for what, took := range w.took {
		slices.Sort(took)
		w.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, what+"-p99-ms")
	}
}
