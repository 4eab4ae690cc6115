package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

const (
	spinTime    = 10 * time.Second
	spinClients = 4
	spinImages  = 300
	// spinPromise is what a push on a slow machine must not take.
	spinPromise = 2 * time.Second
)

// TestGCSpin: clients push, read back and untag the same images over and over
// while collectors run that wait for nothing but what was promised. No push may
// be refused because of them, and none that was acknowledged may lack anything.
func TestGCSpin(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		t.Parallel()
		s := newSpin(t, db)
		ctx, cancel := context.WithTimeout(t.Context(), spinTime)
		defer cancel()
		var running sync.WaitGroup
		for i := range spinClients {
			running.Go(func() { s.client(ctx, fmt.Sprint("client", i)) })
		}
		for range 2 {
			running.Go(func() { s.collect(ctx) })
		}
		running.Wait()
		t.Logf("%d pushes, %d manifests and %d blobs collected meanwhile", s.pushes.Load(), s.manifests.Load(), s.blobs.Load())
		if s.pushes.Load() == 0 || s.manifests.Load() == 0 || s.blobs.Load() == 0 {
			t.Error("there was no race")
		}
	})
}

type spin struct {
	*testing.T
	url       string
	collector *Collector

	pushes, manifests, blobs atomic.Int64
}

func newSpin(t *testing.T, db *sqldb.DB) *spin {
	t.Helper()
	store, err := blobstore.OpenDir(filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	delays := map[string]time.Duration{}
	for _, event := range events {
		delays[event] = 0
	}
	delays[EventExistenceCheck] = spinPromise
	quiet := slog.New(slog.DiscardHandler)
	c, err := NewCollector(db, store, Options{ReviewAfter: delays, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.configure(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Layers live in the database, configurations in the blob store.
	server := httptest.NewServer(New(Config{DB: db, Blobs: store, SmallBlobs: 7, Logger: quiet}))
	t.Cleanup(server.Close)
	return &spin{T: t, url: server.URL + "/v2/r", collector: c}
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

// client pushes until ctx ends. It has a tag of its own.
func (s *spin) client(ctx context.Context, tag string) {
	for ctx.Err() == nil {
		n := rand.IntN(spinImages)
		blobs := [][]byte{[]byte("base"), fmt.Appendf(nil, "config %d", n), fmt.Appendf(nil, "layer %d", n)}
		start := time.Now()
		err := s.push(tag, blobs)
		if time.Since(start) > spinPromise/2 {
			continue // the machine stood still: nothing was promised for so long
		}
		if err == nil {
			err = s.readBack(tag, blobs)
		}
		if err != nil {
			s.Errorf("image %d: %v", n, err)
			return
		}
		s.pushes.Add(1)
		if _, err := s.call(http.MethodDelete, "/manifests/"+tag, nil, http.StatusAccepted); err != nil {
			s.Errorf("delete tag: %v", err)
			return
		}
	}
}

func (s *spin) push(tag string, blobs [][]byte) error {
	var descriptors []string
	for _, content := range blobs {
		name := digest.FromBytes(content).String()
		descriptors = append(descriptors, fmt.Sprintf(`{"mediaType":"application/octet-stream","digest":%q,"size":%d}`, name, len(content)))
		if _, err := s.call(http.MethodHead, "/blobs/"+name, nil, http.StatusOK); err == nil {
			continue // it need not be uploaded
		}
		if _, err := s.call(http.MethodPost, "/blobs/uploads/?digest="+name, content, http.StatusCreated); err != nil {
			return err
		}
	}
	manifest := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s,"layers":[%s,%s]}`,
		descriptors[1], descriptors[0], descriptors[2])
	_, err := s.call(http.MethodPut, "/manifests/"+tag, manifest, http.StatusCreated)
	return err
}

func (s *spin) readBack(tag string, blobs [][]byte) error {
	if _, err := s.call(http.MethodGet, "/manifests/"+tag, nil, http.StatusOK); err != nil {
		return err
	}
	for _, content := range blobs {
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
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, got)
	}
	return got, nil
}
