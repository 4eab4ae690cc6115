package definition

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

const widgets = "/apis/test.dev/v1/namespaces/shop/widgets"

func TestEstablishedAndServed(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		r := newWorld(t, db)
		r.do(http.StatusNotFound, "GET", widgets, "")
		r.do(http.StatusCreated, "POST", crds, widget("widgets", "Widget", ""))
		r.has("widgets.test.dev", "Established", "True")
		r.answers(http.StatusOK, widgets)
		r.do(http.StatusCreated, "POST", widgets, `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"a"}}`)
		// A server that starts later serves it from its first request.
		later := newReplica(t, r.store)
		later.do(http.StatusOK, "GET", widgets+"/a", "")
	})
}

// TestRivals: the definition that had a name first holds it. The other waits and gets the name
// when it is free.
func TestRivals(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		r := newWorld(t, db)
		r.do(http.StatusCreated, "POST", crds, widget("widgets", "Widget", ""))
		r.answers(http.StatusOK, widgets)
		r.do(http.StatusCreated, "POST", crds, widget("gadgets", "Widget", ""))
		r.has("gadgets.test.dev", "NamesAccepted", "False")
		if all := r.conditions("gadgets.test.dev"); all["Established"] != "False" {
			t.Errorf("the rival's conditions are %v", all)
		}
		gadgets := strings.ReplaceAll(widgets, "widgets", "gadgets")
		r.do(http.StatusNotFound, "GET", gadgets, "")
		r.do(http.StatusCreated, "POST", widgets, `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"a"}}`)

		r.do(http.StatusOK, "DELETE", crds+"/widgets.test.dev", "")
		r.answers(http.StatusOK, gadgets)
		r.has("gadgets.test.dev", "NamesAccepted", "True")
		r.answers(http.StatusNotFound, widgets)
	})
}

// TestBuiltInNames: a definition with a built-in kind's name is never served, even if its status
// says so, and its deletion removes no objects of that kind.
func TestBuiltInNames(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		r := newWorld(t, db)
		const leases = "/apis/coordination.k8s.io/v1/namespaces/shop/leases"
		const name = "leases.coordination.k8s.io"
		gvr := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
		before, _ := r.kinds.Snapshot().Lookup(gvr)
		r.do(http.StatusCreated, "POST", leases, `{"metadata":{"name":"mine"}}`)

		body := definitionOf("coordination.k8s.io", "leases", "Lease", "")
		body = strings.Replace(body, `"metadata":{`, `"metadata":{"annotations":{"api-approved.kubernetes.io":"unapproved, a test"},`, 1)
		r.do(http.StatusCreated, "POST", crds, body)
		r.has(name, "NamesAccepted", "False")
		r.do(http.StatusOK, "PATCH", crds+"/"+name+"/status", `{"status":{"conditions":[{"type":"Established","status":"True","reason":"Forged","message":"by hand","lastTransitionTime":"2030-01-01T00:00:00Z"}],
			"acceptedNames":{"plural":"leases","kind":"Lease"},"storedVersions":["v1"]}}`)
		// The controller has seen it once it serves the next one.
		r.do(http.StatusCreated, "POST", crds, widget("widgets", "Widget", ""))
		r.answers(http.StatusOK, widgets)
		if now, _ := r.kinds.Snapshot().Lookup(gvr); now != before {
			t.Error("the built-in kind was replaced")
		}

		r.do(http.StatusOK, "DELETE", crds+"/"+name, "")
		r.answers(http.StatusNotFound, crds+"/"+name)
		r.do(http.StatusOK, "GET", leases+"/mine", "")
		if now, _ := r.kinds.Snapshot().Lookup(gvr); now != before {
			t.Error("the built-in kind went with the definition")
		}
	})
}

// TestSpecChange: a changed spec is served, and the kind.Version served before is replaced, not
// changed.
func TestSpecChange(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		r := newWorld(t, db)
		r.do(http.StatusCreated, "POST", crds, widget("widgets", "Widget", `"size":{"type":"integer"}`))
		r.answers(http.StatusOK, widgets)
		gvr := schema.GroupVersionResource{Group: "test.dev", Version: "v1", Resource: "widgets"}
		before, ok := r.kinds.Snapshot().Lookup(gvr)
		if !ok {
			t.Fatal("not served")
		}
		create := func(name string) string {
			return fmt.Sprintf(`{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":%q},"spec":{"size":7}}`, name)
		}
		r.do(http.StatusCreated, "POST", widgets, create("a"))

		// A change of metadata alone does not change the served kind.
		r.do(http.StatusOK, "PATCH", crds+"/widgets.test.dev", `{"metadata":{"labels":{"a":"b"}}}`)
		r.do(http.StatusOK, "PATCH", crds+"/widgets.test.dev", `{"spec":{"versions":[{"name":"v1","served":true,"storage":true,
			"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer","maximum":5}}}}}}}]}}`)
		dbtest.Until(r.t, "the new schema is enforced", func() error {
			if code, body := r.call("POST", widgets+"?dryRun=All", create("b")); code != http.StatusUnprocessableEntity {
				return fmt.Errorf("%d %s", code, body)
			}
			return nil
		})
		after, ok := r.kinds.Snapshot().Lookup(gvr)
		if !ok || after == before {
			t.Errorf("the version was not replaced (served: %v)", ok)
		}
		r.do(http.StatusOK, "GET", widgets+"/a", "")

		r.do(http.StatusOK, "PATCH", crds+"/widgets.test.dev", `{"spec":{"versions":[
			{"name":"v1","served":false,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}},
			{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
		r.answers(http.StatusNotFound, widgets)
		r.do(http.StatusOK, "GET", strings.Replace(widgets, "/v1/", "/v2/", 1)+"/a", "")
	})
}

// TestLoadForgets: a controller that compaction overtook reads all definitions again. It stops
// serving removed ones, and treats a new definition with an old name as new.
func TestLoadForgets(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		r := newWorld(t, db)
		for _, plural := range []string{"widgets", "gadgets"} {
			r.do(http.StatusCreated, "POST", crds, widget(plural, strings.ToUpper(plural[:1])+plural[1:len(plural)-1], ""))
			r.has(plural+".test.dev", "Established", "True")
		}
		late := newReplica(t, r.store)
		for _, plural := range []string{"widgets", "gadgets"} {
			late.do(http.StatusOK, "GET", strings.ReplaceAll(widgets, "widgets", plural), "")
			r.do(http.StatusOK, "DELETE", crds+"/"+plural+".test.dev", "")
			r.answers(http.StatusNotFound, crds+"/"+plural+".test.dev")
		}
		r.do(http.StatusCreated, "POST", crds, widget("gadgets", "Gadget", ""))
		r.has("gadgets.test.dev", "Established", "True")

		late.controller.known["gadgets.test.dev"].cleaning = true // it saw the deletion of the first
		if err := late.controller.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		late.do(http.StatusNotFound, "GET", widgets, "")
		late.do(http.StatusOK, "GET", strings.ReplaceAll(widgets, "widgets", "gadgets"), "")
		if late.controller.known["gadgets.test.dev"].cleaning {
			t.Error("the new definition is taken for the old one")
		}
	})
}

// TestStatusIsWrittenOnceItCanBe: a database that refuses a write for a while only delays the
// status of a definition.
func TestStatusIsWrittenOnceItCanBe(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		r := newWorld(t, db)
		r.stop()
		r.do(http.StatusCreated, "POST", crds, widget("widgets", "Widget", ""))
		refuse, allow := []string{
			`CREATE TRIGGER refuse BEFORE UPDATE ON objects BEGIN SELECT RAISE(ABORT, 'not now'); END`,
		}, `DROP TRIGGER refuse`
		if db.Engine() == sqldb.Postgres {
			refuse = []string{
				`CREATE FUNCTION refuse() RETURNS trigger AS 'BEGIN RAISE ''not now''; END' LANGUAGE plpgsql`,
				`CREATE TRIGGER refuse BEFORE UPDATE ON objects FOR EACH ROW EXECUTE FUNCTION refuse()`,
			}
			allow += ` ON objects`
		}
		sql := dbtest.NewSQL(t, db)
		sql.Transact(func(b *sqldb.Batch) {
			for _, statement := range refuse {
				b.Exec(statement)
			}
		})
		c := newReplica(t, r.store)
		if c.controller.settle(t.Context()) {
			t.Fatal("the database accepted the status: the test is void")
		}
		c.run()
		sql.Exec(allow)
		c.has("widgets.test.dev", "Established", "True")
	})
}

// stored returns the keys of the stored objects of a kind.
func stored(t *testing.T, st *store.Store, kind string) (keys []object.Key) {
	t.Helper()
	listing, err := st.List(t.Context(), store.ListRequest{Kind: kind})
	if err != nil {
		t.Fatal(err)
	}
	for listing.Next() {
		keys = append(keys, listing.Object().Key)
	}
	if err := listing.Err(); err != nil {
		t.Fatal(err)
	}
	return keys
}
