package registry_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
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
	db       *sqldb.DB
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

// each runs a test on a registry of each engine and each blob store, and checks
// the invariants afterwards.
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
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine)+" and S3", func(t *testing.T) {
			t.Parallel()
			w := newWorldAt(t, dbtest.OpenDB(t, engine), s3test.Location(t), registry.Config{SmallBlobs: -1})
			w.s3 = true
			test(w)
			w.check()
		})
	}
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
	return &world{T: t, db: db, blobs: store.(blobs), registry: r, url: server.URL}
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
const patience = time.Minute

// until waits until a condition is true.
func (w *world) until(what string, is func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("not within %s: %s", patience, what)
		}
	}
}

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

func sha256(content string) string { return digest.FromString(content).String() }

func sha512(content string) string { return digest.SHA512.FromString(content).String() }

// begin begins an upload and returns its location.
func (w *world) begin(repo string) string {
	w.Helper()
	return w.want(202, "POST", "/v2/"+repo+"/blobs/uploads/", nil, nil).header.Get("Location")
}

// push pushes a blob and returns its digest.
func (w *world) push(repo, content string) string {
	w.Helper()
	d := sha256(content)
	w.want(201, "POST", "/v2/"+repo+"/blobs/uploads/?digest="+d, nil, content)
	return d
}

// blob expects a blob to exist, with its bytes.
func (w *world) blob(repo, d, content string) {
	w.Helper()
	path := "/v2/" + repo + "/blobs/" + d
	for _, method := range []string{"GET", "HEAD"} {
		a := w.want(200, method, path, nil, nil)
		if method == "GET" && a.body != content {
			w.Errorf("GET %s: %d bytes, not the %d that were pushed", path, len(a.body), len(content))
		}
		if a.header.Get("Docker-Content-Digest") != d || a.header.Get("Content-Length") != fmt.Sprint(len(content)) {
			w.Errorf("%s %s: headers %v", method, path, a.header)
		}
	}
}

// absent expects a blob not to exist.
func (w *world) absent(repo, d string) {
	w.Helper()
	w.want(404, "HEAD", "/v2/"+repo+"/blobs/"+d, nil, nil)
}

const (
	ociManifest    = "application/vnd.oci.image.manifest.v1+json"
	ociIndex       = "application/vnd.oci.image.index.v1+json"
	ociConfig      = "application/vnd.oci.image.config.v1+json"
	ociLayer       = "application/vnd.oci.image.layer.v1.tar+gzip"
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
)

// descriptor returns a descriptor as JSON.
func descriptor(mediaType, d string, size int) string {
	return fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":%d}`, mediaType, d, size)
}

// manifestOf returns a manifest with one layer. more is inserted before its end.
func manifestOf(config, layer, more string) string {
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":%s,"layers":[%s]%s}`, ociManifest,
		descriptor(ociConfig, sha256(config), len(config)), descriptor(ociLayer, sha256(layer), len(layer)), more)
}

// indexOf returns a list of manifests.
func indexOf(more string, manifests ...string) string {
	var list []string
	for _, m := range manifests {
		list = append(list, descriptor(ociManifest, sha256(m), len(m)))
	}
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[%s]%s}`, ociIndex, strings.Join(list, ","), more)
}

// image pushes a manifest with its blobs, under a tag or, if that is empty, its
// digest. It returns the manifest.
func (w *world) image(repo, tag, layer, more string) string {
	w.Helper()
	w.push(repo, "{}")
	w.push(repo, layer)
	m := manifestOf("{}", layer, more)
	w.tag(repo, tag, ociManifest, m)
	return m
}

// tag pushes a manifest under a tag, or its digest.
func (w *world) tag(repo, tag, mediaType, manifest string) answer {
	w.Helper()
	if tag == "" {
		tag = sha256(manifest)
	}
	return w.want(201, "PUT", "/v2/"+repo+"/manifests/"+tag, headers{"Content-Type": mediaType}, manifest)
}

// counts returns the number of rows in the database.
func (w *world) counts() string {
	w.Helper()
	var out []string
	for _, table := range []string{"blobs", "blob_uploads", "manifests", "tags"} {
		var n int
		if _, err := w.db.Row(w.Context(), "SELECT count(*) FROM "+table, nil, &n); err != nil {
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

// strings reads a column.
func (w *world) strings(statement string) (list []string) {
	w.Helper()
	rows, err := w.db.Query(w.Context(), statement)
	if err != nil {
		w.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			w.Fatal(err)
		}
		list = append(list, s)
	}
	if err := rows.Err(); err != nil {
		w.Fatal(err)
	}
	return list
}

// check checks the promises of the registry.
func (w *world) check() {
	w.Helper()
	for _, line := range w.strings(`
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
	for _, path := range w.strings(`SELECT path FROM blobs UNION ALL SELECT path FROM blob_uploads UNION ALL SELECT path FROM gc_unlink_queue`) {
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
	for _, id := range w.strings(`SELECT id FROM blob_uploads WHERE claim_token IS NOT NULL`) {
		w.Errorf("upload %s is still claimed", id)
	}
}

// hex selects the bytes of a small blob as text, in SQL.
func (w *world) hex() string {
	if w.db.Engine() == sqldb.Postgres {
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

// exec changes the database directly, without the registry.
func (w *world) exec(statement string, args ...any) {
	w.Helper()
	tx, err := w.db.Begin(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	defer tx.Rollback()
	var b sqldb.Batch
	b.Exec(statement, args...)
	if err := tx.Send(w.Context(), &b); err != nil {
		w.Fatal(err)
	}
	if err := tx.Commit(w.Context()); err != nil {
		w.Fatal(err)
	}
}
