package registry

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestGCRaceHeadThenPut is what a client does while a blob that nothing uses is
// due for review: it asks whether the blob is there, uploads it only if it is
// not, and pushes its manifest. Wherever the review is when it asks, the push
// succeeds, and the blob is there in the end.
func TestGCRaceHeadThenPut(t *testing.T) {
	for name, test := range map[string]struct {
		at    int // the review stops there, and the client asks; 0: before it is claimed
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
			w := newGCWorld(t, dbtest.OpenDB(t, sqldb.Postgres), Options{})
			p := &httpPush{w, New(Config{DB: w.db, Blobs: w.store, SmallBlobs: -1})}
			w.blob("r", "layer")
			w.exec(`UPDATE gc_blob_review_queue SET review_after = 0`)
			found := make(chan int, 1)
			ask := func() { found <- p.call(http.MethodHead, "/v2/r/blobs/"+w.digestOf("layer"), "") }
			switch {
			case test.at == 0:
				ask()
				if r, err := w.c.blobRows.RunOne(t.Context()); err != nil || r.Claimed != 0 {
					t.Errorf("claimed a blob that was promised: %+v, %v", r, err)
				}
			case test.waits:
				w.reviewBlobsStopped(test.at, func() { w.begin(func() error { ask(); return nil }) })
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

// httpPush is a client that pushes an image of a layer and a configuration.
type httpPush struct {
	*gcWorld
	r *Registry
}

// call makes a request, and returns its status.
func (p *httpPush) call(method, target, body string) int {
	req := httptest.NewRequest(method, target, strings.NewReader(body))
	req.Header.Set("Content-Type", v1.MediaTypeImageManifest)
	answer := httptest.NewRecorder()
	p.r.ServeHTTP(answer, req)
	return answer.Code
}

// finish pushes what is missing, lets all be reviewed, and reads the layer back.
func (p *httpPush) finish(there bool) {
	p.Helper()
	p.upload("config")
	if !there {
		p.upload("layer")
	}
	descriptor := func(name string) string {
		return fmt.Sprintf(`{"mediaType":"application/x","digest":%q,"size":%d}`, p.digestOf(name), len(name))
	}
	manifest := fmt.Sprintf(`{"schemaVersion":2,"config":%s,"layers":[%s]}`, descriptor("config"), descriptor("layer"))
	if got := p.call(http.MethodPut, "/v2/r/manifests/latest", manifest); got != http.StatusCreated {
		p.Fatalf("the push was answered %d", got)
	}
	for _, table := range []string{"gc_blob_review_queue", "gc_manifest_review_queue", "gc_unlink_queue"} {
		p.exec(`UPDATE ` + table + ` SET review_after = 0`)
	}
	if _, err := p.c.RunOne(p.Context()); err != nil {
		p.Error(err)
	}
	if got := p.call(http.MethodGet, "/v2/r/blobs/"+p.digestOf("layer"), ""); got != http.StatusOK {
		p.Errorf("the layer was answered %d", got)
	}
	p.check()
}

func (p *httpPush) upload(content string) {
	p.Helper()
	if got := p.call(http.MethodPost, "/v2/r/blobs/uploads/?digest="+p.digestOf(content), content); got != http.StatusCreated {
		p.Fatalf("the upload was answered %d", got)
	}
}
