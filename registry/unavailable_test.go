package registry_test

import (
	"strings"
	"testing"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestDatabaseGone cuts the connections to PostgreSQL: every request is answered
// with "retry later". When the connections work again, everything works, and no
// refused request has left anything.
func TestDatabaseGone(t *testing.T) {
	way := dbtest.NewWay(t)
	w := newWorld(t, dbtest.Connect(t, way.Database), registry.Config{})
	m := w.image("a", "v1", "layer", "")
	at := w.begin("a")
	before := w.counts()

	way.Close()
	w.want(200, "GET", "/v2/", nil, nil)
	for _, q := range []struct{ method, path, body string }{
		{"GET", "/v2/_catalog", ""},
		{"GET", "/v2/a/tags/list", ""},
		{"GET", "/v2/a/referrers/" + sha256(m), ""},
		{"GET", "/v2/a/blobs/" + sha256("layer"), ""},
		{"HEAD", "/v2/a/blobs/" + sha256("layer"), ""},
		{"DELETE", "/v2/a/blobs/" + sha256("layer"), ""},
		{"POST", "/v2/a/blobs/uploads/", ""},
		{"POST", "/v2/a/blobs/uploads/?digest=" + sha256("more"), "more"},
		{"POST", "/v2/new/blobs/uploads/?digest=" + sha256("more"), "more"},
		{"POST", "/v2/b/blobs/uploads/?mount=" + sha256("layer"), ""},
		{"GET", at, ""},
		{"PATCH", at, "more"},
		{"PUT", at + "?digest=" + sha256("more"), "more"},
		{"DELETE", at, ""},
		{"GET", "/v2/a/manifests/v1", ""},
		{"HEAD", "/v2/a/manifests/v1", ""},
		{"PUT", "/v2/a/manifests/v2", m},
		{"DELETE", "/v2/a/manifests/v1", ""},
	} {
		a := w.refuses(503, registry.Unavailable, q.method, q.path, headers{"Content-Type": ociManifest}, q.body)
		if a.header.Get("Retry-After") == "" || q.method != "HEAD" && !strings.Contains(a.body, "database does not answer") {
			t.Errorf("%s %s: %v %s", q.method, q.path, a.header, a.body)
		}
	}

	way.Open()
	dbtest.Await(t, "the registry serves again", func() bool { return w.send("GET", "/v2/a/manifests/v1", nil, nil).status == 200 })
	w.wantCounts(before)
	w.want(201, "PUT", at+"?digest="+sha256("more"), nil, "more")
	w.tag("a", "v2", ociManifest, m)
	w.check()
}

// TestDatabaseFull: a push fails cleanly, pulls still work, and the next push
// works.
func TestDatabaseFull(t *testing.T) {
	db := dbtest.OpenDB(t, sqldb.SQLite)
	w := newWorld(t, db, registry.Config{})
	m := w.image("a", "v1", "layer", "")
	dbtest.Fill(t, db)
	small := strings.Repeat("small", 10_000) // lives in the database
	large := m + strings.Repeat(" ", 100_000)
	for _, q := range []struct{ method, path, body string }{
		{"POST", "/v2/a/blobs/uploads/?digest=" + sha256(small), small},
		{"PUT", "/v2/a/manifests/v2", large},
	} {
		a := w.refuses(503, registry.Unavailable, q.method, q.path, headers{"Content-Type": ociManifest}, q.body)
		if a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "database is full") {
			t.Errorf("%s %s: %v %s", q.method, q.path, a.header, a.body)
		}
	}
	w.want(200, "GET", "/v2/a/manifests/v1", nil, nil)
	w.blob("a", sha256("layer"), "layer")
	dbtest.Empty(t, db)
	w.wantCounts("blobs 2, blob_uploads 0, manifests 1, tags 1") // nothing is left of either
	w.push("a", small)
	w.tag("a", "v2", ociManifest, large)
	w.check()
}
