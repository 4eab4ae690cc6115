package registry_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// untilDenied is a client that may do everything until its rights are removed.
type untilDenied struct {
	me
	denied *atomic.Bool
}

func (c untilDenied) May(string, string) error {
	if c.denied.Load() {
		return errors.New("no longer")
	}
	return nil
}

// TestRightsEndDuringUpload: a client that loses its rights while it sends a large body makes no
// blob of it.
func TestRightsEndDuringUpload(t *testing.T) {
	large := strings.Repeat("large", 50_000)
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		var denied atomic.Bool
		w := newWorld(t, db, registry.Config{Admit: func(*http.Request) (registry.Client, error) { return untilDenied{denied: &denied}, nil }})
		at := w.begin("a")
		for _, request := range [][2]string{{"PUT", at}, {"POST", "/v2/a/blobs/uploads/"}} {
			denied.Store(false)
			status, body := w.sendAfter(request[0], request[1]+"?digest="+sha256(large), large, func() { denied.Store(true) })
			if status != 403 || !strings.Contains(body, string(registry.Denied)) {
				t.Errorf("%s: %d %s", request[0], status, body)
			}
		}
		denied.Store(false)
		w.want(204, "DELETE", at, nil, nil)
		w.wantCounts("blobs 0, blob_uploads 0, manifests 0, tags 0")
		w.push("a", large)
	})
}
