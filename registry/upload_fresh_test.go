package registry_test

import (
	"fmt"
	"testing"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestUploadNothingSentYet: an upload without bytes behaves like any other, with
// or without a row.
func TestUploadNothingSentYet(t *testing.T) {
	eachSmall(t, func(w *world) {
		at := w.begin("a")
		for range 2 {
			if a := w.want(204, "GET", at, nil, nil); a.header.Get("Range") != "0-0" || a.header.Get("Location") != at {
				w.Errorf("nothing was sent, and the answer is %v", a.header)
			}
		}
		elsewhere := "/v2/b" + at[len("/v2/a"):]
		w.push("b", "so that there is a repository")
		for _, method := range []string{"GET", "PATCH", "DELETE"} {
			w.refuses(404, registry.BlobUploadUnknown, method, elsewhere, nil, "x")
		}
		w.refuses(404, registry.BlobUploadUnknown, "PUT", elsewhere+"?digest="+sha256("x"), nil, "x")
		w.want(204, "DELETE", at, nil, nil)
		w.refuses(404, registry.BlobUploadUnknown, "GET", at, nil, nil)
		w.refuses(404, registry.BlobUploadUnknown, "PUT", at+"?digest="+sha256("x"), nil, "x")
	})
}

// TestUploadsNothingSentYetAreBounded: above the limit uploads get rows, and
// work the same.
func TestUploadsNothingSentYetAreBounded(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), registry.Config{})
	var places []string
	for range 4096 + 3 {
		places = append(places, w.begin("a"))
	}
	w.wantCounts("blobs 0, blob_uploads 3, manifests 0, tags 0")
	for i, at := range []string{places[0], places[len(places)-1]} {
		content := fmt.Sprint("content ", i)
		w.want(201, "PUT", at+"?digest="+sha256(content), nil, content)
		w.blob("a", sha256(content), content)
	}
	w.wantCounts("blobs 2, blob_uploads 2, manifests 0, tags 0")
	w.check()
}

// TestUploadNothingSentYetAfterARestart: after a restart on SQLite the client is
// told to start again. On PostgreSQL, where any replica may get the next
// request, the upload continues.
func TestUploadNothingSentYetAfterARestart(t *testing.T) {
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		at := newWorld(t, db, registry.Config{}).begin("a")
		again := newWorld(t, db, registry.Config{})
		if db.Engine() == sqldb.SQLite {
			again.refuses(404, registry.BlobUploadUnknown, "PUT", at+"?digest="+sha256("x"), nil, "x")
			at = again.begin("a")
		}
		again.want(201, "PUT", at+"?digest="+sha256("x"), nil, "x")
		again.blob("a", sha256("x"), "x")
	})
}
