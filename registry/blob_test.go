package registry_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// forwardStore is a store whose readers cannot seek, like those of remote
// stores.
type forwardStore struct{ blobstore.Store }

func (s forwardStore) Open(ctx context.Context, path string, offset int64) (io.ReadCloser, error) {
	f, err := s.Store.Open(ctx, path, offset)
	if err != nil {
		return nil, err
	}
	return struct{ io.ReadCloser }{f}, nil
}

func TestBlobRanges(t *testing.T) {
	const content = "0123456789"
	for name, wrap := range map[string]func(blobstore.Store) blobstore.Store{
		"a store that seeks":    func(s blobstore.Store) blobstore.Store { return s },
		"a store that does not": func(s blobstore.Store) blobstore.Store { return forwardStore{s} },
	} {
		t.Run(name, func(t *testing.T) {
			db := dbtest.OpenDB(t, sqldb.SQLite)
			dir, err := blobstore.OpenDir(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld(t, db, registry.Config{Blobs: wrap(dir), SmallBlobs: -1})
			d := w.push("a", content)
			w.blob("a", d, content)
			for _, c := range []struct {
				header string
				status int
				body   string
				answer string
			}{
				{"bytes=2-4", 206, "234", "bytes 2-4/10"},
				{"bytes=5-", 206, "56789", "bytes 5-9/10"},
				{"bytes=-3", 206, "789", "bytes 7-9/10"},
				{"bytes=8-99", 206, "89", "bytes 8-9/10"},
				{"bytes=0-0", 206, "0", "bytes 0-0/10"},
				{"bytes=10-", 416, "", "bytes */10"},
				{"bytes=5-2", 416, "", ""},
			} {
				a := w.want(c.status, "GET", "/v2/a/blobs/"+d, headers{"Range": c.header}, nil)
				if c.status == 206 && a.body != c.body || a.header.Get("Content-Range") != c.answer {
					t.Errorf("%s: %q, Content-Range %q", c.header, a.body, a.header.Get("Content-Range"))
				}
			}
			a := w.want(304, "GET", "/v2/a/blobs/"+d, headers{"If-None-Match": `"` + d + `"`}, nil)
			if a.body != "" {
				t.Errorf("304 with %q", a.body)
			}
		})
	}
}

func TestBlobUnknown(t *testing.T) {
	each(t, func(w *world) {
		w.push("a", "x")
		w.refuses(404, registry.BlobUnknown, "GET", "/v2/a/blobs/"+sha256("y"), nil, nil)
		w.refuses(404, registry.NameUnknown, "GET", "/v2/b/blobs/"+sha256("x"), nil, nil)
		w.refuses(404, registry.BlobUnknown, "DELETE", "/v2/a/blobs/"+sha256("y"), nil, nil)
		w.refuses(404, registry.NameUnknown, "DELETE", "/v2/b/blobs/"+sha256("x"), nil, nil)
	})
}

func TestBlobDelete(t *testing.T) {
	each(t, func(w *world) {
		d := w.push("a", "x")
		w.push("b", "x")
		w.want(202, "DELETE", "/v2/a/blobs/"+d, nil, nil)
		w.absent("a", d)
		w.blob("b", d, "x")
		w.refuses(404, registry.BlobUnknown, "DELETE", "/v2/a/blobs/"+d, nil, nil)
		w.push("a", "x")
		w.blob("a", d, "x")
	})
}

// TestPromiseLasts: a promise lasts as long as the operator's setting says.
func TestPromiseLasts(t *testing.T) {
	each(t, func(w *world) {
		m := w.image("a", "", "layer", "")
		blob, manifest := "/v2/a/blobs/"+sha256("layer"), "/v2/a/manifests/"+sha256(m)
		for _, c := range []struct{ promise, due, want time.Duration }{
			{3 * time.Hour, 2 * time.Hour, 3 * time.Hour},
			{3 * time.Hour, 4 * time.Hour, 4 * time.Hour}, // its review is later anyway
			{10 * time.Minute, 9 * time.Minute, 10 * time.Minute},
			{10 * time.Minute, 30 * time.Minute, 30 * time.Minute},
		} {
			w.Exec(`UPDATE gc_review_after_defaults SET value = 0`)
			w.Exec(`UPDATE gc_review_after_defaults SET value = $1 WHERE event = 'existence_check'`, c.promise.Milliseconds())
			due := time.Now().Add(c.due).UnixMilli()
			w.Exec(`UPDATE gc_blob_review_queue SET review_after = $1`, due)
			w.Exec(`UPDATE gc_manifest_review_queue SET review_after = $1`, due)
			w.want(200, "HEAD", blob, nil, nil)
			w.want(200, "HEAD", manifest, nil, nil)
			for _, query := range []string{
				`SELECT review_after FROM gc_blob_review_queue WHERE digest = '` + sha256("layer") + `'`, `SELECT review_after FROM gc_manifest_review_queue`,
			} {
				var after int64
				if _, err := w.DB.Row(w.Context(), query, nil, &after); err != nil {
					w.Fatal(err)
				}
				if at := time.Until(time.UnixMilli(after)).Round(5 * time.Minute); at != c.want {
					w.Errorf("promised for %v, due in %v: reviewed in %v by %s", c.promise, c.due, at, query)
				}
			}
		}
	})
}

// TestPromise: a promise postpones a review that is due soon.
func TestPromise(t *testing.T) {
	each(t, func(w *world) {
		m := w.image("a", "", "layer", "")
		d := sha256("layer")
		overdue := func() {
			w.Exec(`UPDATE gc_blob_review_queue SET review_after = 0, claim_token = 'a review', claim_until = 1`)
			w.Exec(`UPDATE gc_manifest_review_queue SET review_after = 0, claim_token = 'a review', claim_until = 1`)
		}
		later := func(what, table, key string) {
			w.Helper()
			var after int64
			var claimed bool
			_, err := w.DB.Row(w.Context(), "SELECT review_after, claim_token IS NOT NULL FROM "+table+" WHERE "+key, nil, &after, &claimed)
			if err != nil {
				w.Fatal(err)
			}
			if until := time.Until(time.UnixMilli(after)); until < 59*time.Minute || claimed {
				w.Errorf("%s: reviewed in %v, claimed %v", what, until, claimed)
			}
		}
		blob := "digest = '" + d + "'"
		overdue()
		w.want(200, "HEAD", "/v2/a/blobs/"+d, nil, nil)
		later("HEAD of a blob", "gc_blob_review_queue", blob)
		overdue()
		w.want(201, "POST", "/v2/b/blobs/uploads/?mount="+d+"&from=a", nil, nil)
		later("mount", "gc_blob_review_queue", blob)
		overdue()
		w.push("c", "layer")
		later("push again", "gc_blob_review_queue", blob)
		overdue()
		w.want(200, "HEAD", "/v2/a/manifests/"+sha256(m), nil, nil)
		later("HEAD of a manifest", "gc_manifest_review_queue", "manifest LIKE '%@"+sha256(m)+"'")
		overdue()
		w.tag("a", "", ociManifest, m)
		later("push of a manifest again", "gc_manifest_review_queue", "manifest LIKE '%@"+sha256(m)+"'")
		// A GET promises nothing, and writes nothing.
		overdue()
		w.want(200, "GET", "/v2/a/blobs/"+d, nil, nil)
		w.want(200, "GET", "/v2/a/manifests/"+sha256(m), nil, nil)
		if n := len(w.Strings(`SELECT digest FROM gc_blob_review_queue WHERE review_after > 0 UNION ALL SELECT manifest FROM gc_manifest_review_queue WHERE review_after > 0`)); n != 0 {
			w.Errorf("GET put %d reviews off", n)
		}
	})
}
