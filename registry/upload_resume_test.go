package registry_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestUploadBreaksOff: the bytes that arrived before the connection broke are
// kept, and the client continues after them.
func TestUploadBreaksOff(t *testing.T) {
	each(t, func(w *world) {
		for _, method := range []string{"PATCH", "PUT"} {
			at := w.begin("a")
			w.breakOff(method, at+"?digest="+sha256("hello, world"), 12, "hello,")
			a := w.awaitRange(at, "0-5")
			at = a.header.Get("Location")
			w.want(202, "PATCH", at, headers{"Content-Range": "6-11"}, " world")
			w.want(201, "PUT", at+"?digest="+sha256("hello, world"), nil, nil)
			w.blob("a", sha256("hello, world"), "hello, world")
		}
		w.breakOff("POST", "/v2/a/blobs/uploads/?digest="+sha256("hello, again"), 12, "hello,")
		dbtest.Await(w, "the upload ends", func() bool { return w.counts() == "blobs 1, blob_uploads 0, manifests 0, tags 0" })
	})
}

// breakOff sends a request whose body is shorter than its length, and
// disconnects.
func (w *world) breakOff(method, path string, length int, body string) {
	w.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.Fatal(err)
	}
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: registry\r\nContent-Length: %d\r\n\r\n%s", method, path, length, body)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		w.Fatal(err)
	}
	// An answer, or a closed connection: the request has ended.
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
		if resp.StatusCode < 400 {
			w.Errorf("%s that broke off: %s", method, resp.Status)
		}
		resp.Body.Close()
	}
	if err := conn.Close(); err != nil {
		w.Error(err)
	}
}

// awaitRange waits until this many bytes have arrived.
func (w *world) awaitRange(at, want string) answer {
	w.Helper()
	var a answer
	dbtest.Await(w, "the range is "+want, func() bool {
		a = w.want(204, "GET", at, nil, nil)
		return a.header.Get("Range") == want
	})
	return a
}

// TestUploadAfterDeath: a process died after it stored bytes and before it
// recorded them. In a directory they are found; S3 does not have them yet.
func TestUploadAfterDeath(t *testing.T) {
	each(t, func(w *world) {
		for _, asked := range []bool{true, false} {
			at := w.begin("a")
			w.want(202, "PATCH", at, nil, "hello")
			lost := w.resume(`SELECT path, store_state FROM blob_uploads`)
			if _, err := io.WriteString(lost, ", world"); err != nil {
				w.Fatal(err)
			}
			if err := lost.Close(); err != nil {
				w.Fatal(err)
			}
			arrived, rest := "0-11", headers{"Content-Range": "12-12"}
			last := "!"
			if w.s3 {
				arrived, rest, last = "0-4", headers{"Content-Range": "5-12"}, ", world!"
			}
			if asked {
				if a := w.want(204, "GET", at, nil, nil); a.header.Get("Range") != arrived {
					w.Errorf("Range is %q", a.header.Get("Range"))
				}
			}
			w.want(201, "PUT", at+"?digest="+sha256("hello, world!"), rest, last)
			w.blob("a", sha256("hello, world!"), "hello, world!")
		}
	})
}

// resume opens the writer of an upload directly, without the registry.
func (w *world) resume(statement string) blobstore.Writer {
	w.Helper()
	var path string
	var state []byte
	if _, err := w.DB.Row(w.Context(), statement, nil, &path, &state); err != nil {
		w.Fatal(err)
	}
	upload, err := w.blobs.Resume(w.Context(), path, state)
	if err != nil {
		w.Fatal(err)
	}
	return upload
}

// TestUploadBusy: while one request writes to an upload, others are refused.
func TestUploadBusy(t *testing.T) {
	each(t, func(w *world) {
		at := w.begin("a")
		body, feed := io.Pipe()
		done := make(chan answer, 1) // buffered, so that a failed test leaves no goroutine
		go func() { done <- w.send("PATCH", at, nil, body) }()
		content := strings.Repeat("x", 24<<20) // larger than all buffers, so the server is reading it
		if _, err := io.WriteString(feed, content); err != nil {
			w.Fatal(err)
		}
		w.refuses(409, registry.BlobUploadInvalid, "PATCH", at, nil, "y")
		w.refuses(409, registry.BlobUploadInvalid, "PUT", at+"?digest="+sha256("x"), nil, "x")
		w.refuses(409, registry.BlobUploadInvalid, "DELETE", at, nil, nil)
		w.want(204, "GET", at, nil, nil)
		if err := feed.Close(); err != nil {
			w.Fatal(err)
		}
		if a := w.receive(done); a.status != 202 {
			w.Fatalf("the first request: %d %s", a.status, a.body)
		}
		w.want(201, "PUT", at+"?digest="+sha256(content), nil, nil)
	})
}

// TestUploadTakenOver: on PostgreSQL a request whose lease has expired loses its
// upload to another, and cannot end it any more.
func TestUploadTakenOver(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.Postgres), registry.Config{SmallBlobs: -1})
	at := w.begin("a")
	body, feed := io.Pipe()
	done := make(chan answer, 1) // buffered, so that a failed test leaves no goroutine
	go func() { done <- w.send("PUT", at+"?digest="+sha256("hello"), nil, body) }()
	if _, err := io.WriteString(feed, "hello"); err != nil {
		t.Fatal(err)
	}
	dbtest.Await(w, "the upload is claimed", func() bool {
		return len(w.Strings(`SELECT id FROM blob_uploads WHERE claim_token IS NOT NULL`)) > 0
	})
	w.Exec(`UPDATE blob_uploads SET claim_token = 'another'`)
	if err := feed.Close(); err != nil {
		t.Fatal(err)
	}
	if a := w.receive(done); a.status != 409 || a.code() != registry.BlobUploadInvalid {
		t.Errorf("the request that lost its lease: %d %s", a.status, a.body)
	}
	w.wantCounts("blobs 0, blob_uploads 1, manifests 0, tags 0")
	// The other request has died as well.
	w.Exec(`UPDATE blob_uploads SET claim_until = 0`)
	w.want(201, "PUT", at+"?digest="+sha256("hello"), nil, nil)
	w.check()
}
