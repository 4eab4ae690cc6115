package collect

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// BenchmarkTagList lists 5,000 tags at once.
func BenchmarkTagList(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		b.Run(string(engine), func(b *testing.B) {
			db := dbtest.OpenDB(b, engine)
			store, err := blobstore.OpenDir(filepath.Join(b.TempDir(), "blobs"))
			if err != nil {
				b.Fatal(err)
			}
			quiet := slog.New(slog.DiscardHandler)
			c, err := New(db, store, Options{Logger: quiet})
			if err != nil {
				b.Fatal(err)
			}
			send(b, c, func(batch *sqldb.Batch) {
				batch.Exec(statement.InsertNamespace, "r", 0)
				batch.Exec(statement.InsertRepository, "r", "r", 0)
			})
			addImagesInUse(b, c, 5_000)
			server := httptest.NewServer(registry.New(registry.Config{DB: db, Blobs: store, Logger: quiet}))
			b.Cleanup(server.Close)
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				listOnce(b, server.URL+"/v2/r/tags/list?n=5000")
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*9/10].Microseconds())/1000, "p90-ms")
		})
	}
}

func listOnce(b *testing.B, url string) {
	b.Helper()
	answer, err := http.Get(url)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		b.Fatal(answer.Status, err)
	}
}
