package collect

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

// benchBlobsInUse is the size of the larger of two registries: the cost of a
// review should not depend on it. For the figures in docs: a million.
var benchBlobsInUse = flag.Int("blobs-in-use", 20_000, "blobs that are in use beside those that benchmarks collect")

// nowhere is a store without content.
type nowhere struct{ blobstore.Store }

// BenchmarkCollect deletes images of three layers and counts the reviews until nothing of
// them is left, alternating between a small and a large registry. In the large one it
// deletes images that were pushed last, and old ones from all parts of it.
func BenchmarkCollect(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		b.Run(string(engine), func(b *testing.B) {
			small, large := newCollectWorld(b, engine, 1_000), newCollectWorld(b, engine, *benchBlobsInUse)
			old := &collectWorld{c: large.c, inUse: large.inUse, old: true}
			worlds := []*collectWorld{small, large, old}
			for _, w := range worlds { // the first round splits full pages
				w.round(b)
				w.reviewed, w.took = 0, 0
			}
			b.ResetTimer()
			for b.Loop() {
				for _, w := range worlds {
					w.round(b)
				}
			}
			for _, w := range worlds {
				w.report(b)
			}
		})
	}
}

type collectWorld struct {
	c                       *Collector
	inUse, rounds, reviewed int
	took                    time.Duration
	old                     bool // delete images in use, not new ones
}

// What keeps every nth of the images in use: there are n rounds, at most.
const (
	collectUntag  = `DELETE FROM tags WHERE manifest_id IN (` + collectEvery + `)`
	collectUnlist = `DELETE FROM manifest_references WHERE child_id IN (` + collectEvery + `)`
	collectEvery  = `SELECT m.id FROM manifests m WHERE m.configuration_blob_id IS NOT NULL AND m.id % $1 = $2`
)

// addGarbage creates images that nothing references.
func (w *collectWorld) addGarbage(b *testing.B) {
	if !w.old {
		addImages(b, w.c, fmt.Sprintf("%d-", 1+w.rounds), benchImages, fillLinks)
		return
	}
	every := max(1, w.inUse/4/benchImages)
	send(b, w.c, func(batch *sqldb.Batch) {
		batch.Exec(collectUnlist, every, w.rounds%every)
		batch.Exec(collectUntag, every, w.rounds%every)
	})
}

func newCollectWorld(b *testing.B, engine sqldb.Engine, inUse int) *collectWorld {
	store, err := blobstore.OpenDir(filepath.Join(b.TempDir(), "blobs"))
	if err != nil {
		b.Fatal(err)
	}
	c, err := New(dbtest.OpenDB(b, engine), nowhere{store}, Options{
		Now: func() time.Time { return time.Now().Add(25 * time.Hour) }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	addImagesInUse(b, c, inUse/4)
	b.Logf("%d blobs in use were written in %v", inUse, time.Since(begin).Round(time.Millisecond))
	return &collectWorld{c: c, inUse: inUse}
}

func (w *collectWorld) round(b *testing.B) {
	w.rounds++
	w.addGarbage(b)
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
	name := fmt.Sprintf("reviews/s-of-%d", w.inUse)
	if w.old {
		name += "-old"
	}
	b.ReportMetric(float64(w.reviewed)/w.took.Seconds(), name)
}
