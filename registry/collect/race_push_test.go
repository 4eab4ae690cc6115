package collect

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestGCRaceHeadThenPut: a blob that nothing uses is due for review. A client
// checks whether it exists, uploads it only if it does not, and pushes its
// manifest. Wherever the review is at the check, the push succeeds, and the blob
// exists in the end.
func TestGCRaceHeadThenPut(t *testing.T) {
	for name, test := range map[string]struct {
		at    int // the step after which the review stops and the client asks; 0 means before the claim
		waits bool
		found int
	}{
		"before the claim":  {0, false, http.StatusOK},
		"claimed":           {afterHold, false, http.StatusOK},
		"taken":             {afterTake, true, http.StatusNotFound},
		"found to be loose": {afterVerify, true, http.StatusNotFound},
		"deleted":           {afterDelete, true, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, dbtest.OpenDB(t, sqldb.Postgres), Options{})
			p := &httpPush{w, registry.New(registry.Config{DB: w.DB, Blobs: w.Store, SmallBlobs: -1})}
			w.Blob("r", "layer")
			w.Exec(`UPDATE gc_blob_review_queue SET review_after = 0`)
			found := make(chan int, 1)
			ask := func() { found <- p.call(http.MethodHead, "/v2/r/blobs/"+w.DigestOf("layer"), "") }
			switch {
			case test.at == 0:
				ask()
				if r, err := w.c.blobRows.RunOne(t.Context()); err != nil || r.Claimed != 0 {
					t.Errorf("claimed a blob that was promised: %+v, %v", r, err)
				}
			case test.waits:
				w.reviewBlobsStopped(test.at, func() { w.Begin(func() error { ask(); return nil }) })
			default:
				w.reviewBlobsStopped(test.at, ask)
			}
			if got := <-found; got != test.found {
				t.Fatalf("the client was answered %d, not %d", got, test.found)
			}
			p.finish(test.found == http.StatusOK)
		})
	}
}

// TestGCRaceSharedByPush stops a push after it has found the blobs or manifests
// that it refers to, and before it writes its manifest. Meanwhile they are due
// for review, and nothing uses them yet. The push has locked them (FOR KEY
// SHARE), so the review skips them; without the locks it would delete them, and
// the push would violate a foreign key.
func TestGCRaceSharedByPush(t *testing.T) {
	type scene struct {
		*httpPush
		stopped func(push func() int) // runs a push, stops it, and runs a turn of the collector meanwhile
	}
	run := func(t *testing.T, test func(s scene)) {
		t.Parallel()
		w := newWorld(t, dbtest.OpenDB(t, sqldb.Postgres), Options{})
		p := &httpPush{w, registry.New(registry.Config{DB: w.DB, Blobs: w.Store, SmallBlobs: -1})}
		test(scene{p, func(push func() int) {
			for _, table := range []string{"gc_blob_review_queue", "gc_manifest_review_queue"} {
				w.Exec(`UPDATE ` + table + ` SET review_after = 0`)
			}
			release := w.Open(func(tx *sqldb.Tx) error { // reads and row locks continue, inserts wait
				return tx.Exec(t.Context(), `LOCK TABLE manifests IN SHARE ROW EXCLUSIVE MODE`)
			})
			status := 0
			done := w.Begin(func() error { status = push(); return nil })
			for _, engine := range []*review.Engine{w.c.manifests, w.c.blobRows} {
				if r, err := engine.RunOne(t.Context()); err != nil || r.Acted != 0 || r.Failed != 0 {
					t.Errorf("a turn during the push: %+v, %v", r, err)
				}
			}
			release()
			if err := <-done; err != nil || status != http.StatusCreated {
				t.Errorf("the push was answered %d, %v", status, err)
			}
		}})
	}
	t.Run("blobs", func(t *testing.T) {
		run(t, func(s scene) {
			s.upload("config")
			s.upload("layer")
			s.stopped(func() int { return s.call(http.MethodPut, "/v2/r/manifests/latest", s.image("config", "layer")) })
			for _, name := range []string{"config", "layer"} {
				if got := s.call(http.MethodGet, "/v2/r/blobs/"+s.DigestOf(name), ""); got != http.StatusOK {
					t.Errorf("%s was answered %d", name, got)
				}
			}
			s.Check()
		})
	})
	t.Run("manifests", func(t *testing.T) {
		run(t, func(s scene) {
			s.upload("config")
			s.upload("layer")
			child := s.image("config", "layer")
			at := "/v2/r/manifests/" + digest.FromString(child).String()
			if got := s.call(http.MethodPut, at, child); got != http.StatusCreated {
				t.Fatalf("the push of the child was answered %d", got)
			}
			index := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[{"mediaType":%q,"digest":%q,"size":%d}]}`,
				v1.MediaTypeImageIndex, v1.MediaTypeImageManifest, digest.FromString(child), len(child))
			s.stopped(func() int { return s.callAs(http.MethodPut, "/v2/r/manifests/latest", index, v1.MediaTypeImageIndex) })
			if got := s.call(http.MethodGet, at, ""); got != http.StatusOK {
				t.Errorf("the child was answered %d", got)
			}
			s.Check()
		})
	})
}

// httpPush is a client that pushes an image with a layer and a config.
type httpPush struct {
	*world
	r *registry.Registry
}

// call makes a request, and returns its status.
func (p *httpPush) call(method, target, body string) int {
	return p.callAs(method, target, body, v1.MediaTypeImageManifest)
}

func (p *httpPush) callAs(method, target, body, contentType string) int {
	req := httptest.NewRequest(method, target, strings.NewReader(body))
	req.Header.Set("Content-Type", contentType)
	answer := httptest.NewRecorder()
	p.r.ServeHTTP(answer, req)
	return answer.Code
}

// finish pushes what is missing, runs all reviews, and reads the layer back.
func (p *httpPush) finish(there bool) {
	p.Helper()
	p.upload("config")
	if !there {
		p.upload("layer")
	}
	if got := p.call(http.MethodPut, "/v2/r/manifests/latest", p.image("config", "layer")); got != http.StatusCreated {
		p.Fatalf("the push was answered %d", got)
	}
	for _, table := range []string{"gc_blob_review_queue", "gc_manifest_review_queue", "gc_unlink_queue"} {
		p.Exec(`UPDATE ` + table + ` SET review_after = 0`)
	}
	if _, err := p.c.RunOne(p.Context()); err != nil {
		p.Error(err)
	}
	if got := p.call(http.MethodGet, "/v2/r/blobs/"+p.DigestOf("layer"), ""); got != http.StatusOK {
		p.Errorf("the layer was answered %d", got)
	}
	p.Check()
}

// image is a manifest.
func (p *httpPush) image(config, layer string) string {
	descriptor := func(name string) string {
		return fmt.Sprintf(`{"mediaType":"application/x","digest":%q,"size":%d}`, p.DigestOf(name), len(name))
	}
	return fmt.Sprintf(`{"schemaVersion":2,"config":%s,"layers":[%s]}`, descriptor(config), descriptor(layer))
}

func (p *httpPush) upload(content string) {
	p.Helper()
	if got := p.call(http.MethodPost, "/v2/r/blobs/uploads/?digest="+p.DigestOf(content), content); got != http.StatusCreated {
		p.Fatalf("the upload was answered %d", got)
	}
}
