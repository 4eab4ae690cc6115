package registry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/sqldb"
)

const smallLimit = 64 << 10

// smalls counts the blobs in the database, files those in the blob store.
func (w *world) smalls() string {
	w.Helper()
	return w.Strings(`SELECT CAST(count(*) AS text) FROM small_blobs`)[0]
}

func (w *world) files() (n int) {
	w.Helper()
	err := w.blobs.Walk(w.Context(), func(string, int64, time.Time) error { n++; return nil })
	if err != nil {
		w.Fatal(err)
	}
	return n
}

func (w *world) where(smalls string, files int) {
	w.Helper()
	if got := w.smalls(); got != smalls || w.files() != files {
		w.Errorf("%s blobs are in the database and %d in files, want %s and %d", got, w.files(), smalls, files)
	}
}

// TestSmallBlob pushes blobs on both sides of the limit, in every way.
func TestSmallBlob(t *testing.T) {
	eachSmall(t, func(w *world) {
		small, large := strings.Repeat("s", smallLimit), strings.Repeat("l", smallLimit+1)
		w.blob("a", w.push("a", small), small) // POST
		w.where("1", 0)
		w.blob("a", w.push("a", large), large)
		w.where("1", 1)

		put := "sent with PUT"
		w.want(201, "PUT", w.begin("a")+"?digest="+sha512(put), nil, put)
		w.blob("a", sha512(put), put)
		w.where("2", 1)

		unknown := "of unknown length"
		w.want(201, "PUT", w.begin("a")+"?digest="+sha256(unknown), nil, streamed(unknown))
		w.blob("a", sha256(unknown), unknown)
		w.where("2", 2)

		patched := "in two parts"
		at := w.want(202, "PATCH", w.begin("a"), nil, patched[:3]).header.Get("Location")
		w.want(201, "PUT", at+"?digest="+sha256(patched), nil, patched[3:])
		w.blob("a", sha256(patched), patched)
		w.where("2", 3)

		w.push("a", "")
		w.blob("a", sha256(""), "")
		w.wantCounts(w.counts()) // and nothing is left half done: check looks
		if uploads := w.Strings(`SELECT id FROM blob_uploads`); len(uploads) != 0 {
			w.Errorf("uploads %q are still open", uploads)
		}
	})
}

// TestSmallBlobIsReadLikeOthers: ranges and conditional requests work.
func TestSmallBlobIsReadLikeOthers(t *testing.T) {
	eachSmall(t, func(w *world) {
		content := "0123456789"
		at := "/v2/a/blobs/" + w.push("a", content)
		if a := w.want(206, "GET", at, headers{"Range": "bytes=2-4"}, nil); a.body != "234" {
			w.Errorf("bytes 2 to 4 are %q", a.body)
		}
		w.want(416, "GET", at, headers{"Range": "bytes=10-"}, nil)
		w.want(304, "GET", at, headers{"If-None-Match": `"` + sha256(content) + `"`}, nil)
		if a := w.want(200, "HEAD", at, nil, nil); a.header.Get("Content-Length") != "10" {
			w.Errorf("HEAD says %v", a.header)
		}
		w.want(201, "POST", "/v2/b/blobs/uploads/?from=a&mount="+sha256(content), nil, nil)
		w.blob("b", sha256(content), content)
	})
}

// TestSmallBlobRefused: a refused small blob gives the same errors as a large
// one, and leaves nothing.
func TestSmallBlobRefused(t *testing.T) {
	eachSmall(t, func(w *world) {
		at := w.begin("a")
		w.refuses(400, registry.DigestInvalid, "PUT", at+"?digest="+sha256("other"), nil, "content")
		w.refuses(404, registry.BlobUploadUnknown, "PUT", at+"?digest="+sha256("content"), nil, "content")
		w.refuses(404, registry.BlobUploadUnknown, "PUT", "/v2/b/"+strings.TrimPrefix(w.begin("a"), "/v2/a/")+"?digest="+sha256("content"), nil, "content")
		w.absent("a", sha256("content"))
		w.where("0", 0)
	})
}

// TestSmallBlobMeetsItsFile: existing content stays where it is, in the database
// or in the blob store.
func TestSmallBlobMeetsItsFile(t *testing.T) {
	eachSmall(t, func(w *world) {
		content := "the same"
		w.want(201, "PUT", w.begin("a")+"?digest="+sha256(content), nil, streamed(content))
		w.where("0", 1)
		w.push("b", content)
		w.where("0", 1)
		w.blob("b", sha256(content), content)

		other := "the other way round"
		w.push("a", other)
		w.want(201, "PUT", w.begin("b")+"?digest="+sha256(other), nil, streamed(other))
		w.where("1", 2) // the second file is in the unlinker's queue: check looks
		w.blob("b", sha256(other), other)
	})
}

// TestSmallBlobGoesWithItsRow: nothing is unlinked, and the same content can be
// pushed again.
func TestSmallBlobGoesWithItsRow(t *testing.T) {
	eachSmall(t, func(w *world) {
		d := w.push("a", "short-lived")
		w.Exec(`DELETE FROM blobs WHERE digest = $1`, d)
		w.where("0", 0)
		if queue := w.Strings(`SELECT path FROM gc_unlink_queue`); len(queue) != 0 {
			w.Errorf("%q are to be unlinked", queue)
		}
		w.absent("a", d)
		w.push("a", "short-lived")
		w.blob("a", d, "short-lived")
	})
}

// TestNumberUsedAgain: a blob that reuses the id of a deleted one has neither
// its bytes nor its repositories.
func TestNumberUsedAgain(t *testing.T) {
	eachSmall(t, func(w *world) {
		number := func(d string) string {
			return w.Strings(`SELECT CAST(id AS text) FROM blobs WHERE digest = '` + d + `'`)[0]
		}
		first := w.push("a", "first")
		before := number(first)
		w.Exec(`DELETE FROM blobs WHERE digest = $1`, first)
		second := w.push("b", "second")
		if after := number(second); w.DB.Engine() == sqldb.SQLite && after != before {
			w.Errorf("it has number %s, not %s: the test is void", after, before)
		}
		w.absent("a", first)
		w.absent("a", second)
		w.absent("b", first)
		w.blob("b", second, "second")
	})
}
