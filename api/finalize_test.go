package api

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

const (
	fullNS  = "/api/v1/namespaces/full"
	release = `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"full"},"spec":{"finalizers":[]}}`
)

// TestFinalizeKeepsContent: /finalize does not remove a namespace before its content, whether
// the guard holds it or not, and whether it is called before or after the delete.
func TestFinalizeKeepsContent(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, store.Options{DB: db})
		for _, annotations := range []string{`{}`, `{"lifecycle.exeunt.dev/max-cascade":"1"}`} {
			w.want(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"full","annotations":`+annotations+`}}`)
			w.want(http.StatusCreated, "POST", fullNS+"/configmaps", `{"metadata":{"name":"content"}}`)
			// Of an ACTIVE namespace it removes the finalizer, as in Kubernetes; a delete sets it again.
			w.want(http.StatusOK, "PUT", fullNS+"/finalize", release)
			if f := w.want(http.StatusOK, "DELETE", fullNS, "").get("spec.finalizers"); f != `["kubernetes"]` {
				t.Errorf("finalizers of the terminating namespace: %s", f)
			}
			for _, c := range [][]string{
				{"PUT", release, "json"}, {"PATCH", `{"spec":{"finalizers":null}}`, "merge-patch+json"},
				{"PATCH", `[{"op":"remove","path":"/spec/finalizers"}]`, "json-patch+json"},
			} {
				r := w.send(c[0], fullNS+"/finalize", c[1], "Content-Type: application/"+c[2])
				if r.code != http.StatusUnprocessableEntity || !strings.Contains(r.get("message"), "spec.finalizers: Forbidden: the namespace has content, which would be left behind (configmaps)") {
					t.Errorf("%s: %d %s", c[1], r.code, r.body)
				}
			}
			w.want(http.StatusOK, "GET", fullNS, "")
			w.want(http.StatusOK, "DELETE", fullNS+"/configmaps/content", "")
			w.want(http.StatusOK, "PUT", fullNS+"/finalize", release)
			if annotations == `{}` { // nothing else holds it
				w.want(http.StatusNotFound, "GET", fullNS, "")
			}
		}
	})
}

// TestFinalizeRaces: clients create objects while others delete and finalize their namespace.
// When the namespace is gone, it is empty.
func TestFinalizeRaces(t *testing.T) {
	t.Parallel()
	dbtest.Both(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, store.Options{DB: db})
		for round := range 10 {
			w.want(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"full"}}`)
			var clients sync.WaitGroup
			for client := range 3 {
				clients.Go(func() {
					for i := range 20 {
						if r := w.send("POST", fullNS+"/configmaps", fmt.Sprintf(`{"metadata":{"name":"c-%d-%d"}}`, client, i)); r.code != http.StatusCreated {
							return
						}
					}
				})
			}
			clients.Go(func() {
				w.send("PUT", fullNS+"/finalize", release)
				w.send("DELETE", fullNS, "")
				for range 5 {
					w.send("PUT", fullNS+"/finalize", release)
				}
			})
			clients.Wait()
			dbtest.Until(w.t, "the namespace is gone", func() error {
				found := gjson.Get(w.want(http.StatusOK, "GET", fullNS+"/configmaps", "").body, "items.#.metadata.name").Array()
				if r := w.send("GET", fullNS, ""); r.code == http.StatusNotFound {
					if len(found) > 0 {
						t.Fatalf("round %d: %d objects are in a namespace that does not exist", round, len(found))
					}
					return nil
				}
				for _, name := range found { // no collector runs
					w.want(http.StatusOK, "DELETE", fullNS+"/configmaps/"+name.String(), "")
				}
				return fmt.Errorf("finalize: %d", w.send("PUT", fullNS+"/finalize", release).code)
			})
		}
	})
}
