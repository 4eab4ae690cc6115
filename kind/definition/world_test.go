package definition

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/exeunt/exeunt/access/accesstest"
	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// replica is one server: a registry, a controller that can be stopped, and the API.
type replica struct {
	t          *testing.T
	store      *store.Store
	kinds      *kind.Registry
	controller *Controller
	api        *api.API
	stop       func() // ends the controller and waits for it
}

// openStore runs a store until the test ends.
func openStore(t *testing.T, db *sqldb.DB) *store.Store {
	t.Helper()
	return storetest.Run(t, store.Options{DB: db, PollEvery: 20 * time.Millisecond})
}

// newReplica loads a controller on a store but does not run it.
func newReplica(t *testing.T, st *store.Store) *replica {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	definitions := custom.Definition()
	r := &replica{t: t, store: st, kinds: kind.NewRegistry(append(builtin.Kinds(), definitions))}
	r.controller = New(st, r.kinds, definitions, nil, log)
	if err := r.controller.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.api = api.New(api.Config{Store: st, Kinds: r.kinds, Access: accesstest.Control(), Admission: accesstest.NoAdmission{}, Logger: log})
	t.Cleanup(func() { r.api.Close(context.Background()) })
	return r
}

// run starts the controller.
func (r *replica) run() *replica {
	r.stop = storetest.Background(r.t, r.controller.Run)
	return r
}

// newWorld is one replica on a new database, with the namespace "shop".
func newWorld(t *testing.T, db *sqldb.DB) *replica {
	t.Helper()
	r := newReplica(t, openStore(t, db)).run()
	r.do(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	return r
}

// call sends a request as an administrator.
func (r *replica) call(method, path, body string) (int, string) {
	a := accesstest.Caller{TB: r.t, Handler: r.api}.Send(method, path, body)
	return a.Code, a.Body
}

// do sends a request whose status code is known, as an administrator.
func (r *replica) do(want int, method, path, body string) string {
	r.t.Helper()
	return accesstest.Caller{TB: r.t, Handler: r.api}.Want(want, method, path, body).Body
}

// answers waits until a GET answers with the code.
func (r *replica) answers(want int, path string) {
	r.t.Helper()
	dbtest.Until(r.t, fmt.Sprintf("GET %s answers %d", path, want), func() error {
		if code, body := r.call("GET", path, ""); code != want {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
}

const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// widget is a definition in the group test.dev.
func widget(plural, kind, properties string) string {
	return definitionOf("test.dev", plural, kind, properties)
}

func definitionOf(group, plural, kind, properties string) string {
	return fmt.Sprintf(`{"metadata":{"name":"%[2]s.%[1]s"},"spec":{"group":%[1]q,"scope":"Namespaced",
		"names":{"plural":%[2]q,"singular":%[5]q,"kind":%[3]q},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{%[4]s}}}}}}]}}`,
		group, plural, kind, properties, strings.TrimSuffix(plural, "s"))
}

// conditions returns a stored definition's conditions, or nil if there is none.
func (r *replica) conditions(name string) map[string]string {
	code, body := r.call("GET", crds+"/"+name, "")
	if code != http.StatusOK {
		return nil
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := json.Unmarshal([]byte(body), &crd); err != nil {
		r.t.Fatal(err)
	}
	all := map[string]string{}
	for _, c := range crd.Status.Conditions {
		all[string(c.Type)] = string(c.Status)
	}
	return all
}

// has waits for a condition.
func (r *replica) has(name, condition, status string) {
	r.t.Helper()
	dbtest.Until(r.t, fmt.Sprintf("%s is %s=%s", name, condition, status), func() error {
		if all := r.conditions(name); all[condition] != status {
			return fmt.Errorf("conditions %v", all)
		}
		return nil
	})
}
