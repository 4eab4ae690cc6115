package registry_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/blobstore/s3test"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// dying is the way to S3 of a process that dies after some requests: what it sends then does not arrive.
func dying(t *testing.T, location string, requests int64) string {
	t.Helper()
	to, err := url.Parse(s3test.Endpoint(t))
	if err != nil {
		t.Fatal(err)
	}
	var left atomic.Int64
	left.Store(requests)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if left.Add(-1) < 0 {
			w.WriteHeader(http.StatusForbidden) // the client library does not try again
			return
		}
		proxy.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	return s3test.Through(t, location, server.URL)
}

// move runs the mover of one process and reports whether the move has ended.
func move(t *testing.T, db *sqldb.DB, location string) (ended bool, err error) {
	t.Helper()
	store, err := blobstore.Open(t.Context(), location)
	if err != nil {
		return false, err
	}
	moving := store.(*blobstore.Moving)
	defer func() { err = errors.Join(err, moving.Close()) }() // as the death of the process does
	log := slog.New(slog.DiscardHandler)
	if err := registry.BindBlobStore(t.Context(), db, moving, false, log); err != nil {
		return false, err
	}
	m, err := registry.NewMover(t.Context(), db, moving, log)
	if err != nil {
		return false, err
	}
	_, err = m.RunOne(t.Context())
	_, ended = m.Left()
	return ended, err
}

// TestMove: the bytes move from a directory to S3 while clients push, mount, pull and delete, by processes that each die
// one request later than the one before. After each death every blob can be read and has its digest, and nothing is stored
// that no row names.
func TestMove(t *testing.T) {
	t.Parallel()
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		dir, bucket := t.TempDir(), s3test.Location(t)
		both := bucket + ",from=" + dir
		old := newWorldAt(t, db, dir, registry.Config{SmallBlobs: -1})
		if err := registry.BindBlobStore(t.Context(), db, old.blobs.(blobstore.Marked), false, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		pushed := map[string]string{}
		for _, content := range []string{"one", "two", strings.Repeat("x", 6<<20)} { // the last in two parts
			pushed[old.push("a", content)] = content
		}
		at := old.begin("a")
		old.want(202, "PATCH", at, nil, "begun before, ")
		w := newWorldAt(t, db, both, registry.Config{SmallBlobs: -1})
		serves := func() {
			t.Helper()
			for d, content := range pushed {
				w.blob("a", d, content)
			}
		}
		refusedAlone := func() {
			t.Helper()
			for _, place := range []string{dir, bucket} {
				store, err := blobstore.Open(t.Context(), place)
				if err == nil {
					err = registry.BindBlobStore(t.Context(), db, store.(blobstore.Marked), false, slog.New(slog.DiscardHandler))
				}
				if err == nil || !strings.Contains(err.Error(), "being moved") {
					t.Errorf("%s alone: %v", place, err)
				}
			}
		}
		ended, step := false, int64(4)
		for ; !ended; step++ {
			if step > 200 {
				t.Fatal("the move does not end")
			}
			ended, _ = move(t, db, dying(t, bucket, step)+",from="+dir)
			serves()
			switch step {
			case 12:
				refusedAlone()
				w.check()
				pushed[w.push("a", "new")] = "new" // goes to the new place
				w.want(201, "POST", "/v2/b/blobs/uploads/?mount="+sha256("one")+"&from=a", nil, nil)
				w.blob("b", sha256("one"), "one")
			case 16:
				w.want(202, "DELETE", "/v2/a/blobs/"+sha256("two"), nil, nil)
				delete(pushed, sha256("two"))
				w.check() // slow: it lists the bucket
			case 40: // until then the upload holds its bytes in the old place
				w.want(202, "PATCH", at, nil, "ended after it")
				content := "begun before, ended after it"
				w.want(201, "PUT", at+"?digest="+sha256(content), nil, nil)
				pushed[sha256(content)] = content
			}
		}
		if step < 40 {
			t.Errorf("the move ended at %d, before the upload", step)
		}
		if ended, err := move(t, db, both); !ended || err != nil {
			t.Errorf("a process after the end: %v, %v", ended, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		w = newWorldAt(t, db, bucket, registry.Config{SmallBlobs: -1})
		if err := registry.BindBlobStore(t.Context(), db, w.blobs.(blobstore.Marked), false, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("the new place alone: %v", err)
		}
		serves()
		w.check()
	})
}

// TestMoveOfDamagedBytes: bytes without their digest stay in the old place and hold the move up, until verify marks the
// blob.
func TestMoveOfDamagedBytes(t *testing.T) {
	t.Parallel()
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		dir, bucket := t.TempDir(), s3test.Location(t)
		w := newWorldAt(t, db, dir, registry.Config{SmallBlobs: -1})
		d := w.push("a", "whole")
		w.push("a", "other")
		path := filepath.Join(dir, w.Strings(`SELECT path FROM blobs WHERE digest = '` + d + `'`)[0])
		if err := os.WriteFile(path, []byte("wrong"), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if ended, err := move(t, db, bucket+",from="+dir); ended || !errors.Is(err, blobstore.ErrDamaged) {
				t.Errorf("%v, %v", ended, err)
			}
		}
		w.Exec(`UPDATE blobs SET damaged = (1 = 1) WHERE digest = '` + d + `'`)
		if ended, err := move(t, db, bucket+",from="+dir); !ended || err != nil {
			t.Errorf("%v, %v", ended, err)
		}
	})
}

// TestMoveAndRemove: the collector removes bytes while they are copied. It is told to come again, and then nothing is left
// in either place.
func TestMoveAndRemove(t *testing.T) {
	t.Parallel()
	dir, bucket := t.TempDir(), s3test.Location(t)
	old, err := blobstore.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	upload, err := old.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(upload, "content")
	path := upload.Path()
	if err := errors.Join(err, upload.Finish(), upload.Close()); err != nil {
		t.Fatal(err)
	}
	store, err := blobstore.Open(t.Context(), bucket+",from="+dir)
	if err != nil {
		t.Fatal(err)
	}
	moving := store.(*blobstore.Moving)
	needed := func() (bool, error) { return true, nil }
	moved, err := moving.Move(t.Context(), path, needed, func(io.Reader) error {
		if err := moving.Remove(t.Context(), path); !errors.Is(err, blobstore.ErrBusy) {
			t.Errorf("remove while it is copied: %v", err)
		}
		return nil
	})
	if !moved || err != nil {
		t.Fatalf("%v, %v", moved, err)
	}
	if err := moving.Remove(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if err := moving.Walk(t.Context(), func(path string, _ int64, _ time.Time) error { return errors.New("left: " + path) }); err != nil {
		t.Error(err)
	}
	if moved, err := moving.Move(t.Context(), path, func() (bool, error) { return false, nil }, nil); moved || err != nil {
		t.Errorf("what nothing needs: %v, %v", moved, err)
	}
}

// TestMoveByTwo: a second process does not move at the same time.
func TestMoveByTwo(t *testing.T) {
	t.Parallel()
	db, location := dbtest.OpenDB(t, sqldb.SQLite), s3test.Location(t)+",from="+t.TempDir()
	store, err := blobstore.Open(t.Context(), location)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if err := registry.BindBlobStore(t.Context(), db, store.(blobstore.Marked), false, log); err != nil {
		t.Fatal(err)
	}
	first, err := registry.NewMover(t.Context(), db, store.(*blobstore.Moving), log)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := move(t, db, location); err == nil || !strings.Contains(err.Error(), "another server moves it") {
		t.Errorf("a second one: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if ended, err := move(t, db, location); !ended || err != nil {
		t.Errorf("after the first: %v, %v", ended, err)
	}
}
