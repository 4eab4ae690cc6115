package registry_test

import (
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestQuotas: uploads under way, per namespace and in all, and the size of a blob have
// limits; a cancelled upload makes room.
func TestQuotas(t *testing.T) {
	t.Parallel()
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, db, registry.Config{Quotas: registry.Quotas{BlobBytes: 10, Uploads: 3, NamespaceUploads: 2}})
		const start = "/blobs/uploads/"
		first := w.want(202, "POST", "/v2/shop/web"+start, nil, nil).header.Get("Location")
		w.want(202, "POST", "/v2/shop/api"+start, nil, nil)
		w.refuses(429, registry.TooManyRequests, "POST", "/v2/shop/new"+start, nil, nil)
		other := w.want(202, "POST", "/v2/other/web"+start, nil, nil).header.Get("Location")
		w.refuses(429, registry.TooManyRequests, "POST", "/v2/third/web"+start, nil, nil)
		w.want(204, "DELETE", first, nil, nil)
		ten, eleven := "0123456789", "0123456789a"
		w.refuses(403, registry.Denied, "POST", "/v2/shop/web"+start+"?digest="+digest.FromString(eleven).String(), nil, eleven)
		w.want(201, "POST", "/v2/shop/web"+start+"?digest="+digest.FromString(ten).String(), nil, ten)
		w.want(202, "PATCH", other, nil, "01234567")
		w.want(202, "PATCH", other, nil, "89")
		w.refuses(403, registry.Denied, "PATCH", other, nil, "a")
	})
}
