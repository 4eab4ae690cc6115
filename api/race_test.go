package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

// These tests force the races of docs/spec/objects.md through HTTP: a request is stopped
// after it has read its input and before it is decided, and other requests run in between.

// race is a world in which other requests can overtake a request. They run in the world
// rival: on PostgreSQL another replica, on SQLite the same process.
type race struct {
	*world
	rival *world
}

func eachRace(t *testing.T, test func(t *testing.T, r race)) {
	t.Helper()
	t.Run(string(sqldb.SQLite), func(t *testing.T) {
		w := newWorld(t, store.Options{})
		test(t, race{w, w})
	})
	t.Run(string(sqldb.Postgres), func(t *testing.T) {
		database := dbtest.Open(t, sqldb.Postgres)
		w := newWorld(t, store.Options{DB: dbtest.Connect(t, database)})
		test(t, race{w, newReplica(t, store.Options{DB: dbtest.Connect(t, database)})})
	})
}

// overtaken is a strategy that runs other requests when a request passes it. Those are not
// overtaken themselves.
type overtaken struct {
	lifecycle.Strategy
	mu      sync.Mutex
	acts    []func(name string) // one for each pass to come; guarded by mu
	passes  int                 // guarded by mu
	nesting bool                // guarded by mu
}

func (o *overtaken) Create(ctx context.Context, obj runtime.Object) ([]string, field.ErrorList) {
	o.pass(obj)
	return o.Strategy.Create(ctx, obj)
}

func (o *overtaken) Update(ctx context.Context, obj, old runtime.Object) ([]string, field.ErrorList) {
	o.pass(obj)
	return o.Strategy.Update(ctx, obj, old)
}

func (o *overtaken) pass(obj runtime.Object) {
	o.mu.Lock()
	if o.nesting {
		o.mu.Unlock()
		return
	}
	o.passes++
	var act func(string)
	if len(o.acts) > 0 {
		act, o.acts = o.acts[0], o.acts[1:]
	}
	o.nesting = act != nil
	o.mu.Unlock()
	if act == nil {
		return
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	act(accessor.GetName())
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nesting = false
}

// overtake makes the next passes of requests for a resource run one act each. The returned
// function says how many passes there were, which is how often a request was computed.
func (r race) overtake(gvr schema.GroupVersionResource, acts ...func(name string)) (passes func() int) {
	r.t.Helper()
	v, ok := r.api.Kinds.Snapshot().Lookup(gvr)
	if !ok {
		r.t.Fatalf("%v is not served", gvr)
	}
	e, err := r.api.endpoint(v)
	if err != nil {
		r.t.Fatal(err)
	}
	o := &overtaken{Strategy: v.Strategy, acts: acts}
	e.main.strategy = o
	return func() int {
		o.mu.Lock()
		defer o.mu.Unlock()
		if len(o.acts) > 0 {
			r.t.Errorf("%d acts of other clients did not run", len(o.acts))
		}
		return o.passes
	}
}

var (
	configMapResource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	leaseResource     = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	widgetResource    = schema.GroupVersionResource{Group: "test.dev", Version: "v1", Resource: "widgets"}
)

const mergePatch = "Content-Type: application/merge-patch+json"

// TestGeneratedNameIsDrawnAgain: before the create is decided, the generated name is taken by
// a live object or by one that is being deleted.
func TestGeneratedNameIsDrawnAgain(t *testing.T) {
	eachRace(t, func(t *testing.T, r race) {
		var taken []string
		take := func(name string) { r.rival.configMap(name, ""); taken = append(taken, name) }
		hold := func(name string) {
			r.rival.configMap(name, `,"finalizers":["test.dev/hold"]`)
			r.rival.want(http.StatusOK, "DELETE", configMaps+"/"+name, "")
			taken = append(taken, name)
		}
		passes := r.overtake(configMapResource, take, hold, take)
		got := r.want(http.StatusCreated, "POST", configMaps, `{"metadata":{"generateName":"a-"}}`).get("metadata.name")
		if slices.Contains(taken, got) || !strings.HasPrefix(got, "a-") || passes() != 4 {
			t.Errorf("created %q in %d passes, after %q", got, passes(), taken)
		}

		// If every name is taken, the client gets an error and can retry.
		passes = r.overtake(configMapResource, slices.Repeat([]func(string){take}, generateAttempts)...)
		refused := r.want(http.StatusConflict, "POST", configMaps, `{"metadata":{"generateName":"b-"}}`)
		if refused.get("reason") != "AlreadyExists" || passes() != generateAttempts {
			t.Errorf("after %d passes: %s", passes(), refused.body)
		}
	})
}

// TestCreateIsOvertaken: the name, the namespace or the kind changes while a create is under
// way.
func TestCreateIsOvertaken(t *testing.T) {
	eachRace(t, func(t *testing.T, r race) {
		const body = `{"metadata":{"name":"a"}}`
		remove := func(string) { r.rival.want(http.StatusOK, "DELETE", configMaps+"/a", "") }

		r.overtake(configMapResource, func(string) { r.rival.configMap("a", "") })
		refused := r.want(http.StatusConflict, "POST", configMaps, body)
		if refused.get("reason") != "AlreadyExists" {
			t.Errorf("a create whose name was taken meanwhile: %s", refused.body)
		}
		first := r.want(http.StatusOK, "GET", configMaps+"/a", "").get("metadata.uid")

		r.overtake(configMapResource, remove)
		if second := r.want(http.StatusCreated, "POST", configMaps, body).get("metadata.uid"); second == first || second == "" {
			t.Errorf("the name was freed meanwhile; it was %s and is %s", first, second)
		}

		r.patch(configMaps+"/a", `{"metadata":{"finalizers":["test.dev/hold"]}}`)
		r.overtake(configMapResource, remove)
		if got := r.want(http.StatusConflict, "POST", configMaps, body).get("message"); !strings.HasPrefix(got, "object is being deleted") {
			t.Errorf("the holder of the name is being deleted: %s", got)
		}
	})
}

func TestCreateIsOvertakenByItsNamespace(t *testing.T) {
	eachRace(t, func(t *testing.T, r race) {
		r.overtake(configMapResource, func(string) { r.rival.want(http.StatusOK, "DELETE", "/api/v1/namespaces/shop", "") })
		late := r.want(http.StatusForbidden, "POST", configMaps, `{"metadata":{"name":"a"}}`)
		if late.get("details.causes.0.reason") != "NamespaceTerminating" {
			t.Errorf("a create in a namespace that is being deleted: %s", late.body)
		}
		r.overtake(configMapResource, func(string) {
			r.rival.want(http.StatusOK, "PUT", "/api/v1/namespaces/shop/finalize", `{"metadata":{"name":"shop"},"spec":{"finalizers":[]}}`)
		})
		if late = r.want(http.StatusNotFound, "POST", configMaps, `{"metadata":{"name":"a"}}`); late.get("details.kind") != "namespaces" {
			t.Errorf("a create in a removed namespace: %s", late.body)
		}
	})
}

func TestCreateIsOvertakenByItsDefinition(t *testing.T) {
	eachRace(t, func(t *testing.T, r race) {
		r.define()
		const definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.test.dev"
		passes := r.overtake(widgetResource, func(string) {
			r.rival.patch(definition, `{"metadata":{"finalizers":["test.dev/hold"]}}`)
			r.rival.want(http.StatusOK, "DELETE", definition, "")
		})
		r.want(http.StatusForbidden, "POST", widgets, `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"a"}}`)
		if passes() != 1 {
			t.Errorf("the create passed %d times", passes())
		}
	})
}

// TestUpdateIsOvertaken by another update: no change is lost, and a client that named a
// version gets a conflict.
func TestUpdateIsOvertaken(t *testing.T) {
	eachRace(t, func(t *testing.T, r race) {
		r.configMap("a", "")
		other := func(string) { r.rival.patch(configMaps+"/a", `{"data":{"theirs":"1"}}`) }

		passes := r.overtake(configMapResource, other)
		both := r.want(http.StatusOK, "PATCH", configMaps+"/a", `{"data":{"ours":"1"}}`, mergePatch)
		if data := gjson.Get(both.body, "data").String(); gjson.Get(data, "ours").String() != "1" || gjson.Get(data, "theirs").String() != "1" || passes() != 2 {
			t.Errorf("after %d passes: %s", passes(), both.body)
		}

		// A PUT without a version replaces the object as it is at the decision.
		passes = r.overtake(configMapResource, func(string) { r.rival.patch(configMaps+"/a", `{"data":{"theirs":"2"}}`) })
		replaced := r.want(http.StatusOK, "PUT", configMaps+"/a", `{"metadata":{"name":"a"},"data":{"ours":"2"}}`)
		if got := gjson.Get(replaced.body, "data").Raw; got != `{"ours":"2"}` || passes() != 2 {
			t.Errorf("after %d passes: %s", passes(), got)
		}

		// A PUT with a version that was current at its start gets a conflict.
		version := replaced.get("metadata.resourceVersion")
		passes = r.overtake(configMapResource, other)
		refused := r.want(http.StatusConflict, "PUT", configMaps+"/a", fmt.Sprintf(`{"metadata":{"name":"a","resourceVersion":%q}}`, version))
		if refused.get("reason") != "Conflict" || passes() != 1 {
			t.Errorf("after %d passes: %s", passes(), refused.body)
		}
		if got := r.want(http.StatusOK, "GET", configMaps+"/a", "").get("data"); got != `{"ours":"2","theirs":"1"}` {
			t.Errorf("the refused update left %s", got)
		}
	})
}

// TestUpdateIsOvertakenByDelete: the update is repeated on the object that is being deleted,
// by the rules for such objects, or gets a 404.
func TestUpdateIsOvertakenByDelete(t *testing.T) {
	const path = configMaps + "/a"
	for _, test := range []struct {
		name, finalizers string
		recreated        bool
		method, body     string
		code, passes     int
		message          string // part of the error message
	}{
		{"a change goes on", `"test.dev/hold"`, false, "PATCH", `{"data":{"k":"v"}}`, 200, 2, ""},
		{"a finalizer may not come", `"test.dev/hold"`, false, "PATCH", `{"metadata":{"finalizers":["test.dev/hold","test.dev/late"]}}`, 422, 2, "no new finalizers can be added"},
		{"the last finalizer takes the object along", `"test.dev/hold"`, false, "PATCH", `{"metadata":{"finalizers":null}}`, 200, 2, ""},
		{"nothing is left to patch", "", false, "PATCH", `{"data":{"k":"v"}}`, 404, 1, "not found"},
		{"nothing is left to put", "", false, "PUT", `{"metadata":{"name":"a"},"data":{"k":"v"}}`, 404, 1, "not found"},
		{"another has the name and no uid was named", "", true, "PATCH", `{"data":{"k":"v"}}`, 200, 2, ""},
		{"another has the name", "", true, "PUT", `{"metadata":{"name":"a","uid":"UID"},"data":{"k":"v"}}`, 409, 1, "Precondition failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachRace(t, func(t *testing.T, r race) {
				r.configMap("a", `,"finalizers":[`+test.finalizers+`]`)
				uid := r.want(http.StatusOK, "GET", path, "").get("metadata.uid")
				passes := r.overtake(configMapResource, func(string) {
					r.rival.want(http.StatusOK, "DELETE", path, "")
					if test.recreated {
						r.rival.configMap("a", "")
					}
				})
				var headers []string
				if test.method == "PATCH" {
					headers = []string{mergePatch}
				}
				got := r.want(test.code, test.method, path, strings.ReplaceAll(test.body, "UID", uid), headers...)
				if passes() != test.passes || !strings.Contains(got.get("message"), test.message) {
					t.Errorf("after %d passes: %s", passes(), got.body)
				}
				if test.code == 200 && !test.recreated && got.get("metadata.deletionTimestamp") == "" {
					t.Errorf("the object is not being deleted: %s", got.body)
				}
				if test.recreated && r.want(http.StatusOK, "GET", path, "").get("metadata.uid") == uid {
					t.Error("the object that was deleted is back")
				}
			})
		})
	}
}

// TestUpdateOfNothingIsAsOfItsRead: an update without a change writes nothing, so it is
// ordered at its read. On SQLite that is before the write that overtook it; on PostgreSQL, where
// it was computed from what the replica knew, it is after.
func TestUpdateOfNothingIsAsOfItsRead(t *testing.T) {
	eachRace(t, func(t *testing.T, r race) {
		version := r.configMap("a", "")
		passes := r.overtake(configMapResource, func(string) { r.rival.want(http.StatusOK, "DELETE", configMaps+"/a", "") })
		code := http.StatusOK
		if r.rival != r.world {
			code, version = http.StatusNotFound, ""
		}
		got := r.want(code, "PUT", configMaps+"/a", `{"metadata":{"name":"a"}}`)
		if got.get("metadata.resourceVersion") != version || passes() != 1 {
			t.Errorf("after %d passes: %s, and it was at %s", passes(), got.body, version)
		}
		r.want(http.StatusNotFound, "GET", configMaps+"/a", "")
	})
}

// TestLastFinalizersTwice: two controllers concurrently remove the last two finalizers, each
// its own. A third comes too late.
func TestLastFinalizersTwice(t *testing.T) {
	for name, without := range map[string]func(finalizer string) (body, contentType string){
		// Each sends the current list without its own finalizer.
		"json patch": func(finalizer string) (string, string) {
			at := map[string]int{"test.dev/one": 0, "test.dev/two": 1}[finalizer]
			return fmt.Sprintf(`[{"op":"test","path":"/metadata/finalizers/%d","value":%q},{"op":"remove","path":"/metadata/finalizers/%d"}]`, at, finalizer, at), "application/json-patch+json"
		},
		"strategic patch": func(finalizer string) (string, string) {
			return fmt.Sprintf(`{"metadata":{"$deleteFromPrimitiveList/finalizers":[%q]}}`, finalizer), "application/strategic-merge-patch+json"
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachRace(t, func(t *testing.T, r race) {
				const path = configMaps + "/a"
				version := r.configMap("a", `,"finalizers":["test.dev/one","test.dev/two"]`)
				x := r.watch(configMaps + "?watch=true&resourceVersion=" + version)
				r.want(http.StatusOK, "DELETE", path, "")
				remove := func(w *world, finalizer string) {
					body, contentType := without(finalizer)
					w.want(http.StatusOK, "PATCH", path, body, "Content-Type: "+contentType)
				}
				// The overtaken request removes the first of the list, so that its patch means the
				// same on the shorter list.
				passes := r.overtake(configMapResource, func(string) { remove(r.rival, "test.dev/two") })
				remove(r.world, "test.dev/one")
				if passes() != 2 {
					t.Errorf("the removal was computed %d times", passes())
				}
				r.want(http.StatusNotFound, "PATCH", path, `{"metadata":{"finalizers":null}}`, mergePatch)
				r.configMap("b", "")
				x.wants("MODIFIED a", "MODIFIED a", "DELETED a", "ADDED b") // it was removed once
			})
		})
	}
}

// TestPutThatCreatesIsOvertaken: for a kind with create on update, the PUT finds the name free
// and then taken, or taken and then free.
func TestPutThatCreatesIsOvertaken(t *testing.T) {
	eachRace(t, func(t *testing.T, r race) {
		const path, body = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/l", `{"metadata":{"name":"l"},"spec":{"holderIdentity":"%s"}}`
		passes := r.overtake(leaseResource, func(string) { r.rival.want(http.StatusCreated, "PUT", path, fmt.Sprintf(body, "them")) })
		// It becomes an update, and leases need a resourceVersion.
		r.want(http.StatusUnprocessableEntity, "PUT", path, fmt.Sprintf(body, "us"))
		if holder := r.want(http.StatusOK, "GET", path, ""); holder.get("spec.holderIdentity") != "them" || passes() != 1 {
			t.Errorf("after %d passes: %s", passes(), holder.body)
		}

		roles := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
		const role = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles/r"
		passes = r.overtake(roles, func(string) { r.rival.want(http.StatusCreated, "PUT", role, `{"metadata":{"name":"r"}}`) })
		first := r.want(http.StatusOK, "PUT", role, `{"metadata":{"name":"r","labels":{"by":"us"}}}`)
		if first.get("metadata.labels.by") != "us" || passes() != 2 {
			t.Errorf("after %d passes: %s", passes(), first.body)
		}
		passes = r.overtake(roles, func(string) { r.rival.want(http.StatusOK, "DELETE", role, "") })
		second := r.want(http.StatusCreated, "PUT", role, `{"metadata":{"name":"r","labels":{"by":"us-again"}}}`)
		if second.get("metadata.uid") == first.get("metadata.uid") || passes() != 2 {
			t.Errorf("after %d passes: %s", passes(), second.body)
		}
	})
}

// TestUpdateBeginsWithAnOldState: a replica computes an update from the state that it knows,
// which another replica has replaced. Each answer is about the newest state.
func TestUpdateBeginsWithAnOldState(t *testing.T) {
	eachRace(t, func(t *testing.T, r race) {
		const path = configMaps + "/a"
		r.configMap("a", "")
		// Both clients send the version that the other one was answered: the rival's write is
		// often not yet known here.
		for i := range 50 {
			version := r.rival.patch(path, fmt.Sprintf(`{"data":{"rival":"%d"}}`, i))
			r.want(http.StatusOK, "PUT", path, fmt.Sprintf(`{"metadata":{"name":"a","resourceVersion":%q},"data":{"rival":"%d","i":"%d"}}`, version, i, i))
			r.rival.patch(path, `{"data":{"rival":null}}`)
			r.patch(path, `{"metadata":{"labels":{"seen":"yes"}}}`)
			if got := r.want(http.StatusOK, "GET", path, "").get("data"); got != fmt.Sprintf(`{"i":"%d"}`, i) {
				t.Fatalf("round %d: the data is %s", i, got)
			}
		}

		// The update would change nothing, and the rival changes the object meanwhile.
		r.overtake(configMapResource, func(string) { r.rival.patch(path, `{"data":{"i":"rival"}}`) })
		answer := r.want(http.StatusOK, "PATCH", path, `{"data":{"i":"49"}}`, mergePatch)
		if now := r.want(http.StatusOK, "GET", path, ""); r.rival != r.world && answer.get("metadata.resourceVersion") != now.get("metadata.resourceVersion") {
			t.Errorf("answered %s, the object is %s", answer.body, now.body)
		}

		// The old state refuses the update, and the newest does not. On SQLite the old state was read
		// during the request, and its answer is true.
		r.patch(path, `{"immutable":true}`)
		passes := r.overtake(configMapResource, func(string) {
			r.rival.want(http.StatusOK, "DELETE", path, "")
			r.rival.configMap("a", "")
		})
		code, computed := http.StatusUnprocessableEntity, 1
		if r.rival != r.world {
			code, computed = http.StatusOK, 2
		}
		r.want(code, "PATCH", path, `{"data":{"i":"changed"}}`, mergePatch)
		if passes() != computed {
			t.Errorf("computed %d times, want %d", passes(), computed)
		}

		for range 20 {
			r.rival.want(http.StatusOK, "DELETE", path, "")
			r.want(http.StatusNotFound, "PATCH", path, `{"data":{"i":"x"}}`, mergePatch)
			r.rival.configMap("a", "")
			r.patch(path, `{"data":{"i":"x"}}`)
		}
	})
}

// TestPatchIsAppliedOnce: a patch of the old state would be the library's work (it has two owners), and of
// the newest state it is not.
func TestPatchIsAppliedOnce(t *testing.T) {
	eachRace(t, func(t *testing.T, r race) {
		const path = configMaps + "/a"
		owner := func(name string) string {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":"uid-%s"}`, name, name)
		}
		r.configMap("a", "")
		for i := range 30 {
			r.patch(path, `{"metadata":{"ownerReferences":[`+owner("x")+`,`+owner("y")+`]}}`)
			version := r.rival.patch(path, `{"metadata":{"ownerReferences":null}}`)
			// A second time the version would not match.
			r.patch(path, fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"data":{"i":"%d"}}`, version, i))
		}
	})
}
