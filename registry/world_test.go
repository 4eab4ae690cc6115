package registry_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/blobstore/s3test"
	"github.com/exeunt/exeunt/registry/registrytest"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// world is a registry behind a real listener.
type world struct {
	*testing.T
	dbtest.SQL
	blobs    blobs
	s3       bool // the blobs are in S3
	registry *registry.Registry
	url      string
}

// blobs is a blob store that can be walked.
type blobs interface {
	blobstore.Store
	blobstore.Walker
}

// each runs a test on a registry of each engine, and on one in S3 with an engine that the test's name decides: the stores know
// nothing of the engines. It checks the invariants afterwards.
func each(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		// Most tests use small blobs. They must test the path of large ones, so
		// no blob is stored in the database.
		w := newWorld(t, db, registry.Config{SmallBlobs: -1})
		test(w)
		w.check()
	})
	engine := dbtest.Engines()[crc32.ChecksumIEEE([]byte(t.Name()))%2]
	t.Run(string(engine)+" and S3", func(t *testing.T) {
		t.Parallel()
		w := newWorldAt(t, dbtest.OpenDB(t, engine), s3test.Location(t), registry.Config{SmallBlobs: -1})
		w.s3 = true
		test(w)
		w.check()
	})
}

// eachSmall is each for a registry that stores small blobs in the database.
func eachSmall(t *testing.T, test func(w *world)) {
	t.Helper()
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, db, registry.Config{})
		test(w)
		w.check()
	})
}

func newWorld(t *testing.T, db *sqldb.DB, c registry.Config) *world {
	t.Helper()
	return newWorldAt(t, db, registrytest.Dir(t), c)
}

// newWorldAt has its bytes at a location. The registry may use another store,
// which wraps that one.
func newWorldAt(t *testing.T, db *sqldb.DB, location string, c registry.Config) *world {
	t.Helper()
	store, err := blobstore.Open(t.Context(), location)
	if err != nil {
		t.Fatal(err)
	}
	c.DB = db
	if c.Blobs == nil {
		c.Blobs = store
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	}
	r := registry.New(c)
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	return &world{T: t, SQL: dbtest.NewSQL(t, db), blobs: store.(blobs), registry: r, url: server.URL}
}

// testWriter writes the registry's log to the test's. A deadlock fails the test,
// although the registry retries.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	line := strings.TrimSpace(string(p))
	switch {
	case w.t.Context().Err() != nil:
	case strings.Contains(line, "deadlock"):
		w.t.Error(line)
	default:
		w.t.Log(line)
	}
	return len(p), nil
}

// headers are the headers of a request.
type headers map[string]string

// answer is a response.
type answer struct {
	status int
	header http.Header
	body   string
}

// send sends a request. A string body has a length, a reader is streamed.
func (w *world) send(method, path string, h headers, body any) answer {
	w.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case string:
		reader = strings.NewReader(b)
	case io.Reader:
		reader = b
	}
	target := path
	if strings.HasPrefix(path, "/") {
		target = w.url + path
	}
	req, err := http.NewRequestWithContext(w.Context(), method, target, reader)
	if err != nil {
		w.Fatal(err)
	}
	for name, value := range h {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		w.Fatalf("%s %s: %v", method, path, err)
	}
	if v := resp.Header.Get("Docker-Distribution-Api-Version"); v != "registry/2.0" {
		w.Errorf("%s %s: Docker-Distribution-Api-Version is %q", method, path, v)
	}
	return answer{resp.StatusCode, resp.Header, string(content)}
}

// patience is how long a test waits for an event.
const patience = dbtest.Patience

// receive waits for the answer of a concurrent request.
func (w *world) receive(answers <-chan answer) answer {
	w.Helper()
	select {
	case a := <-answers:
		return a
	case <-time.After(patience):
		w.Fatalf("no answer within %s", patience)
		return answer{}
	}
}

// want sends a request that must be answered with a status.
func (w *world) want(status int, method, path string, h headers, body any) answer {
	w.Helper()
	a := w.send(method, path, h, body)
	if a.status != status {
		w.Fatalf("%s %s: status %d, not %d: %s", method, path, a.status, status, a.body)
	}
	return a
}

// refuses sends a request that must be answered with a status and a code.
func (w *world) refuses(status int, code registry.Code, method, path string, h headers, body any) answer {
	w.Helper()
	a := w.send(method, path, h, body)
	if a.status != status || method != http.MethodHead && a.code() != code {
		w.Errorf("%s %s: status %d %s, not %d %s: %s", method, path, a.status, a.code(), status, code, a.body)
	}
	return a
}

// code returns the error code of an answer, if all its errors have the same.
func (a answer) code() registry.Code {
	var body struct {
		Errors []struct {
			Code    registry.Code
			Message string
		}
	}
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || len(body.Errors) == 0 {
		return ""
	}
	for _, e := range body.Errors {
		if e.Code != body.Errors[0].Code || e.Message == "" {
			return ""
		}
	}
	return body.Errors[0].Code
}

// counts returns the number of rows in the database.
func (w *world) counts() string {
	w.Helper()
	var out []string
	for _, table := range []string{"blobs", "blob_uploads", "manifests", "tags"} {
		var n int
		if _, err := w.DB.Row(w.Context(), "SELECT count(*) FROM "+table, nil, &n); err != nil {
			w.Fatal(err)
		}
		out = append(out, fmt.Sprint(table, " ", n))
	}
	return strings.Join(out, ", ")
}

func (w *world) wantCounts(want string) {
	w.Helper()
	if got := w.counts(); got != want {
		w.Errorf("the database has %s; want %s", got, want)
	}
}

// check checks the promises of the registry.
func (w *world) check() {
	w.Helper()
	for _, line := range w.Strings(`
		SELECT b.path || ' ' || b.digest || ' ' || b.size || ' ' || CASE WHEN s.blob_id IS NULL THEN '-' ELSE ` + w.hex() + ` END
		FROM blobs b LEFT JOIN small_blobs s ON s.blob_id = b.id AND b.small`) {
		var path, want, small string
		var size int64
		if _, err := fmt.Sscan(line, &path, &want, &size, &small); err != nil {
			w.Fatal(err)
		}
		var content string
		if small == "-" {
			content = w.read(path)
		} else {
			data, err := hex.DecodeString(small)
			if err != nil {
				w.Fatal(err)
			}
			content = string(data)
		}
		if got := digest.Digest(want).Algorithm().FromString(content); got.String() != want || int64(len(content)) != size {
			w.Errorf("blob %s of %d bytes is really %s of %d", want, size, got, len(content))
		}
	}
	known := map[string]bool{}
	for _, path := range w.Strings(`SELECT path FROM blobs UNION ALL SELECT path FROM blob_uploads UNION ALL SELECT path FROM gc_unlink_queue`) {
		known[path] = true
	}
	err := w.blobs.Walk(w.Context(), func(path string, _ int64, _ time.Time) error {
		if !known[path] {
			w.Errorf("no row names the bytes at %s", path)
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	for _, id := range w.Strings(`SELECT id FROM blob_uploads WHERE claim_token IS NOT NULL`) {
		w.Errorf("upload %s is still claimed", id)
	}
}

// hex selects the bytes of a small blob as text, in SQL.
func (w *world) hex() string {
	if w.DB.Engine() == sqldb.Postgres {
		return "encode(s.content, 'hex')"
	}
	return "hex(s.content)"
}

// read reads bytes from the blob store.
func (w *world) read(path string) string {
	w.Helper()
	f, err := w.blobs.Open(context.Background(), path, 0)
	if err != nil {
		w.Fatal(err)
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		w.Fatal(err)
	}
	return string(content)
}
