package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	migrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/access/accesstest"
	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/kind/definition"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const (
	migrations  = "/apis/storagemigration.k8s.io/v1/storageversionmigrations"
	definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	gearsCRD    = definitions + "/gears.example.com"
	gears       = "/apis/example.com/v1/gears"
)

// world is a replica with a migration controller that does not run by itself.
type world struct {
	*testing.T
	store *store.Store
	kinds *kind.Registry
	crds  *kind.Kind
	api   *api.API
	*Controller
}

func newWorld(t *testing.T, st *store.Store) *world {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	crds := custom.Definition()
	w := &world{T: t, store: st, crds: crds, kinds: kind.NewRegistry(append(builtin.Kinds(), crds))}
	follower := definition.New(st, w.kinds, crds, nil, log)
	if err := follower.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.api = api.New(api.Config{Store: st, Kinds: w.kinds, Access: accesstest.Control(), Admission: accesstest.NoAdmission{}, Logger: log})
	t.Cleanup(func() { w.api.Close(context.Background()) })
	storetest.Background(t, follower.Run)
	var err error
	if w.Controller, err = New(st, w.kinds, crds, log); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) do(want int, method, path, body string) string {
	w.Helper()
	return accesstest.Caller{TB: w, Handler: w.api}.Want(want, method, path, body).Body
}

// define creates the kind Gear in v1, with some objects.
func (w *world) define(objects int) {
	w.Helper()
	w.do(http.StatusCreated, "POST", definitions, crd("v1", "v1"))
	dbtest.Await(w, "gears are served", func() bool { return w.served(metav1.GroupResource{Group: "example.com", Resource: "gears"}) != nil })
	for i := range objects {
		w.do(http.StatusCreated, "POST", gears, fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Gear","metadata":{"name":"g%03d"},"spec":{"teeth":%d}}`, i, i))
	}
}

// change makes v2 the storage version.
func (w *world) change() {
	w.Helper()
	var current map[string]any
	if err := json.Unmarshal([]byte(w.do(http.StatusOK, "GET", gearsCRD, "")), &current); err != nil {
		w.Fatal(err)
	}
	version := current["metadata"].(map[string]any)["resourceVersion"].(string)
	w.do(http.StatusOK, "PUT", gearsCRD, strings.Replace(crd("v2", "v1", "v2"), `"name":"gears.example.com"`, `"name":"gears.example.com","resourceVersion":"`+version+`"`, 1))
}

func crd(storage string, versions ...string) string {
	var list []string
	for _, name := range versions {
		list = append(list, fmt.Sprintf(`{"name":%q,"served":true,"storage":%v,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"teeth":{"type":"integer"}}}}}}}`,
			name, name == storage))
	}
	return `{"metadata":{"name":"gears.example.com"},"spec":{"group":"example.com","scope":"Cluster","names":{"plural":"gears","kind":"Gear"},"versions":[` + strings.Join(list, ",") + `]}}`
}

// versions counts the objects by the version that their bodies name.
func (w *world) versions() map[string]int {
	w.Helper()
	out := map[string]int{}
	listing, err := w.store.List(w.Context(), store.ListRequest{Kind: "gears.example.com"})
	if err != nil {
		w.Fatal(err)
	}
	for listing.Next() {
		version, _, err := object.CutVersion(listing.Object().Body)
		if err != nil {
			w.Fatal(err)
		}
		out[version]++
	}
	return out
}

func (w *world) start(name string) {
	w.Helper()
	w.do(http.StatusCreated, "POST", migrations, fmt.Sprintf(`{"apiVersion":"storagemigration.k8s.io/v1","kind":"StorageVersionMigration","metadata":{"name":%q},"spec":{"resource":{"group":"example.com","resource":"gears"}}}`, name))
}

// conditions returns the reasons of a migration's conditions by type, with their status.
func (w *world) conditions(name string) map[string]string {
	w.Helper()
	var m migrationv1.StorageVersionMigration
	if err := json.Unmarshal([]byte(w.do(http.StatusOK, "GET", migrations+"/"+name, "")), &m); err != nil {
		w.Fatal(err)
	}
	out := map[string]string{}
	for _, c := range m.Status.Conditions {
		out[c.Type] = string(c.Status) + " " + c.Reason
	}
	return out
}

func (w *world) runOne() bool {
	w.Helper()
	waiting, err := w.RunOne(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return waiting
}

func eachEngine(t *testing.T, test func(w *world)) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		test(newWorld(t, storetest.Run(t, store.Options{DB: db, PollEvery: 20 * time.Millisecond})))
	})
}

// TestMigration rewrites more than a page of objects. The process dies after it has
// rewritten some of them; another replica ends the migration. Another migration of the same
// resource waits.
func TestMigration(t *testing.T) {
	eachEngine(t, func(w *world) {
		w.define(page + 10)
		w.change()
		dbtest.Await(w, "v2 is stored", func() bool {
			return w.served(metav1.GroupResource{Group: "example.com", Resource: "gears"}).StoredAs == "v2"
		})
		w.start("first")
		w.dieHalfway("first", 100)
		if got := w.versions(); got[""] != page-90 || got["v2"] != 100 {
			w.Fatalf("stored versions are %v", got)
		}
		w.start("second")
		other := newWorld(w.T, w.store)
		if other.runOne() {
			w.Error("the migration waits for something")
		}
		if got := w.versions(); got["v2"] != page+10 {
			w.Errorf("stored versions are %v", got)
		}
		want := map[string]string{"Running": "False MigrationCompleted", "Succeeded": "True StorageVersionMigrationSucceeded"}
		if got := w.conditions("first"); fmt.Sprint(got) != fmt.Sprint(want) {
			w.Errorf("conditions are %v", got)
		}
		if got := w.conditions("second"); len(got) != 0 {
			w.Errorf("the second migration began too early: %v", got)
		}
		other.runOne()
		if got := w.conditions("second"); fmt.Sprint(got) != fmt.Sprint(want) {
			w.Errorf("conditions of the second are %v", got)
		}
		after := w.do(http.StatusOK, "GET", gearsCRD, "")
		if got := gjson.Get(after, "status.storedVersions").Raw; got != `["v2"]` {
			w.Errorf("storedVersions = %s", got)
		}
		if got := gjson.Get(after, `status.conditions.#(type=="StorageMigrating").reason`).String(); got != "MigrationSucceeded" {
			w.Errorf("StorageMigrating: %s", got)
		}
		if got := gjson.Get(w.do(http.StatusOK, "GET", "/apis/example.com/v2/gears/g007", ""), "spec.teeth").Int(); got != 7 {
			w.Errorf("g007 has %d teeth", got)
		}
	})
}

// dieHalfway begins a migration and rewrites some objects.
func (w *world) dieHalfway(name string, objects int) {
	w.Helper()
	all, err := w.list(w.Context())
	if err != nil || len(all) != 1 || all[0].Name != name {
		w.Fatalf("migrations are %v, %v", all, err)
	}
	k := w.served(all[0].Spec.Resource)
	if err := w.begin(w.Context(), &all[0], k); err != nil {
		w.Fatal(err)
	}
	listing, err := w.store.List(w.Context(), store.ListRequest{Kind: k.Storage, Limit: objects})
	if err != nil {
		w.Fatal(err)
	}
	var old []object.Object
	for listing.Next() {
		old = append(old, listing.Object())
	}
	if err := w.rewrite(w.Context(), k.Stored(), old); err != nil {
		w.Fatal(err)
	}
}

// TestMigrationWaitsForTheDefinition: a replica that serves an older definition does not
// migrate: it would write the old storage version.
func TestMigrationWaitsForTheDefinition(t *testing.T) {
	w := newWorld(t, storetest.Run(t, store.Options{DB: dbtest.OpenDB(t, sqldb.SQLite), PollEvery: 20 * time.Millisecond}))
	w.define(3)
	behind := kind.NewRegistry(w.kinds.Snapshot().Kinds)
	w.change()
	w.start("m")
	late, err := New(w.store, behind, w.crds, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if waiting, err := late.RunOne(t.Context()); !waiting || err != nil || len(w.conditions("m")) != 0 {
		t.Errorf("waiting = %v, %v; conditions are %v", waiting, err, w.conditions("m"))
	}
}

// TestDefinitionChangesDuringMigration: the stored versions stay as they are.
func TestDefinitionChangesDuringMigration(t *testing.T) {
	w := newWorld(t, storetest.Run(t, store.Options{DB: dbtest.OpenDB(t, sqldb.SQLite), PollEvery: 20 * time.Millisecond}))
	w.define(3)
	w.start("m")
	w.dieHalfway("m", 1)
	w.change()
	dbtest.Await(w, "the migration ends", func() bool { return !w.runOne() })
	after := w.do(http.StatusOK, "GET", gearsCRD, "")
	if got := gjson.Get(after, "status.storedVersions").Raw; got != `["v1","v2"]` {
		t.Errorf("storedVersions = %s", got)
	}
	if got := gjson.Get(after, `status.conditions.#(type=="StorageMigrating").message`).String(); !strings.Contains(got, "generation mismatch") {
		t.Errorf("StorageMigrating: %s", got)
	}
}

// TestMigrationOfNothing: a resource that is not served fails after a minute. A built-in
// kind has nothing to rewrite.
func TestMigrationOfNothing(t *testing.T) {
	w := newWorld(t, storetest.Run(t, store.Options{DB: dbtest.OpenDB(t, sqldb.SQLite), PollEvery: 20 * time.Millisecond}))
	w.start("m")
	if !w.runOne() || len(w.conditions("m")) != 0 {
		t.Errorf("conditions are %v before the kind is there", w.conditions("m"))
	}
	w.now = func() time.Time { return time.Now().Add(unknownFor + time.Second) }
	w.runOne()
	if got := w.conditions("m"); got["Failed"] != "True StorageVersionMigrationFailed" {
		t.Errorf("conditions are %v", got)
	}
	w.do(http.StatusCreated, "POST", migrations, `{"metadata":{"name":"core"},"spec":{"resource":{"resource":"namespaces"}}}`)
	before := w.do(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	w.runOne()
	if got := w.conditions("core"); got["Succeeded"] != "True StorageVersionMigrationSucceeded" {
		t.Errorf("conditions are %v", got)
	}
	if after := w.do(http.StatusOK, "GET", "/api/v1/namespaces/shop", ""); after != before {
		t.Errorf("the namespace was rewritten: %s, was %s", after, before)
	}
}
