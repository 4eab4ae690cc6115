package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// newTestAPI serves a fresh SQLite database. The returned handler stands
// behind authentication.
func newTestAPI(t *testing.T) (*API, http.Handler) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	db, err := sqldb.Open(ctx, filepath.Join(t.TempDir(), "test.db"))
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(ctx, store.Options{DB: db, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- st.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = st.Close()
		_ = db.Close()
	})
	a := New(Config{
		Store: st, Kinds: kind.NewRegistry(append(builtin.Kinds(), custom.Definition())),
		Logger: slog.New(slog.DiscardHandler), Version: "test",
	})
	t.Cleanup(a.Close)
	inner := a.parse(a.limit(filters.WithWarningRecorder(http.HandlerFunc(a.route))))
	handler := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		caller := &user.DefaultInfo{Name: "tester"}
		inner.ServeHTTP(w, req.WithContext(genericrequest.WithUser(req.Context(), caller)))
	})
	if code, _, body := call(handler, "POST", "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`); code != http.StatusCreated {
		t.Fatalf("create namespace: %d %s", code, body)
	}
	return a, handler
}

func call(h http.Handler, method, url, body string) (int, http.Header, string) {
	req := httptest.NewRequest(method, url, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "tester/1.0")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Code, w.Header(), w.Body.String()
}

// creates are requests that both paths must answer alike.
var creates = []struct{ name, url, body string }{
	{"plain", "/api/v1/namespaces/shop/configmaps", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","labels":{"x":"y"},"annotations":{"k":"v"}},"data":{"b":"c"},"binaryData":{"d":"AQI="}}`},
	{"without kind and apiVersion", "/api/v1/namespaces/shop/configmaps", `{"metadata":{"name":"a"},"data":{"b":"c"}}`},
	{"generateName", "/api/v1/namespaces/shop/configmaps", `{"metadata":{"generateName":"a-"}}`},
	{"field manager", "/api/v1/namespaces/shop/configmaps?fieldManager=me", `{"metadata":{"name":"a"},"data":{"b":"c"}}`},
	{"namespace in the object", "/api/v1/namespaces/shop/secrets", `{"metadata":{"name":"a","namespace":"shop"},"stringData":{"p":"q"}}`},
	{"another namespace in the object", "/api/v1/namespaces/shop/secrets", `{"metadata":{"name":"a","namespace":"other"}}`},
	{"namespace that does not exist", "/api/v1/namespaces/nowhere/secrets", `{"metadata":{"name":"a"}}`},
	{"system fields are the server's", "/api/v1/namespaces/shop/configmaps", `{"metadata":{"name":"a","uid":"mine","creationTimestamp":"2001-01-01T00:00:00Z","deletionTimestamp":"2001-01-01T00:00:00Z","selfLink":"x","generation":7}}`},
	{"owner and finalizer", "/api/v1/namespaces/shop/configmaps", `{"metadata":{"name":"a","finalizers":["a.example/x"],"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u","blockOwnerDeletion":true}]}}`},
	{"two owners alike", "/api/v1/namespaces/shop/configmaps", `{"metadata":{"name":"a","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u"},{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u"}]}}`},
	{"defaults", "/apis/apps/v1/namespaces/shop/deployments", `{"metadata":{"name":"web"},"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":80}],"env":[{"name":"A","value":"b"}]}]}}},"status":{"replicas":9}}`},
	{"pod", "/api/v1/namespaces/shop/pods", `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`},
	{"cluster-scoped", "/api/v1/namespaces", `{"metadata":{"name":"other","namespace":""}}`},
	{"invalid name", "/api/v1/namespaces/shop/configmaps", `{"metadata":{"name":"UPPER"}}`},
	{"no name", "/api/v1/namespaces/shop/configmaps", `{"metadata":{}}`},
	{"invalid object", "/apis/apps/v1/namespaces/shop/deployments", `{"metadata":{"name":"web"},"spec":{}}`},
	{"resourceVersion", "/api/v1/namespaces/shop/configmaps", `{"metadata":{"name":"a","resourceVersion":"7"}}`},
	{"unknown field, warned of", "/api/v1/namespaces/shop/configmaps", `{"metadata":{"name":"a"},"dta":{}}`},
	{"unknown field, strict", "/api/v1/namespaces/shop/configmaps?fieldValidation=Strict", `{"metadata":{"name":"a"},"dta":{}}`},
	{"unknown field, ignored", "/api/v1/namespaces/shop/configmaps?fieldValidation=Ignore", `{"metadata":{"name":"a"},"dta":{}}`},
	{"bad fieldValidation", "/api/v1/namespaces/shop/configmaps?fieldValidation=Maybe", `{"metadata":{"name":"a"}}`},
	{"duplicate field", "/api/v1/namespaces/shop/configmaps", `{"metadata":{"name":"a"},"data":{"a":"1","a":"2"}}`},
	{"another kind", "/api/v1/namespaces/shop/configmaps", `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a"}}`},
	{"another version", "/api/v1/namespaces/shop/configmaps", `{"kind":"ConfigMap","apiVersion":"v2","metadata":{"name":"a"}}`},
	{"broken JSON", "/api/v1/namespaces/shop/configmaps", `{"metadata":`},
	{"no body", "/api/v1/namespaces/shop/configmaps", ``},
	{"wrong type", "/api/v1/namespaces/shop/configmaps", `{"metadata":{"name":7}}`},
	{"managed fields sent along", "/api/v1/namespaces/shop/configmaps", `{"metadata":{"name":"a","managedFields":[{"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}]},"data":{"b":"c"}}`},
	{"definition", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"widgets.example.dev"},"spec":{"group":"example.dev","names":{"plural":"widgets","kind":"Widget"},"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`},
}

// TestCreatePathsAgree runs one table through the fast path and through the
// library's handler.
func TestCreatePathsAgree(t *testing.T) {
	fast, library := answers(t, true), answers(t, false)
	for _, test := range creates {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(library[test.name], fast[test.name]); diff != "" {
				t.Errorf("the paths differ (-library +fast):\n%s", diff)
			}
		})
	}
}

type answer struct {
	Code     int
	Warnings []string
	Body     any
}

func answers(t *testing.T, fast bool) map[string]answer {
	out := map[string]answer{}
	a, handler := newTestAPI(t)
	if !fast {
		for _, k := range a.kinds.Snapshot().Kinds {
			for _, v := range k.Versions {
				e, err := a.endpoint(v)
				if err != nil {
					t.Fatal(err)
				}
				e.json = nil
			}
		}
	}
	for _, test := range creates {
		code, header, body := call(handler, "POST", test.url, test.body)
		var parsed map[string]any
		if err := json.Unmarshal([]byte(body), &parsed); err != nil {
			t.Fatalf("%s: %v in %q", test.name, err, body)
		}
		out[test.name] = answer{code, header["Warning"], normal(parsed)}
		if m, ok := parsed["metadata"].(map[string]any); ok && code == http.StatusCreated {
			call(handler, "DELETE", fmt.Sprintf("%s/%s", strings.Split(test.url, "?")[0], m["name"]), "")
		}
	}
	return out
}

// normal takes out what differs by its nature.
func normal(obj map[string]any) any {
	m, _ := obj["metadata"].(map[string]any)
	for _, name := range []string{"uid", "creationTimestamp", "resourceVersion"} {
		if v, ok := m[name].(string); ok && v != "" {
			m[name] = "set"
		}
	}
	if generate, ok := m["generateName"].(string); ok {
		m["name"] = generate + "…"
	}
	entries, _ := m["managedFields"].([]any)
	for _, e := range entries {
		e.(map[string]any)["time"] = "set"
	}
	return obj
}

// TestStoredBytesAreValid reads an object back through the library and through
// the fast path: both must be the same object.
func TestStoredBytesAreValid(t *testing.T) {
	_, handler := newTestAPI(t)
	call(handler, "POST", "/api/v1/namespaces/shop/configmaps", `{"metadata":{"name":"a","labels":{"x":"<&>"}},"data":{"b":"\u2028c"}}`)
	_, _, fast := call(handler, "GET", "/api/v1/namespaces/shop/configmaps/a", "")
	_, _, library := call(handler, "GET", "/api/v1/namespaces/shop/configmaps/a?pretty=true", "")
	var one, other bytes.Buffer
	if json.Compact(&one, []byte(fast)) != nil || json.Compact(&other, []byte(library)) != nil {
		t.Fatalf("not JSON: %q, %q", fast, library)
	}
	var x, y any
	_ = json.Unmarshal(one.Bytes(), &x)
	_ = json.Unmarshal(other.Bytes(), &y)
	if diff := cmp.Diff(y, x); diff != "" {
		t.Errorf("the paths differ (-library +fast):\n%s", diff)
	}
}

func TestRegistryKnowsEveryKindByItsStorage(t *testing.T) {
	a, _ := newTestAPI(t)
	kinds := a.kinds.Snapshot()
	for _, k := range kinds.Kinds {
		if _, ok := kinds.Stored(k.Storage); !ok && !k.Ephemeral {
			t.Errorf("%s is not found by its storage name", k.Storage)
		}
		for _, v := range k.Versions {
			if got, ok := kinds.Lookup(schema.GroupVersionResource{Group: v.GVK.Group, Version: v.GVK.Version, Resource: k.Plural}); !ok || got != v {
				t.Errorf("%s is not found by its resource", v.GVK)
			}
		}
	}
}
