package api

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/exeunt/exeunt/store"
)

// TestUpdateRetries: writers without a version all succeed, and no change is lost.
func TestUpdateRetries(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.configMap("a", "")
	const writers, rounds = 8, 10
	var running sync.WaitGroup
	for i := range writers {
		running.Go(func() {
			for n := range rounds {
				r := w.send("PATCH", configMaps+"/a", fmt.Sprintf(`{"data":{"w-%d-%d":"x"}}`, i, n), "Content-Type: application/merge-patch+json")
				if r.code != http.StatusOK {
					t.Errorf("patch answered %d %s", r.code, r.body)
				}
			}
		})
	}
	running.Wait()
	data := gjson.Get(w.want(http.StatusOK, "GET", configMaps+"/a", "").body, "data").Map()
	if len(data) != writers*rounds {
		t.Errorf("%d changes of %d are there", len(data), writers*rounds)
	}
}

func TestUpdateConflicts(t *testing.T) {
	w := newWorld(t, store.Options{})
	old := w.configMap("a", "")
	w.patch(configMaps+"/a", `{"data":{"k":"v"}}`)
	stale := fmt.Sprintf(`{"metadata":{"name":"a","resourceVersion":%q},"data":{"k":"w"}}`, old)
	for _, test := range []struct {
		name, method, path, body string
		code                     int
		headers                  []string
	}{
		{"stale version", "PUT", configMaps + "/a", stale, 409, nil},
		{"stale version in a patch", "PATCH", configMaps + "/a", stale, 409, []string{"Content-Type: application/merge-patch+json"}},
		{"another uid", "PUT", configMaps + "/a", `{"metadata":{"name":"a","uid":"other"}}`, 409, nil},
		{"another uid in a patch", "PATCH", configMaps + "/a", `{"metadata":{"uid":"other"}}`, 422, []string{"Content-Type: application/merge-patch+json"}},
		{"no version", "PUT", configMaps + "/a", `{"metadata":{"name":"a"},"data":{"k":"w"}}`, 200, nil},
		{"another name", "PUT", configMaps + "/a", `{"metadata":{"name":"b"}}`, 400, nil},
		{"bad version", "PUT", configMaps + "/a", `{"metadata":{"name":"a","resourceVersion":"abc"}}`, 400, nil},
	} {
		if r := w.send(test.method, test.path, test.body, test.headers...); r.code != test.code || r.code != 200 && r.get("kind") != "Status" {
			t.Errorf("%s: answered %d %s, want %d", test.name, r.code, r.body, test.code)
		}
	}
}

// TestUpdateOfNothingNew keeps the version, and watchers get no event.
func TestUpdateOfNothingNew(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.configMap("a", "")
	version := w.patch(configMaps+"/a", `{"data":{"k":"v"}}`)
	if again := w.patch(configMaps+"/a", `{"data":{"k":"v"}}`); again != version {
		t.Errorf("the version moved from %s to %s", version, again)
	}
}

// TestCreateByPut: as in Kubernetes, PUT creates objects of some kinds; for others it is a 404.
func TestCreateByPut(t *testing.T) {
	w := newWorld(t, store.Options{})
	leases := "/apis/coordination.k8s.io/v1/namespaces/shop/leases/l"
	r := w.want(http.StatusCreated, "PUT", leases, `{"metadata":{"name":"l"},"spec":{"holderIdentity":"me"}}`)
	if r.get("metadata.uid") == "" || r.get("metadata.resourceVersion") == "" {
		t.Errorf("created: %s", r.body)
	}
	w.want(http.StatusOK, "PUT", leases, `{"metadata":{"name":"l","resourceVersion":"`+r.get("metadata.resourceVersion")+`"},"spec":{"holderIdentity":"you"}}`)
	w.want(http.StatusUnprocessableEntity, "PUT", leases, `{"metadata":{"name":"l"}}`) // leases need a resourceVersion
	w.want(http.StatusNotFound, "PUT", "/apis/coordination.k8s.io/v1/namespaces/shop/leases/gone", `{"metadata":{"name":"gone","resourceVersion":"7"}}`)
	w.want(http.StatusConflict, "PUT", "/apis/coordination.k8s.io/v1/namespaces/shop/leases/gone", `{"metadata":{"name":"gone","uid":"u"}}`)
	w.want(http.StatusNotFound, "PUT", "/apis/coordination.k8s.io/v1/namespaces/none/leases/l", `{"metadata":{"name":"l"}}`)
	w.want(http.StatusNotFound, "PUT", configMaps+"/none", `{"metadata":{"name":"none"}}`)
	w.want(http.StatusNotFound, "PUT", "/api/v1/namespaces/shop/pods/none", `{"metadata":{"name":"none"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)

	// Concurrent PUTs create one object, and none is refused.
	var running sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for i := range 8 {
		running.Go(func() {
			r := w.send("PUT", "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles/r", fmt.Sprintf(`{"metadata":{"name":"r","labels":{"by":"c-%d"}}}`, i))
			mu.Lock()
			defer mu.Unlock()
			codes[r.code]++
		})
	}
	running.Wait()
	if codes[http.StatusCreated] != 1 || codes[http.StatusOK] != 7 {
		t.Errorf("answers: %v", codes)
	}
}

func TestPatchTypes(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.define()
	w.configMap("a", "")
	w.want(http.StatusCreated, "POST", widgets, `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"a"}}`)
	for _, test := range []struct {
		kind, path, body string
		builtin, custom  int
	}{
		{"application/json-patch+json", "", `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, 200, 200},
		{"application/merge-patch+json", "", `{"metadata":{"labels":{"a":"c"}}}`, 200, 200},
		{"application/strategic-merge-patch+json", "", `{"metadata":{"labels":{"a":"d"}}}`, 200, 415},
		{"application/apply-patch+yaml", "?fieldManager=m&force=true", "metadata: {labels: {a: e}}", 200, 200},
		{"application/apply-patch+yaml", "", "metadata: {}", 422, 422}, // the field manager is missing
		{"application/json", "", `{}`, 415, 415},
		{"text/plain", "", `{}`, 415, 415},
		{"application/json-patch+json", "", `{}`, 400, 400},
		{"application/json-patch+json", "", `[{"op":"remove","path":"/data/none"}]`, 422, 422},
		{"application/merge-patch+json", "", `[`, 400, 400},
	} {
		for path, want := range map[string]int{configMaps + "/a": test.builtin, widgets + "/a": test.custom} {
			body := test.body
			if strings.Contains(test.kind, "apply") {
				kind := "apiVersion: v1\nkind: ConfigMap\n"
				if path != configMaps+"/a" {
					kind = "apiVersion: test.dev/v1\nkind: Widget\n"
				}
				body = kind + body
			}
			if r := w.send("PATCH", path+test.path, body, "Content-Type: "+test.kind); r.code != want || want != 200 && r.get("kind") != "Status" {
				t.Errorf("%s of %s answered %d, want %d: %s", test.kind, path, r.code, want, r.body)
			}
		}
	}
}
