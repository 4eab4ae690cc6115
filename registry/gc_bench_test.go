package registry

import (
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

const benchImages = 500

// benchBlobsInUse is the larger of two registries that a review is tried in: its
// cost should not depend on it. For the figures in docs: a million.
var benchBlobsInUse = flag.Int("blobs-in-use", 20_000, "blobs that are in use beside those that benchmarks collect")

// The rows of many images, in a few statements. $1 is a number that the names
// begin with, $2 how many images.
const (
	benchNumbers   = `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < CAST($2 AS bigint)) `
	benchBlobs     = `INSERT INTO blobs (digest, path, size, media_type_id, created_at) ` + benchNumbers + `SELECT $1 || 'b' || i || '-' || j, $1 || 'p' || i || '-' || j, 1, 1, 0 FROM n, (SELECT 0 AS j UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) AS l`
	benchManifests = `INSERT INTO manifests (top_level_namespace_id, repository_id, digest, media_type_id, configuration_blob_digest, total_size, payload, created_at) ` + benchNumbers + `SELECT 1, (SELECT min(id) FROM repositories), $1 || 'm' || i, 2, $1 || 'b' || i || '-0', 0, $3, 0 FROM n`
	benchLayers    = `INSERT INTO layers (top_level_namespace_id, repository_id, manifest_id, digest, media_type_id, size) SELECT 1, m.repository_id, m.id, replace(m.digest, 'm', 'b') || '-' || j, 8, 1 FROM manifests m, (SELECT 1 AS j UNION ALL SELECT 2 UNION ALL SELECT 3) AS l WHERE m.digest LIKE $1 || 'm%'`
	benchTags      = `INSERT INTO tags (top_level_namespace_id, repository_id, name, manifest_id, created_at, updated_at) SELECT 1, repository_id, digest, id, 0, 0 FROM manifests WHERE digest LIKE $1 || 'm%'`
)

// nowhere is a store that has nothing to remove.
type nowhere struct{ blobstore.Store }

// BenchmarkCollect deletes images of three layers, and counts the reviews until
// nothing of them is left.
func BenchmarkCollect(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		for _, background := range []int{1_000, *benchBlobsInUse} {
			b.Run(fmt.Sprintf("%s/%d", engine, background), func(b *testing.B) {
				benchmarkCollect(b, engine, background)
			})
		}
	}
}

func benchmarkCollect(b *testing.B, engine sqldb.Engine, background int) {
	db := dbtest.OpenDB(b, engine)
	store, err := blobstore.OpenDir(filepath.Join(b.TempDir(), "blobs"))
	if err != nil {
		b.Fatal(err)
	}
	ahead := time.Duration(0)
	c, err := NewCollector(db, nowhere{store}, Options{
		Now: func() time.Time { return time.Now().Add(ahead) }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	send := func(fill func(*sqldb.Batch)) {
		err := c.transact(b.Context(), func(tx review.Tx) error {
			var batch sqldb.Batch
			fill(&batch)
			return tx.Send(b.Context(), &batch)
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	add := func(prefix string, images int) {
		send(func(batch *sqldb.Batch) {
			batch.Exec(benchBlobs, prefix, images)
			batch.Exec(benchManifests, prefix, images, []byte("{}"))
			batch.Exec(benchLayers, prefix)
		})
	}
	send(func(batch *sqldb.Batch) {
		batch.Exec(insertNamespace, "r", 0)
		batch.Exec(insertRepository, "r", "r", 0)
	})
	const step = 5_000 // images
	for n := 0; n < background/4; n += step {
		prefix := fmt.Sprintf("1%04d", n/step)
		add(prefix, min(step, background/4-n))
		send(func(batch *sqldb.Batch) {
			batch.Exec(benchTags, prefix)
			batch.Exec(`DELETE FROM gc_blob_review_queue`)
			batch.Exec(`DELETE FROM gc_manifest_review_queue`)
		})
	}
	ahead = 25 * time.Hour
	reviewed, round := 0, 0
	b.ResetTimer()
	for b.Loop() {
		b.StopTimer()
		round++
		add(fmt.Sprint(2+round%7), benchImages)
		b.StartTimer()
		for {
			m, err := c.manifests.RunOne(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			n, err := c.blobRows.RunOne(b.Context())
			if err != nil || m.Failed+n.Failed > 0 {
				b.Fatal(m, n, err)
			}
			if reviewed += m.Claimed + n.Claimed; m.Claimed+n.Claimed == 0 {
				break
			}
		}
		b.StopTimer()
		send(func(batch *sqldb.Batch) { batch.Exec(`DELETE FROM gc_unlink_queue`) })
		b.StartTimer()
	}
	b.ReportMetric(float64(reviewed)/b.Elapsed().Seconds(), "reviews/s")
}
