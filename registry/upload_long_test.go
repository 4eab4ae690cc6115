package registry_test

import (
	"bytes"
	cryptosha256 "crypto/sha256"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/collect"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestUploadOfDays: an upload that takes longer than UploadExpiry is not
// abandoned: it updates its row while bytes arrive.
func TestUploadOfDays(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		var clock dbtest.Clock
		w := newWorld(t, db, registry.Config{Now: clock.Now})
		c, err := collect.New(db, w.blobs, collect.Options{Now: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		at := w.begin("a")
		body, feed := io.Pipe()
		done := make(chan answer)
		go func() { done <- w.send("PATCH", at, nil, body) }()
		content := ""
		for range 3 {
			chunk := strings.Repeat("x", 24<<20) // larger than the kernel's buffers, so the server is reading it
			content += chunk
			if _, err := io.WriteString(feed, chunk); err != nil {
				t.Fatal(err)
			}
			if n, err := c.RemoveAbandoned(t.Context()); n != 0 || err != nil {
				t.Fatalf("%d uploads are taken for abandoned: %v", n, err)
			}
			clock.Advance(23 * time.Hour)
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

var largeBlob = flag.Int64("large", 128<<20, "how many bytes TestUploadLarge pushes")

// TestUploadLarge: a blob of any size is streamed. It is pushed in one PATCH,
// and pulled, and client and server together allocate only a fraction of its
// size. The test runs alone, because the number is that of the process.
func TestUploadLarge(t *testing.T) {
	const most = 16 << 20
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), registry.Config{})
	at := w.begin("a")
	before := allocated()
	hash := cryptosha256.New()
	content := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{}), *largeBlob), hash)
	w.want(202, "PATCH", at, nil, content)
	d := fmt.Sprintf("sha256:%x", hash.Sum(nil))
	w.want(201, "PUT", at+"?digest="+d, nil, nil)

	resp, err := http.Get(w.url + "/v2/a/blobs/" + d)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	hash.Reset()
	n, err := io.Copy(hash, resp.Body)
	if got := fmt.Sprintf("sha256:%x", hash.Sum(nil)); err != nil || n != *largeBlob || got != d {
		t.Errorf("pulled %d bytes of digest %s: %v; want %d of %s", n, got, err, *largeBlob, d)
	}
	if used := allocated() - before; used > most {
		t.Errorf("%d bytes were allocated for a blob of %d", used, *largeBlob)
	} else {
		t.Logf("%d bytes were allocated for a blob of %d", used, *largeBlob)
	}

	end := w.want(206, "GET", "/v2/a/blobs/"+d, headers{"Range": "bytes=-7"}, nil)
	all := rand.NewChaCha8([32]byte{})
	if _, err := io.CopyN(io.Discard, all, *largeBlob-7); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 7)
	if _, err := io.ReadFull(all, want); err != nil || !bytes.Equal([]byte(end.body), want) {
		t.Errorf("the last bytes are %x, not %x: %v", end.body, want, err)
	}
}

// allocated returns the total allocation of the process.
func allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}
