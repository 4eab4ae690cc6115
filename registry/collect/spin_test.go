package collect

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/registrytest"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

var spinPushes = flag.Int("spin", 500, "how many pushes TestGCSpin makes on each engine")

const (
	spinClients = 8
	spinImages  = 300
	// spinPromise is longer than a push takes on a slow machine.
	spinPromise = 2 * time.Second
)

// TestGCSpin: clients push, read back and delete the same images repeatedly
// while collectors run with no delay except existence_check. The collectors must
// not fail any push, and every acknowledged push must be complete.
func TestGCSpin(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		t.Parallel()
		s := newSpin(t, db)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var clients, collectors sync.WaitGroup
		for i := range spinClients {
			clients.Go(func() { s.client(fmt.Sprint("client", i)) })
		}
		for range 2 {
			collectors.Go(func() { s.collect(ctx) })
		}
		clients.Wait()
		cancel()
		collectors.Wait()
		t.Logf("%d pushes, %d slower than the promise; %d manifests and %d blobs collected meanwhile",
			s.pushes.Load(), s.slow.Load(), s.manifests.Load(), s.blobs.Load())
		if s.slow.Load() > s.pushes.Load()/10 {
			t.Error("most pushes were too slow: the test is void")
		}
	})
}

type spin struct {
	*testing.T
	url       string
	collector *Collector

	pushes, slow, manifests, blobs atomic.Int64
}

func newSpin(t *testing.T, db *sqldb.DB) *spin {
	t.Helper()
	store, err := blobstore.OpenDir(registrytest.Dir(t))
	if err != nil {
		t.Fatal(err)
	}
	delays := map[string]time.Duration{}
	for _, event := range events {
		delays[event] = 0
	}
	delays[EventExistenceCheck] = spinPromise
	quiet := slog.New(deadlocks{slog.DiscardHandler, t})
	c, err := New(db, store, Options{ReviewAfter: delays, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.configure(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Layers live in the database, configurations in the blob store.
	server := httptest.NewServer(registry.New(registry.Config{DB: db, Blobs: store, SmallBlobs: 7, Logger: quiet}))
	t.Cleanup(server.Close)
	return &spin{T: t, url: server.URL + "/v2/r", collector: c}
}

// deadlocks is a log handler that fails the test if a request was aborted by a deadlock.
type deadlocks struct {
	slog.Handler
	t *testing.T
}

func (h deadlocks) Enabled(context.Context, slog.Level) bool { return true }

func (h deadlocks) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "deadlock") {
		h.t.Error(r.Message)
	}
	return nil
}

// collect runs the collector until ctx ends.
func (s *spin) collect(ctx context.Context) {
	for ctx.Err() == nil {
		turn, err := s.collector.RunOne(ctx)
		if err != nil && ctx.Err() == nil {
			s.Errorf("collect: %v", err)
			return
		}
		s.manifests.Add(int64(turn.Manifests.Acted))
		s.blobs.Add(int64(turn.Blobs.Acted))
		if turn.Idle() {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// enough reports whether enough pushes were made and enough of them raced with reviews.
func (s *spin) enough() bool {
	return s.pushes.Load() >= int64(*spinPushes) && s.manifests.Load() > 0 && s.blobs.Load() > 0
}

// client pushes until there is enough. It has its own tag, and its own manifests
// beside the shared ones: a client that deletes a manifest by its digest deletes
// the tags of others too. All clients share the blobs.
func (s *spin) client(name string) {
	for !s.enough() && !s.Failed() {
		n := rand.IntN(spinImages)
		image := spinImage{tag: name, blobs: [][]byte{[]byte("base"), fmt.Appendf(nil, "config %d", n), fmt.Appendf(nil, "layer %d", n)}}
		remove := "/manifests/" + name
		if rand.IntN(3) == 0 {
			image.owner = name
			remove = "/manifests/" + digest.FromBytes(image.manifest()).String()
		}
		start := time.Now()
		err := s.push(image)
		if err != nil && time.Since(start) > spinPromise && excused(err) {
			s.slow.Add(1) // the machine was too slow: the promise has ended
			continue
		}
		if err == nil {
			err = s.readBack(image)
		}
		if err == nil {
			if n := s.pushes.Add(1); n%10000 == 0 {
				s.Logf("%d pushes", n)
			}
			_, err = s.call(http.MethodDelete, remove, nil, http.StatusAccepted)
		}
		if err != nil {
			s.Errorf("image %d of %s: %v", n, name, err)
			return
		}
	}
}

// excused reports whether a push that took longer than the promise may fail this
// way: the server was busy, or a blob was collected after its promise. A 500 and
// a broken connection are never excused.
func excused(err error) bool {
	var answer *spinAnswer
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return true
	}
	return answer.status == http.StatusNotFound && strings.Contains(answer.text, string(registry.ManifestBlobUnknown))
}

// spinAnswer is an unexpected answer.
type spinAnswer struct {
	request string
	status  int
	text    string
}

func (a *spinAnswer) Error() string { return fmt.Sprintf("%s: %d: %s", a.request, a.status, a.text) }

func TestSpinExcuses(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&spinAnswer{status: 503}, true},
		{&spinAnswer{status: 429}, true},
		{&spinAnswer{status: 404, text: `{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN"}]}`}, true},
		{&spinAnswer{status: 404, text: `{"errors":[{"code":"NAME_UNKNOWN"}]}`}, false},
		{&spinAnswer{status: 500}, false},
		{&spinAnswer{status: 504}, false},
		{errors.New("connection reset"), false},
	} {
		if got := excused(c.err); got != c.want {
			t.Errorf("%v is excused: %t", c.err, got)
		}
	}
}

// spinImage is an image of three blobs.
type spinImage struct {
	tag   string
	owner string // the only client that pushes this manifest; empty means all do
	blobs [][]byte
}

func (i spinImage) manifest() []byte {
	var d []string
	for _, content := range i.blobs {
		d = append(d, fmt.Sprintf(`{"mediaType":"application/octet-stream","digest":%q,"size":%d}`, digest.FromBytes(content), len(content)))
	}
	return fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s,"layers":[%s,%s],"annotations":{"owner":%q}}`,
		d[1], d[0], d[2], i.owner)
}

func (s *spin) push(image spinImage) error {
	for _, content := range image.blobs {
		name := digest.FromBytes(content).String()
		if _, err := s.call(http.MethodHead, "/blobs/"+name, nil, http.StatusOK); err == nil {
			continue // the blob exists
		}
		if _, err := s.call(http.MethodPost, "/blobs/uploads/?digest="+name, content, http.StatusCreated); err != nil {
			return err
		}
	}
	_, err := s.call(http.MethodPut, "/manifests/"+image.tag, image.manifest(), http.StatusCreated)
	return err
}

func (s *spin) readBack(image spinImage) error {
	manifest, err := s.call(http.MethodGet, "/manifests/"+image.tag, nil, http.StatusOK)
	if err != nil {
		return err
	}
	if want := image.manifest(); !bytes.Equal(manifest, want) {
		return fmt.Errorf("read %q, want %q", manifest, want)
	}
	for _, content := range image.blobs {
		got, err := s.call(http.MethodGet, "/blobs/"+digest.FromBytes(content).String(), nil, http.StatusOK)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, content) {
			return fmt.Errorf("read %q, want %q", got, content)
		}
	}
	return nil
}

// call makes a request, and expects a status.
func (s *spin) call(method, path string, body []byte, want int) ([]byte, error) {
	req, err := http.NewRequestWithContext(s.Context(), method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	if method == http.MethodPut {
		req.Header.Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	got, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	if resp.StatusCode != want {
		return nil, &spinAnswer{method + " " + path, resp.StatusCode, string(got)}
	}
	return got, nil
}
