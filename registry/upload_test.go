package registry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// streamed hides a string's length, so that it is sent in HTTP chunks.
func streamed(s string) io.Reader { return io.MultiReader(strings.NewReader(s)) }

func TestPushBlob(t *testing.T) {
	content := strings.Repeat("content ", 100_000) // more than one buffer
	const third = 300_000
	for name, push := range map[string]func(w *world, repo string) string{
		"one POST": func(w *world, repo string) string {
			return w.push(repo, content)
		},
		"one POST, streamed": func(w *world, repo string) string {
			w.want(201, "POST", "/v2/"+repo+"/blobs/uploads/?digest="+sha256(content), nil, streamed(content))
			return sha256(content)
		},
		"POST and PUT": func(w *world, repo string) string {
			at := w.begin(repo)
			w.want(201, "PUT", at+"?digest="+sha256(content), nil, content)
			return sha256(content)
		},
		"one PATCH, streamed": func(w *world, repo string) string {
			at := w.begin(repo)
			a := w.want(202, "PATCH", at, nil, streamed(content))
			w.want(201, "PUT", a.header.Get("Location")+"?digest="+sha256(content), nil, nil)
			return sha256(content)
		},
		"chunks, the last with PUT": func(w *world, repo string) string {
			at := w.begin(repo)
			for first := 0; first < 2*third; first += third {
				last := first + third - 1
				a := w.want(202, "PATCH", at, headers{"Content-Range": fmt.Sprintf("%d-%d", first, last)}, content[first:last+1])
				if got := a.header.Get("Range"); got != fmt.Sprintf("0-%d", last) {
					w.Errorf("Range is %q after byte %d", got, last)
				}
				at = a.header.Get("Location")
			}
			w.want(201, "PUT", at+"?digest="+sha256(content), headers{"Content-Range": fmt.Sprintf("%d-%d", 2*third, len(content)-1)}, content[2*third:])
			return sha256(content)
		},
		"sha512, said at the start": func(w *world, repo string) string {
			at := w.want(202, "POST", "/v2/"+repo+"/blobs/uploads/?digest-algorithm=sha512", nil, nil).header.Get("Location")
			w.want(202, "PATCH", at, nil, content)
			w.want(201, "PUT", at+"?digest="+sha512(content), nil, nil)
			return sha512(content)
		},
		"sha512, said at the end": func(w *world, repo string) string {
			at := w.begin(repo)
			w.want(202, "PATCH", at, nil, content[:third])
			w.want(201, "PUT", at+"?digest="+sha512(content), nil, content[third:])
			return sha512(content)
		},
		"sha512 in one PUT": func(w *world, repo string) string {
			w.want(201, "PUT", w.begin(repo)+"?digest="+sha512(content), nil, content)
			return sha512(content)
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(w *world) {
				d := push(w, "shop/web")
				w.blob("shop/web", d, content)
				w.absent("shop/other", d)
				w.wantCounts("blobs 1, blob_uploads 0, manifests 0, tags 0")
				// The same again: kept once, and both repositories have it.
				push(w, "shop/other")
				w.blob("shop/other", d, content)
				w.wantCounts("blobs 1, blob_uploads 0, manifests 0, tags 0")
			})
		})
	}
}

func TestPushEmptyBlob(t *testing.T) {
	each(t, func(w *world) {
		w.push("a", "")
		w.blob("a", sha256(""), "")
		w.want(201, "PUT", w.begin("a")+"?digest="+sha512(""), nil, nil)
		w.blob("a", sha512(""), "")
	})
}

func TestPushAnswers(t *testing.T) {
	each(t, func(w *world) {
		start := w.want(202, "POST", "/v2/shop/web/blobs/uploads/", nil, nil)
		at, id := start.header.Get("Location"), start.header.Get("Docker-Upload-UUID")
		if at != "/v2/shop/web/blobs/uploads/"+id || start.header.Get("Range") != "0-0" || start.header.Get("OCI-Chunk-Min-Length") != "" {
			w.Errorf("POST: %v", start.header)
		}
		end := w.want(201, "PUT", at+"?digest="+sha256("x"), nil, "x")
		if end.header.Get("Location") != "/v2/shop/web/blobs/"+sha256("x") || end.header.Get("Docker-Content-Digest") != sha256("x") {
			w.Errorf("PUT: %v", end.header)
		}
	})
	t.Run("chunk minimum", func(t *testing.T) {
		w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), registry.Config{ChunkMinLength: 5 << 20})
		a := w.want(202, "POST", "/v2/a/blobs/uploads/", nil, nil)
		if got := a.header.Get("OCI-Chunk-Min-Length"); got != "5242880" {
			t.Errorf("OCI-Chunk-Min-Length is %q", got)
		}
	})
}

func TestUploadRefuses(t *testing.T) {
	wrong := sha256("something else")
	each(t, func(w *world) {
		post := "/v2/a/blobs/uploads/"
		w.refuses(400, registry.DigestInvalid, "POST", post+"?digest="+wrong, nil, "content")
		w.refuses(400, registry.DigestInvalid, "POST", post+"?digest=sha256:12", nil, "content")
		w.refuses(400, registry.DigestInvalid, "POST", post+"?digest=", nil, "content")
		w.refuses(400, registry.DigestInvalid, "POST", post+"?digest-algorithm=md5", nil, nil)
		w.refuses(400, registry.DigestInvalid, "PUT", w.begin("a")+"?digest="+wrong, nil, "content")
		w.wantCounts("blobs 0, blob_uploads 0, manifests 0, tags 0")

		at := w.begin("a")
		w.refuses(400, registry.DigestInvalid, "PUT", at, nil, "content")
		w.refuses(400, registry.DigestInvalid, "PUT", at+"?digest=sha384:00", nil, "content")
		for _, header := range []string{"x", "0", "1-0", "-1-5", "bytes=0-6", "0-6/7", "99999999999999999999-99999999999999999999"} {
			w.refuses(400, registry.BlobUploadInvalid, "PATCH", at, headers{"Content-Range": header}, "content")
		}
		w.refuses(400, registry.SizeInvalid, "PATCH", at, headers{"Content-Range": "0-7"}, "content")
		w.refuses(400, registry.SizeInvalid, "PATCH", at, headers{"Content-Range": "0-5"}, "content")
		w.refuses(416, registry.BlobUploadInvalid, "PATCH", at, headers{"Content-Range": "1-7"}, "content")
		w.want(202, "PATCH", at, headers{"Content-Range": "0-6"}, "content")
		for _, method := range []string{"PATCH", "PUT"} {
			a := w.refuses(416, registry.BlobUploadInvalid, method, at+"?digest="+wrong, headers{"Content-Range": "0-6"}, "content")
			if a.header.Get("Range") != "0-6" || a.header.Get("Location") != at {
				w.Errorf("%s out of order: %v", method, a.header)
			}
		}
		if a := w.want(204, "GET", at, nil, nil); a.header.Get("Range") != "0-6" {
			w.Errorf("status after refusals: %v", a.header)
		}
		w.want(201, "PUT", at+"?digest="+sha256("content!"), headers{"Content-Range": "7-7"}, "!")
		w.blob("a", sha256("content!"), "content!")

		streamed := func() io.Reader { return io.MultiReader(strings.NewReader("content")) } // without Content-Length
		at = w.begin("a")
		w.refuses(400, registry.SizeInvalid, "PATCH", at, headers{"Content-Range": "0-7"}, streamed())
		if a := w.want(204, "GET", at, nil, nil); a.header.Get("Range") != "0-6" {
			w.Errorf("after a chunk that was too short: %v", a.header)
		}
		for _, method := range []string{"PATCH", "PUT"} {
			at = w.begin("a")
			w.refuses(400, registry.SizeInvalid, method, at+"?digest="+sha256("conten"), headers{"Content-Range": "0-5"}, streamed())
			if a := w.want(204, "GET", at, nil, nil); a.header.Get("Range") != "0-5" {
				w.Errorf("%s of more than its range: %v", method, a.header)
			}
		}
	})
}

// TestUploadBelongsToItsRepository: the id of an upload is valid only in its
// repository, and only until the upload ends.
func TestUploadBelongsToItsRepository(t *testing.T) {
	each(t, func(w *world) {
		at := w.begin("mine")
		w.push("yours", "x") // it exists
		foreign := strings.Replace(at, "/mine/", "/yours/", 1)
		nowhere := strings.Replace(at, "/mine/", "/nowhere/", 1)
		forged := at[:len(at)-36] + "00000000-0000-4000-8000-000000000000"
		for _, path := range []string{foreign, nowhere, forged} {
			for _, method := range []string{"GET", "PATCH", "PUT", "DELETE"} {
				w.refuses(404, registry.BlobUploadUnknown, method, path+"?digest="+sha256("content"), nil, "content")
			}
		}
		w.want(201, "PUT", at+"?digest="+sha256("content"), nil, "content")
		for _, method := range []string{"GET", "PATCH", "PUT", "DELETE"} {
			w.refuses(404, registry.BlobUploadUnknown, method, at+"?digest="+sha256("content"), nil, "content")
		}
		w.absent("yours", sha256("content"))
		w.blob("mine", sha256("content"), "content")
	})
}

func TestUploadCancel(t *testing.T) {
	each(t, func(w *world) {
		at := w.begin("a")
		w.want(202, "PATCH", at, nil, "content")
		w.want(204, "DELETE", at, nil, nil)
		w.refuses(404, registry.BlobUploadUnknown, "DELETE", at, nil, nil)
		w.refuses(404, registry.BlobUploadUnknown, "GET", at, nil, nil)
		w.wantCounts("blobs 0, blob_uploads 0, manifests 0, tags 0")
		if paths := w.Strings(`SELECT path FROM gc_unlink_queue`); len(paths) != 1 {
			w.Errorf("left to the collector: %v", paths)
		}
	})
}

func TestMount(t *testing.T) {
	each(t, func(w *world) {
		d := w.push("from", "content")
		a := w.want(201, "POST", "/v2/to/blobs/uploads/?mount="+d+"&from=from", nil, nil)
		if a.header.Get("Location") != "/v2/to/blobs/"+d || a.header.Get("Docker-Content-Digest") != d {
			w.Errorf("mount: %v", a.header)
		}
		w.blob("to", d, "content")
		w.want(201, "POST", "/v2/any/blobs/uploads/?mount="+d, nil, nil)
		w.blob("any", d, "content")
		for _, query := range []string{"mount=" + d + "&from=nowhere", "mount=" + sha256("never pushed") + "&from=from", "mount=" + sha256("never pushed")} {
			at := w.want(202, "POST", "/v2/late/blobs/uploads/?"+query, nil, nil).header.Get("Location")
			w.absent("late", d)
			w.want(204, "DELETE", at, nil, nil)
		}
		w.refuses(400, registry.DigestInvalid, "POST", "/v2/to/blobs/uploads/?mount=x&from=from", nil, nil)
		w.refuses(400, registry.NameInvalid, "POST", "/v2/to/blobs/uploads/?mount="+d+"&from=../from", nil, nil)
	})
}

// TestMountKeepsTheBlob: a mount postpones the review of a blob that is due within the time of a
// promise, and leaves a later one as it is.
func TestMountKeepsTheBlob(t *testing.T) {
	each(t, func(w *world) {
		for _, due := range []time.Duration{-time.Minute, 59 * time.Minute, 2 * time.Hour} {
			d := w.push("from", "due in "+due.String())
			at := time.Now().Add(due).UnixMilli()
			w.Exec(`UPDATE gc_blob_review_queue SET review_after = $1 WHERE digest = $2`, at, d)
			w.want(201, "POST", "/v2/to/blobs/uploads/?mount="+d+"&from=from", nil, nil)
			w.blob("to", d, "due in "+due.String())
			after := int64(w.Count(`SELECT review_after FROM gc_blob_review_queue WHERE digest = $1`, d))
			if due > time.Hour && after != at || due < time.Hour && after < time.Now().Add(time.Hour).UnixMilli() {
				w.Errorf("due in %s: the review is %s after that", due, time.Duration(after-at)*time.Millisecond)
			}
			w.want(201, "POST", "/v2/to/blobs/uploads/?mount="+d+"&from=from", nil, nil) // again
		}
	})
}

// brokenStore fails on demand.
type brokenStore struct {
	blobstore.Store
	mu  sync.Mutex
	err error // guarded by mu
}

func (s *brokenStore) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *brokenStore) Create(ctx context.Context) (blobstore.Writer, error) {
	w, err := s.Store.Create(ctx)
	return &brokenWriter{w, s}, err
}

func (s *brokenStore) Resume(ctx context.Context, path string, state []byte) (blobstore.Writer, error) {
	w, err := s.Store.Resume(ctx, path, state)
	if err != nil {
		return nil, err
	}
	return &brokenWriter{w, s}, nil
}

type brokenWriter struct {
	blobstore.Writer
	store *brokenStore
}

func (w *brokenWriter) Write(p []byte) (int, error) {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if w.store.err == nil {
		return w.Writer.Write(p)
	}
	n, err := w.Writer.Write(p[:len(p)/2]) // like a full disk
	return n, errors.Join(err, w.store.err)
}

// TestBrokenStore: the push fails, nothing is acknowledged, and the upload
// continues when the store works again. If the store was full, the upload is
// discarded.
func TestBrokenStore(t *testing.T) {
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		store := &brokenStore{}
		w := newWorld(t, db, registry.Config{SmallBlobs: -1})
		store.Store = w.blobs
		w2 := newWorld(t, db, registry.Config{Blobs: store, SmallBlobs: -1})
		w2.blobs = w.blobs
		at := w2.begin("a")
		w2.want(202, "PATCH", at, nil, "hello")
		full := w2.begin("a")
		w2.want(202, "PATCH", full, nil, "much")
		for _, fault := range []struct {
			err    error
			status int
			code   registry.Code
			wait   string
		}{
			{blobstore.ErrFull, 503, registry.Unavailable, "5"},
			{blobstore.ErrUnavailable, 503, registry.Unavailable, "5"},
			{blobstore.ErrOverloaded, 429, registry.TooManyRequests, "5"},
			{errors.New("a secret of ours"), 500, registry.Unknown, ""},
		} {
			store.fail(fmt.Errorf("at /some/path: %w", fault.err))
			a := w2.refuses(fault.status, fault.code, "POST", "/v2/a/blobs/uploads/?digest="+sha256("more"), nil, "more")
			if a.header.Get("Retry-After") != fault.wait || strings.Contains(a.body, "path") || strings.Contains(a.body, "secret") {
				t.Errorf("%v: %v %s", fault.err, a.header, a.body)
			}
		}
		w2.refuses(500, registry.Unknown, "PATCH", at, nil, ", world")
		store.fail(blobstore.ErrFull)
		w2.refuses(503, registry.Unavailable, "PATCH", full, nil, " more")
		store.fail(nil)
		w2.refuses(404, registry.BlobUploadUnknown, "PATCH", full, nil, " more")
		w2.wantCounts("blobs 0, blob_uploads 1, manifests 0, tags 0")
		// Half of the chunk was stored: the answer says so.
		a := w2.want(204, "GET", at, nil, nil)
		if a.header.Get("Range") != "0-7" {
			t.Errorf("Range is %q", a.header.Get("Range"))
		}
		w2.want(201, "PUT", at+"?digest="+sha256("hello, world"), headers{"Content-Range": "8-11"}, "orld")
		w2.blob("a", sha256("hello, world"), "hello, world")
		w2.check()
	})
}
