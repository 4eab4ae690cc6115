package registry

import (
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

const benchImages = 500

// benchBlobsInUse is the larger of two registries that a review is tried in: its
// cost should not depend on it. For the figures in docs: a million.
var benchBlobsInUse = flag.Int("blobs-in-use", 20_000, "blobs that are in use beside those that benchmarks collect")

// nowhere is a store that has nothing to remove.
type nowhere struct{ blobstore.Store }

// BenchmarkCollect deletes images of three layers, and counts the reviews until
// nothing of them is left: in a small registry and in a large one, in turns.
func BenchmarkCollect(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		b.Run(string(engine), func(b *testing.B) {
			small, large := newCollectWorld(b, engine, 1_000), newCollectWorld(b, engine, *benchBlobsInUse)
			b.ResetTimer()
			for b.Loop() {
				small.round(b)
				large.round(b)
			}
			small.report(b)
			large.report(b)
		})
	}
}

type collectWorld struct {
	c                       *Collector
	inUse, rounds, reviewed int
	took                    time.Duration
}

func newCollectWorld(b *testing.B, engine sqldb.Engine, inUse int) *collectWorld {
	store, err := blobstore.OpenDir(filepath.Join(b.TempDir(), "blobs"))
	if err != nil {
		b.Fatal(err)
	}
	c, err := NewCollector(dbtest.OpenDB(b, engine), nowhere{store}, Options{
		Now: func() time.Time { return time.Now().Add(25 * time.Hour) }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	send(b, c, func(batch *sqldb.Batch) {
		batch.Exec(insertNamespace, "r", 0)
		batch.Exec(insertRepository, "r", "r", 0)
	})
	begin := time.Now()
	addImagesInUse(b, c, inUse/4)
	b.Logf("%d blobs in use were written in %v", inUse, time.Since(begin).Round(time.Millisecond))
	return &collectWorld{c: c, inUse: inUse}
}

func (w *collectWorld) round(b *testing.B) {
	w.rounds++
	addImages(b, w.c, fmt.Sprintf("%d-", 1+w.rounds), benchImages, fillLinks)
	begin := time.Now()
	for {
		m, err := w.c.manifests.RunOne(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		n, err := w.c.blobRows.RunOne(b.Context())
		if err != nil || m.Failed+n.Failed > 0 {
			b.Fatal(m, n, err)
		}
		if w.reviewed += m.Claimed + n.Claimed; m.Claimed+n.Claimed == 0 {
			break
		}
	}
	w.took += time.Since(begin)
	send(b, w.c, func(batch *sqldb.Batch) { batch.Exec(`DELETE FROM gc_unlink_queue`) })
}

func (w *collectWorld) report(b *testing.B) {
	b.ReportMetric(float64(w.reviewed)/w.took.Seconds(), fmt.Sprintf("reviews/s-of-%d", w.inUse))
}
