package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/exeunt/exeunt/test/harness"
)

// TestMoveKilled: a server that moves the registry's bytes from a directory to S3 while it serves is killed again and again,
// at a request of any kind, before or after S3 has served it. Clients push and pull all the time: no image that was
// acknowledged is missing for a moment in which the server answers, the move ends, and all bytes are in the bucket.
func TestMoveKilled(t *testing.T) {
	const before, kills = 15, 5 // images of the directory, of two blobs each
	for _, engine := range harness.Engines(t.Name()) {
		t.Run(engine, func(t *testing.T) {
			old, config := t.TempDir(), filepath.Join(t.TempDir(), "exeunt.yaml")
			storage := func(location string) {
				if err := os.WriteFile(config, []byte("registry-storage: '"+location+"'\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			storage(old)
			s := harness.Start(t, engine, "--config", config)
			m := &movedImages{craneFlow: craneFlow{t: t, at: s.Registry() + "/"}}
			for range before {
				if err := m.push(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			s.Stop()
			s3 := newFaultyS3(t)
			storage(s3.location + ",from=" + old)
			k := &killer{old: old, dead: make(chan struct{})}
			choose := k.choose
			s3.choose.Store(&choose)
			s.Start()
			ctx, stop := context.WithCancel(t.Context())
			var clients sync.WaitGroup
			clients.Go(func() { m.pushAll(ctx) })
			clients.Go(func() { m.pullAll(ctx) })
			total := k.left()
			for i := range int64(kills) {
				k.below.Store(total * (kills - i) / kills)
				k.process.Store(int64(s.Pid()))
				select {
				case <-k.dead:
				case <-time.After(harness.Patience):
					t.Fatalf("no request to kill at: %d files are left", k.left())
				}
				if k.left() == 0 {
					t.Error("the move ended before the last kill")
				}
				s.Kill() // it is dead, and is waited for
				s.Start()
			}
			s3.heal()
			harness.Until(t, "the move ends", func() error { return moveEnded(s, t) })
			stop()
			clients.Wait()
			if left := k.left(); left != 0 {
				t.Errorf("%d files are in the old directory", left)
			}
			s.Stop()
			if err := os.RemoveAll(old); err != nil {
				t.Fatal(err)
			}
			storage(s3.location)
			s.Start()
			for at, img := range m.pushed {
				if err := m.pull(t.Context(), at); err != nil {
					t.Errorf("%s: %v", at, err)
				}
				m.same(img, at)
			}
			t.Logf("%d images were pushed and %d pulled during the move", len(m.pushed)-before, m.pulls)
			t.Log(s.VerifyRegistry(t, "--registry-storage", s3.location))
		})
	}
}

// moveEnded asks the status.
func moveEnded(s *harness.Server, t *testing.T) error {
	var status struct {
		Registry struct{ Move struct{ Ended bool } }
	}
	r := s.Exeunt(t, "status", "-o", "json")
	if err := json.Unmarshal([]byte(r.Stdout), &status); err != nil || !status.Registry.Move.Ended {
		return fmt.Errorf("%w: %s%s", errors.Join(err, errors.New("it has not ended")), r.Stdout, r.Stderr)
	}
	return nil
}

// killer kills a server in the middle of a request to S3.
type killer struct {
	old     string
	process atomic.Int64 // 0: do not kill
	below   atomic.Int64 // kill when so many files are left in the old directory, or fewer
	dead    chan struct{}
}

// choose makes all requests slow, and kills at a random one.
func (k *killer) choose() fault {
	process := k.process.Load()
	if process == 0 || rand.IntN(3) != 0 || k.left() > k.below.Load() || !k.process.CompareAndSwap(process, 0) {
		return slow
	}
	served := rand.IntN(2) == 0
	return func(_ http.ResponseWriter, req *http.Request, forward http.Handler) {
		if served {
			forward.ServeHTTP(httptest.NewRecorder(), req)
		}
		_ = syscall.Kill(int(process), syscall.SIGKILL)
		k.dead <- struct{}{}
		panic(http.ErrAbortHandler)
	}
}

// left counts the files of blobs in the old directory.
func (k *killer) left() (n int64) {
	_ = filepath.WalkDir(k.old, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") {
			n++
		}
		return nil // a file that goes meanwhile is not left
	})
	return n
}

// movedImages are the images whose push was acknowledged.
type movedImages struct {
	craneFlow
	mu     sync.Mutex
	pushed map[string]v1.Image // by tag
	n      int
	pulls  int // that were whole, of pullAll
}

// push pushes an image with blobs of one request or of several parts.
func (m *movedImages) push(ctx context.Context) error {
	m.n++
	img, err := random.Image([]int64{6 << 20, 100 << 10, 100 << 10}[m.n%3], 2)
	if err != nil {
		return err
	}
	at := fmt.Sprint("shop/web:v", m.n)
	if err := remote.Write(m.ref(at), img, loggedIn(), remote.WithContext(ctx)); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pushed == nil {
		m.pushed = map[string]v1.Image{}
	}
	m.pushed[at] = img
	return nil
}

// pushAll pushes until the context ends. The library waits after a failure.
func (m *movedImages) pushAll(ctx context.Context) {
	for ctx.Err() == nil {
		_ = m.push(ctx) // the server may die; what counts is what it acknowledged
	}
}

// pull reads an image and compares all digests.
func (m *movedImages) pull(ctx context.Context, at string) error {
	img, err := remote.Image(m.ref(at), loggedIn(), remote.WithContext(ctx))
	if err != nil {
		return err
	}
	return validate.Image(img)
}

// pullAll pulls what was acknowledged. A pull may break off, but a server that answers has every image, with its digests.
func (m *movedImages) pullAll(ctx context.Context) {
	for ctx.Err() == nil {
		m.mu.Lock()
		at := ""
		for at = range m.pushed { // any
			break
		}
		m.mu.Unlock()
		err := m.pull(ctx, at)
		var answer *transport.Error
		switch known := errors.As(err, &answer); {
		case err == nil:
			m.pulls++
		case known && answer.StatusCode != http.StatusServiceUnavailable && answer.StatusCode != http.StatusTooManyRequests,
			!known && strings.Contains(err.Error(), "verifying"):
			m.t.Errorf("pull of %s: %v", at, err)
		}
	}
}
