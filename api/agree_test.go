package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

// row is a request that both paths must answer in the same way and with the same effect.
// NAME is replaced by a unique name; $rv and $uid are those of the object before the
// request.
type row struct {
	name              string
	given             []request // requests sent before it
	method, url, body string
	headers           []string
	library           bool   // the fast path hands it to the library
	protobuf          bool   // the body, if it is an object, and the answer are protobuf
	object            string // set by named
}

type request struct{ method, url, body string }

func post(url, body string) request { return request{"POST", url, body} }

// TestWritePathsAgree runs one table through the fast paths and through the
// library's handlers.
func TestWritePathsAgree(t *testing.T) {
	var rows []row
	for _, table := range []struct {
		method string
		rows   []row
	}{{"POST", createRows}, {"PUT", updateRows}, {"PATCH", patchRows}, {"DELETE", deleteRows}} {
		for _, r := range table.rows {
			r.method = table.method
			if r.method == "PATCH" {
				r.headers = append([]string{"Content-Type: application/merge-patch+json"}, r.headers...)
			}
			rows = append(rows, r)
			if inProtobuf, ok := r.inProtobuf(); ok {
				rows = append(rows, inProtobuf)
			}
		}
	}
	fast, library := newWorld(t, store.Options{}), newWorld(t, store.Options{})
	fast.define()
	library.define()
	handedOver := false
	fast.eachEndpoint(func(e *endpoint) {
		for verb, handler := range e.verbs[""] {
			e.verbs[""][verb] = func(w http.ResponseWriter, req *http.Request) {
				handedOver = true
				handler(w, req)
			}
		}
	})
	library.eachEndpoint(func(e *endpoint) { e.json = nil })
	for i, r := range rows {
		t.Run(r.method+"/"+r.name, func(t *testing.T) {
			var diff string
			for attempt := range 20 {
				start := time.Now().Unix()
				r := r.named(fmt.Sprintf("row-%d-%d", i, attempt))
				want := library.exchange(t, r, func() {})
				got := fast.exchange(t, r, func() { handedOver = false })
				// Managers are ordered by time in whole seconds. A difference because a second
				// has passed is ignored.
				if diff = cmp.Diff(want, got); diff == "" || time.Now().Unix() == start {
					break
				}
			}
			if diff != "" {
				t.Errorf("the paths differ (-library +fast):\n%s", diff)
			}
			if handedOver != r.library {
				t.Errorf("handed over to the library: %v, want %v", handedOver, r.library)
			}
		})
	}
}

// eachEndpoint visits all endpoints that write through the store.
func (w *world) eachEndpoint(do func(*endpoint)) {
	w.t.Helper()
	for _, k := range w.api.Kinds.Snapshot().Kinds {
		for _, v := range k.Versions {
			e, err := w.api.endpoint(v)
			if err != nil {
				w.t.Fatal(err)
			}
			if e.json != nil {
				do(e)
			}
		}
	}
}

func (r row) named(name string) row {
	given := r.given
	r.object, r.given = name, nil
	for _, g := range given {
		r.given = append(r.given, request{g.method, strings.ReplaceAll(g.url, "NAME", name), strings.ReplaceAll(g.body, "NAME", name)})
	}
	r.url, r.body = strings.ReplaceAll(r.url, "NAME", name), strings.ReplaceAll(r.body, "NAME", name)
	return r
}

// answer is what is compared: the response and its effect.
type answer struct {
	Code   int
	Header map[string][]string
	Body   any
	Stored any
}

// exchange sends the row's preparations, calls begin, and then sends the row's request.
func (w *world) exchange(t *testing.T, r row, begin func()) answer {
	t.Helper()
	for _, g := range r.given {
		if got := w.send(g.method, g.url, g.body); got.code >= 300 {
			t.Fatalf("%s %s: %d %s", g.method, g.url, got.code, got.body)
		}
	}
	path, _, _ := strings.Cut(r.url, "?")
	if collection := strings.HasSuffix(path, "s"); collection {
		path += "/" + r.object
	}
	before := w.settled(path)
	fill := strings.NewReplacer("$rv", before.get("metadata.resourceVersion"), "$uid", before.get("metadata.uid"))
	begin()
	got := w.sendRow(t, r, fill.Replace(r.body))
	if name := got.get("metadata.name"); r.method == "POST" && name != "" { // a generated one
		path = path[:strings.LastIndex(path, "/")+1] + name
	}
	after := w.settled(path)
	out := answer{Code: got.code, Header: map[string][]string{}, Body: neutral(t, got.body, before), Stored: neutral(t, after.body, before)}
	for _, name := range []string{"Content-Type", "Cache-Control", "Warning"} {
		out.Header[name] = got.header[name]
	}
	return out
}

// settled reads an object. It waits until the controller has set the status of a
// definition: the compared object must not change by itself.
func (w *world) settled(path string) (r reply) {
	w.t.Helper()
	dbtest.Until(w.t, path+" has settled", func() error {
		r = w.send("GET", path, "")
		if r.code == http.StatusOK && r.get("kind") == "CustomResourceDefinition" && r.get("status.conditions.1") == "" {
			return errors.New(r.body)
		}
		return nil
	})
	return r
}

var (
	anyUID  = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	anyTime = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z`)
	anyRV   = regexp.MustCompile(`("resourceVersion":\s*"|in record \()[0-9]+`)
)

// neutral replaces values that always differ, and keeps whether they changed.
func neutral(t *testing.T, body string, before reply) any {
	t.Helper()
	if uid := before.get("metadata.uid"); uid != "" {
		body = strings.ReplaceAll(body, uid, "uid as before")
	}
	body = anyUID.ReplaceAllString(body, "another uid")
	body = anyTime.ReplaceAllStringFunc(body, func(s string) string {
		at, err := time.Parse(time.RFC3339, s)
		if err == nil && time.Since(at).Abs() < time.Hour {
			return "now"
		}
		return s
	})
	body = anyRV.ReplaceAllStringFunc(body, func(s string) string {
		start := strings.IndexAny(s, "0123456789")
		if s[start:] == before.get("metadata.resourceVersion") {
			return s[:start] + "as before"
		}
		return s[:start] + "another"
	})
	var parsed any
	if err := json.Unmarshal([]byte(body), &parsed); err != nil {
		t.Fatalf("%v in %q", err, body)
	}
	hideChance(parsed)
	return parsed
}

// hideChance hides the suffix of a generated name, whether two owners wrote in the same
// second, and what the controller of definitions writes at a later time.
func hideChance(parsed any) {
	obj, _ := parsed.(map[string]any)
	m, _ := obj["metadata"].(map[string]any)
	if base, ok := m["generateName"].(string); ok {
		m["name"] = base + "…"
	}
	owners, _ := m["managedFields"].([]any)
	var places []int
	var recent []map[string]any
	for i, o := range owners {
		if owner := o.(map[string]any); owner["time"] == "now" {
			places, recent = append(places, i), append(recent, owner)
		}
	}
	sort.Slice(recent, func(i, j int) bool { return fmt.Sprint(recent[i]) < fmt.Sprint(recent[j]) })
	for i, place := range places {
		owners[place] = recent[i]
	}
	if obj["kind"] == "CustomResourceDefinition" {
		delete(m, "resourceVersion")
		delete(obj, "status")
	}
}

// TestStoredBytesAreValid reads an object back through the library and through
// the fast path: both must be the same object.
func TestStoredBytesAreValid(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.want(http.StatusCreated, "POST", configMaps, `{"metadata":{"name":"a","annotations":{"x":"<&>"}},"data":{"b":"\u2028c"}}`)
	fast := w.want(http.StatusOK, "GET", configMaps+"/a", "").body
	library := w.want(http.StatusOK, "GET", configMaps+"/a?pretty=true", "").body
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
	kinds := newWorld(t, store.Options{}).api.Kinds.Snapshot()
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
