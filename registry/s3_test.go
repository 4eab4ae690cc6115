package registry_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore/s3test"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestUploadOverReplicas: each request of an upload goes to another replica. The
// chunks end before, at and after the ends of the parts.
func TestUploadOverReplicas(t *testing.T) {
	const part = 5 << 20
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		bucket := s3test.Location(t)
		replicas := []*world{
			newWorldAt(t, db, bucket, registry.Config{SmallBlobs: -1}),
			newWorldAt(t, db, bucket, registry.Config{SmallBlobs: -1}),
		}
		first := 1
		if db.Engine() == sqldb.SQLite {
			first = 0 // SQLite has no replicas: this is a restart
		}
		for _, digestOf := range []func(string) string{sha256, sha512} {
			at := replicas[0].begin("a")
			content := ""
			for i, size := range []int{3, part, part - 3, 1, 2*part + 1} {
				w, chunk := replicas[(i+first)%2], strings.Repeat(string(rune('a'+i)), size)
				content += chunk
				w.want(202, "PATCH", at, nil, chunk)
			}
			replicas[0].want(201, "PUT", at+"?digest="+digestOf(content), nil, nil)
			replicas[1].blob("a", digestOf(content), content)
		}
		replicas[0].check()
	})
}

// TestUploadLost: the parts of an upload are gone, for example by a lifecycle
// rule of the bucket. The client is told to start again, and nothing is left.
func TestUploadLost(t *testing.T) {
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorldAt(t, db, s3test.Location(t), registry.Config{SmallBlobs: -1})
		for _, size := range []int{10, 6 << 20} {
			at := w.begin("a")
			w.want(202, "PATCH", at, nil, strings.Repeat("x", size))
			if err := w.blobs.Remove(t.Context(), w.Strings(`SELECT path FROM blob_uploads`)[0]); err != nil {
				t.Fatal(err)
			}
			w.refuses(404, registry.BlobUploadUnknown, "PATCH", at, nil, strings.Repeat("y", 6<<20))
			w.refuses(404, registry.BlobUploadUnknown, "GET", at, nil, nil)
		}
		w.wantCounts("blobs 0, blob_uploads 0, manifests 0, tags 0")
		w.check()
	})
}

// TestRedirect: a client that follows the redirect gets the bytes from S3.
func TestRedirect(t *testing.T) {
	w := newWorldAt(t, dbtest.OpenDB(t, sqldb.SQLite), s3test.Location(t), registry.Config{Redirect: true, SmallBlobs: -1})
	d := w.push("a", "content")
	resp, err := http.Get(w.url + "/v2/a/blobs/" + d) // follows the redirect
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != 200 || string(content) != "content" || resp.Header.Get("Content-Encoding") != "" {
		t.Errorf("followed: %s %q, %v %v", resp.Status, content, resp.Header, err)
	}
	stay := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for method, want := range map[string]int{"GET": 307, "HEAD": 200} {
		req, err := http.NewRequestWithContext(t.Context(), method, w.url+"/v2/a/blobs/"+d, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := stay.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want || resp.Header.Get("Docker-Content-Digest") != d {
			t.Errorf("%s: %s %v", method, resp.Status, resp.Header)
		}
	}
	w.refuses(404, registry.BlobUnknown, "GET", "/v2/a/blobs/"+sha256("other"), nil, nil)
}
