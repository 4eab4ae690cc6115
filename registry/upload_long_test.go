package registry_test

import (
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestUploadOfDays: an upload that goes on for longer than uploads may be
// silent is not abandoned: it gives signs of life as bytes arrive.
func TestUploadOfDays(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		var ahead atomic.Int64 // of the clock
		now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		w := newWorld(t, db, registry.Config{Now: now})
		c, err := registry.NewCollector(db, w.blobs, registry.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		at := w.begin("a")
		body, feed := io.Pipe()
		done := make(chan answer)
		go func() { done <- w.send("PATCH", at, nil, body) }()
		content := ""
		for range 3 {
			chunk := strings.Repeat("x", 24<<20) // more than the kernel holds: so it is being read
			content += chunk
			if _, err := io.WriteString(feed, chunk); err != nil {
				t.Fatal(err)
			}
			if n, err := c.RemoveAbandoned(t.Context()); n != 0 || err != nil {
				t.Fatalf("%d uploads are taken for abandoned: %v", n, err)
			}
			ahead.Add(int64(23 * time.Hour))
		}
		if err := feed.Close(); err != nil {
			t.Fatal(err)
		}
		if a := <-done; a.status != 202 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		w.want(201, "PUT", at+"?digest="+sha256(content), nil, nil)
		w.check()
	})
}
