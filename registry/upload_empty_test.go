package registry_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore/s3test"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestUploadNothingSentYet: an upload without bytes behaves like any other, with
// or without a row.
func TestUploadNothingSentYet(t *testing.T) {
	eachSmall(t, func(w *world) {
		at := w.begin("a")
		for range 2 {
			if a := w.want(204, "GET", at, nil, nil); a.header.Get("Range") != "0-0" || a.header.Get("Location") != at {
				w.Errorf("nothing was sent, and the answer is %v", a.header)
			}
		}
		elsewhere := "/v2/b" + at[len("/v2/a"):]
		w.push("b", "so that there is a repository")
		for _, method := range []string{"GET", "PATCH", "DELETE"} {
			w.refuses(404, registry.BlobUploadUnknown, method, elsewhere, nil, "x")
		}
		w.refuses(404, registry.BlobUploadUnknown, "PUT", elsewhere+"?digest="+sha256("x"), nil, "x")
		w.want(204, "DELETE", at, nil, nil)
		w.refuses(404, registry.BlobUploadUnknown, "GET", at, nil, nil)
		w.refuses(404, registry.BlobUploadUnknown, "PUT", at+"?digest="+sha256("x"), nil, "x")
	})
}

// TestUploadNothingSentYetHasNoRow: unless uploads are counted.
func TestUploadNothingSentYetHasNoRow(t *testing.T) {
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, db, registry.Config{})
		at := w.begin("a")
		w.wantCounts("blobs 0, blob_uploads 0, manifests 0, tags 0")
		w.want(201, "PUT", at+"?digest="+sha256("x"), nil, "x")
		w.wantCounts("blobs 1, blob_uploads 0, manifests 0, tags 0")
		w.refuses(404, registry.BlobUploadUnknown, "GET", at, nil, nil)
		w.refuses(404, registry.BlobUploadUnknown, "PUT", at+"?digest="+sha256("x"), nil, "x")

		counting := newWorld(t, db, registry.Config{Quotas: registry.Quotas{Uploads: 10}})
		at = counting.begin("a")
		counting.wantCounts("blobs 1, blob_uploads 1, manifests 0, tags 0")
		counting.want(201, "PUT", at+"?digest="+sha256("y"), nil, "y")
		counting.wantCounts("blobs 2, blob_uploads 0, manifests 0, tags 0")
		counting.check()

		// The limit also holds for uploads that began before there was one.
		early := w.begin("a")
		for range 10 {
			counting.begin("a")
		}
		counting.refuses(429, registry.TooManyRequests, "PATCH", early, nil, "x")
	})
}

// TestUploadNothingSentYetAfterARestart: the upload continues, as it does at another
// replica.
func TestUploadNothingSentYetAfterARestart(t *testing.T) {
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		location := s3test.Location(t)
		first := newWorldAt(t, db, location, registry.Config{})
		whole, inChunks, wrong := first.begin("a"), first.begin("a"), first.begin("a")
		again := newWorldAt(t, db, location, registry.Config{})
		again.want(201, "PUT", whole+"?digest="+sha256("x"), nil, "x")
		again.blob("a", sha256("x"), "x")

		// The last chunk is small, and is not taken for the whole blob.
		again.want(202, "PATCH", inChunks, nil, "first ")
		first.want(201, "PUT", inChunks+"?digest="+sha256("first last"), nil, "last")
		again.blob("a", sha256("first last"), "first last")

		first.refuses(400, registry.DigestInvalid, "PUT", wrong+"?digest="+sha256("y"), nil, "z")
		first.refuses(404, registry.BlobUploadUnknown, "GET", wrong, nil, nil)
		first.wantCounts("blobs 2, blob_uploads 0, manifests 0, tags 0")
	})
}

// TestUploadNothingSentYetBeginsOnce: two requests with the first bytes of an upload, of
// which only one can have it.
func TestUploadNothingSentYetBeginsOnce(t *testing.T) {
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		location := s3test.Location(t)
		one, other := newWorldAt(t, db, location, registry.Config{}), newWorldAt(t, db, location, registry.Config{})
		if db.Engine() == sqldb.SQLite {
			other = one // it has no replicas
		}
		at := one.begin("a")
		var codes [2]int
		var requests sync.WaitGroup
		for i, w := range []*world{one, other} {
			requests.Go(func() { codes[i] = w.send("PATCH", at, nil, "content").status })
		}
		requests.Wait()
		accepted := 0
		for _, code := range codes {
			switch code {
			case 202:
				accepted++
			case 409:
			default:
				t.Errorf("a request was answered with %d", code)
			}
		}
		content := strings.Repeat("content", accepted) // the second may come after the first
		one.want(201, "PUT", at+"?digest="+sha256(content), nil, nil)
		one.blob("a", sha256(content), content)
	})
}

// TestUploadMadeUp: ids that the registry has not given out are unknown, and one that it
// has is after an hour.
func TestUploadMadeUp(t *testing.T) {
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		var later atomic.Int64
		w := newWorld(t, db, registry.Config{Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }})
		at := w.begin("a")
		for _, place := range []int{-1, -14, -34} { // in the signature, the random part, the time
			changed := []byte(at)
			if place = len(at) + place; changed[place] == '1' {
				changed[place] = '2'
			} else {
				changed[place] = '1'
			}
			w.refuses(404, registry.BlobUploadUnknown, "PUT", string(changed)+"?digest="+sha256("x"), nil, "x")
		}
		later.Store(int64(61 * time.Minute))
		w.refuses(404, registry.BlobUploadUnknown, "GET", at, nil, nil)
		w.refuses(404, registry.BlobUploadUnknown, "PATCH", at, nil, "x")
		w.refuses(404, registry.BlobUploadUnknown, "PUT", at+"?digest="+sha256("x"), nil, "x")
		w.want(201, "PUT", w.begin("a")+"?digest="+sha256("x"), nil, "x")
	})
}
