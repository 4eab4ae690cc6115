package api

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

// TestUpdatesWhileFull: while the disk is full, what grows is refused, and no client can use up what is kept for deletions
// by updates, of whatever kind. Deletions, finalizers that are removed and dry runs go on.
func TestUpdatesWhileFull(t *testing.T) {
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, store.Options{DB: db})
		now, full := time.Now(), atomic.Bool{}
		w.api.Now, w.api.Full = func() time.Time { return now }, full.Load
		const size = 100_000
		text := func(i, length int) string { return strings.Repeat(string(rune('a'+i%26)), length) }
		object := func(name string, i, length int) string {
			return fmt.Sprintf(`{"metadata":{"name":%q,"finalizers":["x.dev/wait","x.dev/too"]},"data":{"text":%q}}`, name, text(i, length))
		}
		for _, name := range []string{"same", "shrinks", "deleted", "small"} {
			w.want(http.StatusCreated, "POST", configMaps, object(name, 0, size))
		}
		const pods = "/api/v1/namespaces/shop/pods"
		w.want(http.StatusCreated, "POST", pods, `{"metadata":{"name":"pod"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
		w.want(http.StatusOK, "DELETE", configMaps+"/deleted", "")

		full.Store(true)
		refused := func(method, path, body string, headers ...string) {
			t.Helper()
			if r := w.send(method, path, body, headers...); r.code != http.StatusInsufficientStorage {
				t.Errorf("%s %s: %d %.200s", method, path, r.code, r.body)
			}
		}
		refused("POST", configMaps, `{"metadata":{"name":"new"}}`)
		refused("PUT", "/apis/coordination.k8s.io/v1/namespaces/shop/leases/new", `{"metadata":{"name":"new"},"spec":{}}`)
		refused("PUT", configMaps+"/same", object("same", 0, size+1))
		w.want(http.StatusCreated, "POST", configMaps+"?dryRun=All", `{"metadata":{"name":"new"}}`)
		w.want(http.StatusOK, "PUT", configMaps+"/same?dryRun=All", object("same", 0, size+1))

		// Each of these writes some 100,000 bytes a time. Together they write a megabyte.
		written := 0
		for i := 1; i < 20; i++ {
			for _, ask := range [][]string{
				{"PUT", configMaps + "/same", object("same", i, size)},
				{"PUT", configMaps + "/shrinks", object("shrinks", i, size-i)},
				{"PATCH", configMaps + "/deleted", fmt.Sprintf(`{"data":{"text":%q}}`, text(i, size+i)), mergePatch},
				{"PATCH", pods + "/pod/status", fmt.Sprintf(`{"status":{"message":%q}}`, text(i, size+i)), mergePatch},
			} {
				switch r := w.send(ask[0], ask[1], ask[2], ask[3:]...); r.code {
				case http.StatusOK:
					written += size
				case http.StatusInsufficientStorage:
				default:
					t.Fatalf("%s %s: %d %.200s", ask[0], ask[1], r.code, r.body)
				}
			}
			if i == 1 && written != 4*size {
				t.Fatalf("%d bytes of the first four updates were written", written)
			}
		}
		if written > 1<<20 {
			t.Errorf("%d bytes were written on a full disk", written)
		}
		w.want(http.StatusOK, "PATCH", configMaps+"/small", `{"metadata":{"finalizers":["x.dev/wait"]}}`, mergePatch)
		w.want(http.StatusOK, "DELETE", configMaps+"/small", "")
		for _, name := range []string{"small", "deleted"} {
			w.want(http.StatusOK, "PATCH", configMaps+"/"+name, `{"metadata":{"finalizers":null}}`, mergePatch)
			w.want(http.StatusNotFound, "GET", configMaps+"/"+name, "")
		}
		w.want(http.StatusOK, "DELETE", pods+"/pod?gracePeriodSeconds=0", "")
		refused("PUT", configMaps+"/same", object("same", 0, size))

		now = now.Add(10 * time.Second)
		w.want(http.StatusOK, "PUT", configMaps+"/same", object("same", 0, size))
		refused("PUT", configMaps+"/same", object("same", 100, size*10))
		full.Store(false)
		w.want(http.StatusOK, "PUT", configMaps+"/same", object("same", 100, size*5))
		w.want(http.StatusCreated, "POST", configMaps, `{"metadata":{"name":"new"}}`)
	})
}
