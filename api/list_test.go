package api

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/exeunt/exeunt/store"
)

// paths are queries that select the fast path or the library.
var paths = []string{"", "&pretty=false"}

func (r reply) names() (names []string) {
	for _, item := range gjson.Get(r.body, "items").Array() {
		names = append(names, item.Get("metadata.name").String())
	}
	return names
}

// TestListVersions: the result of each way to ask for a version.
func TestListVersions(t *testing.T) {
	w := newWorld(t, store.Options{})
	old := w.configMap("a", "")
	w.patch(configMaps+"/a", `{"data":{"k":"new"}}`)
	current := w.configMap("b", "")
	tests := []struct {
		name, query string
		code        int
		names       []string
		version     string
	}{
		{"newest", "", 200, []string{"a", "b"}, current},
		{"any", "resourceVersion=0", 200, []string{"a", "b"}, current},
		{"any, not older", "resourceVersion=0&resourceVersionMatch=NotOlderThan", 200, []string{"a", "b"}, current},
		{"at least an old one", "resourceVersion=" + old, 200, []string{"a", "b"}, current},
		{"not older than an old one", "resourceVersionMatch=NotOlderThan&resourceVersion=" + old, 200, []string{"a", "b"}, current},
		{"exactly an old one", "resourceVersionMatch=Exact&resourceVersion=" + old, 200, []string{"a"}, old},
		{"exactly an old one, limited", "limit=5&resourceVersion=" + old, 200, []string{"a"}, old},
		{"from the future", "resourceVersion=1000000", 504, nil, ""},
		{"exactly from the future", "resourceVersionMatch=Exact&resourceVersion=1000000", 504, nil, ""},
		{"no number", "resourceVersion=abc", 400, nil, ""},
		{"leading zero", "resourceVersion=01", 400, nil, ""},
		{"exact without a version", "resourceVersionMatch=Exact", 422, nil, ""},
		{"exactly any", "resourceVersionMatch=Exact&resourceVersion=0", 422, nil, ""},
		{"no such match", "resourceVersionMatch=Sometimes&resourceVersion=1", 422, nil, ""},
		{"negative limit: none, as in Kubernetes", "limit=-1", 200, []string{"a", "b"}, current},
	}
	for _, test := range tests {
		for _, path := range paths {
			t.Run(test.name+path, func(t *testing.T) {
				r := w.send("GET", configMaps+"?"+test.query+path, "")
				if r.code != test.code || !slices.Equal(r.names(), test.names) || r.code == 200 && r.get("metadata.resourceVersion") != test.version {
					t.Fatalf("answered %d %s, want %d, %v at %s", r.code, r.body, test.code, test.names, test.version)
				}
				if r.code == http.StatusGatewayTimeout && (r.get("details.causes.0.reason") != "ResourceVersionTooLarge" || r.get("details.retryAfterSeconds") != "1") {
					t.Errorf("clients cannot tell that they must retry: %s", r.body)
				}
			})
		}
	}
	// The old snapshot has the old content.
	r := w.want(http.StatusOK, "GET", configMaps+"?resourceVersionMatch=Exact&resourceVersion="+old, "")
	if gjson.Get(r.body, "items.0.data").Exists() {
		t.Errorf("the list shows a later state: %s", r.body)
	}
}

// TestListPages: all pages show one snapshot, whatever is written between them.
func TestListPages(t *testing.T) {
	for _, path := range paths {
		t.Run("path"+path, func(t *testing.T) {
			w := newWorld(t, store.Options{})
			for i := range 5 {
				w.configMap(fmt.Sprintf("c-%d", i), "")
			}
			var names []string
			var version string
			query := configMaps + "?limit=2" + path
			for page := 0; ; page++ {
				r := w.want(http.StatusOK, "GET", query, "")
				names = append(names, r.names()...)
				if version == "" {
					version = r.get("metadata.resourceVersion")
				} else if got := r.get("metadata.resourceVersion"); got != version {
					t.Errorf("page %d is of version %s, the first was of %s", page, got, version)
				}
				next := r.get("metadata.continue")
				if next == "" {
					break
				}
				query = configMaps + "?limit=2&continue=" + next + path
				w.want(http.StatusOK, "DELETE", fmt.Sprintf("%s/c-%d", configMaps, 4-page), "")
				w.configMap(fmt.Sprintf("c-%d-new", page), "")
			}
			if got := strings.Join(names, " "); got != "c-0 c-1 c-2 c-3 c-4" {
				t.Errorf("the pages hold %s", got)
			}
		})
	}
}

// TestRemainingItemCount: every page but the last says how many objects follow it. A list
// with a selector does not: the server would have to read all of them.
func TestRemainingItemCount(t *testing.T) {
	w := newWorld(t, store.Options{})
	for i := range 5 {
		w.configMap(fmt.Sprintf("c-%d", i), `,"labels":{"a":"b"}`)
	}
	for _, path := range paths {
		token := ""
		for page, want := range []string{"3", "1", ""} {
			r := w.want(http.StatusOK, "GET", configMaps+"?limit=2&continue="+token+path, "")
			if got := r.get("metadata.remainingItemCount"); got != want {
				t.Errorf("page %d%s: %q are left, want %q", page, path, got, want)
			}
			if page == 0 {
				w.configMap("z-new"+strconv.Itoa(len(path)), "") // after the list's revision: not of it
			}
			token = r.get("metadata.continue")
		}
		if r := w.want(http.StatusOK, "GET", configMaps+"?limit=2&labelSelector=a%3Db"+path, ""); r.get("metadata.remainingItemCount") != "" {
			t.Errorf("with a selector: %s", r.body)
		}
		w.want(http.StatusOK, "DELETE", configMaps+"/z-new"+strconv.Itoa(len(path)), "")
	}
}

// TestListPagesWithSelector: a page holds limit objects that match.
func TestListPagesWithSelector(t *testing.T) {
	w := newWorld(t, store.Options{})
	for i := range 6 {
		w.configMap(fmt.Sprintf("c-%d", i), fmt.Sprintf(`,"labels":{"odd":"%d"}`, i%2))
	}
	for _, path := range paths {
		r := w.want(http.StatusOK, "GET", configMaps+"?limit=2&labelSelector=odd%3D1"+path, "")
		if !slices.Equal(r.names(), []string{"c-1", "c-3"}) {
			t.Errorf("first page: %v", r.names())
		}
		r = w.want(http.StatusOK, "GET", configMaps+"?limit=2&labelSelector=odd%3D1&continue="+r.get("metadata.continue")+path, "")
		if !slices.Equal(r.names(), []string{"c-5"}) || r.get("metadata.continue") != "" {
			t.Errorf("second page: %s", r.body)
		}
	}
}

func TestListContinueRefused(t *testing.T) {
	w, old := compacted(t)
	token := func(p position) string { return p.String() }
	for _, path := range paths {
		for _, test := range []struct {
			name, query string
			code        int
			reason      string
		}{
			{"garbage", "continue=garbage", 400, "BadRequest"},
			{"another server's", "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0", 400, "BadRequest"},
			{"expired", "continue=" + token(position{Revision: gjsonInt(old), Namespace: "shop", Name: "a"}), 410, "Expired"},
			{"with a version", "resourceVersion=7&continue=" + token(position{Revision: 7, Namespace: "shop", Name: "a"}), 400, "BadRequest"},
		} {
			t.Run(test.name+path, func(t *testing.T) {
				r := w.send("GET", configMaps+"?"+test.query+path, "")
				if r.code != test.code || r.get("reason") != test.reason {
					t.Errorf("answered %d %s", r.code, r.body)
				}
			})
		}
	}
	// A token that names another namespace shows no objects of it.
	w.want(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"other"}}`)
	w.want(http.StatusCreated, "POST", "/api/v1/namespaces/other/configmaps", `{"metadata":{"name":"secret"}}`)
	now := gjsonInt(w.want(http.StatusOK, "GET", configMaps, "").get("metadata.resourceVersion"))
	r := w.want(http.StatusOK, "GET", configMaps+"?continue="+token(position{Revision: now, Namespace: "other", Name: "a"}), "")
	if slices.Contains(r.names(), "secret") {
		t.Errorf("the token shows another namespace: %s", r.body)
	}
}

// TestContinueExpired: a list whose snapshot is compacted continues in the newest snapshot, with
// the token of the refusal.
func TestContinueExpired(t *testing.T) {
	w, old := compacted(t)
	for _, name := range []string{"x-1", "x-2", "x-3"} {
		w.configMap(name, "")
	}
	for _, path := range paths {
		asked := position{Revision: gjsonInt(old), Namespace: "shop", Name: "x-1", Left: 2}
		refused := w.want(http.StatusGone, "GET", configMaps+"?limit=1&continue="+asked.String()+path, "")
		token := refused.get("metadata.continue")
		if refused.get("message") != expiredContinue || token == "" {
			t.Fatalf("refused with %s", refused.body)
		}
		first := w.want(http.StatusOK, "GET", configMaps+"?limit=1&continue="+token+path, "")
		if !slices.Equal(first.names(), []string{"x-2"}) || first.get("metadata.remainingItemCount") != "1" {
			t.Errorf("continued with %s", first.body)
		}
		// The pages after it are of its snapshot.
		rest := w.want(http.StatusOK, "GET", configMaps+"?limit=5&continue="+first.get("metadata.continue")+path, "")
		if !slices.Equal(rest.names(), []string{"x-3"}) || rest.get("metadata.resourceVersion") != first.get("metadata.resourceVersion") {
			t.Errorf("ended with %s", rest.body)
		}
	}
}

func TestGetVersions(t *testing.T) {
	w := newWorld(t, store.Options{})
	old := w.configMap("a", "")
	current := w.patch(configMaps+"/a", `{"data":{"k":"new"}}`)
	for _, test := range []struct {
		version string
		code    int
	}{{"", 200}, {"0", 200}, {old, 200}, {current, 200}, {"1000000", 504}, {"abc", 500}, {"-1", 500}} {
		for _, path := range paths {
			r := w.send("GET", configMaps+"/a?resourceVersion="+test.version+path, "")
			if r.code != test.code {
				t.Errorf("version %q%s answered %d, want %d: %s", test.version, path, r.code, test.code, r.body)
			}
			if r.code == 200 && r.get("metadata.resourceVersion") != current {
				t.Errorf("version %q: not the newest: %s", test.version, r.body)
			}
			if r.code == 504 && r.get("details.causes.0.reason") != "ResourceVersionTooLarge" {
				t.Errorf("version %q: %s", test.version, r.body)
			}
		}
	}
}

func TestDeleteCollection(t *testing.T) {
	w := newWorld(t, store.Options{})
	for i := range 6 {
		w.configMap(fmt.Sprintf("c-%d", i), fmt.Sprintf(`,"labels":{"odd":"%d"}`, i%2))
	}
	w.configMap("held", `,"labels":{"odd":"1"},"finalizers":["test.dev/hold"]`)
	left := func() string { return strings.Join(w.want(http.StatusOK, "GET", configMaps, "").names(), " ") }

	r := w.want(http.StatusOK, "DELETE", configMaps+"?labelSelector=odd%3D1&dryRun=All", "")
	if got := left(); got != "c-0 c-1 c-2 c-3 c-4 c-5 held" {
		t.Fatalf("a dry run left %s: %s", got, r.body)
	}
	r = w.want(http.StatusOK, "DELETE", configMaps+"?labelSelector=odd%3D1&limit=2", "")
	if got := left(); got != "c-0 c-2 c-4 c-5 held" {
		t.Fatalf("a limit of two left %s", got)
	}
	if r.get("kind") != "ConfigMapList" || !slices.Equal(r.names(), []string{"c-1", "c-3"}) {
		t.Errorf("the answer is %s", r.body)
	}
	w.want(http.StatusOK, "DELETE", configMaps+"?labelSelector=odd%3D1", "")
	if got := left(); got != "c-0 c-2 c-4 held" {
		t.Fatalf("the selector left %s", got)
	}
	if w.want(http.StatusOK, "GET", configMaps+"/held", "").get("metadata.deletionTimestamp") == "" {
		t.Error("what has a finalizer is not being deleted")
	}
	w.want(http.StatusOK, "DELETE", configMaps+"?fieldSelector=metadata.name%3Dc-2", "")
	if got := left(); got != "c-0 c-4 held" {
		t.Fatalf("the field selector left %s", got)
	}
	w.want(http.StatusOK, "DELETE", configMaps, "")
	if got := left(); got != "held" {
		t.Fatalf("left: %s", got)
	}
	w.want(http.StatusBadRequest, "DELETE", configMaps+"?labelSelector=%3D%3D", "")
}

// TestLargeCollectionIsLogged: a DeleteCollection has one line in the log from a size on.
func TestLargeCollectionIsLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.Options{})
	var log bytes.Buffer
	w.api.Logger = slog.New(slog.NewTextHandler(&log, nil))
	for i := range largeCollection {
		w.configMap(fmt.Sprintf("c-%d", i), "")
	}
	w.want(http.StatusOK, "DELETE", configMaps+"?limit=999", "")
	if log.Len() != 0 {
		t.Errorf("a small one is logged: %s", &log)
	}
	for i := range largeCollection {
		w.configMap(fmt.Sprintf("d-%d", i), "")
	}
	w.want(http.StatusOK, "DELETE", configMaps, "")
	if got := log.String(); strings.Count(got, "large collection deleted") != 1 || !strings.Contains(got, "removed=1001") {
		t.Errorf("the log has %s", got)
	}
}

// TestListItemsHaveNoKind: as in Kubernetes, items of built-in kinds have neither kind nor
// apiVersion. Those of custom kinds have both, and so have the objects of watch events.
func TestListItemsHaveNoKind(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.define()
	w.configMap("a", "")
	w.want(http.StatusCreated, "POST", widgets, `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"a"}}`)
	const maps = "/api/v1/namespaces/shop/configmaps"
	for _, query := range []string{"", "?pretty=true", "?limit=1"} {
		builtIn, custom := w.want(http.StatusOK, "GET", maps+query, "").body, w.want(http.StatusOK, "GET", widgets+query, "").body
		if item := gjson.Get(builtIn, "items.0"); item.Get("kind").Exists() || item.Get("apiVersion").Exists() || item.Get("metadata.name").String() != "a" {
			t.Errorf("%s: the item is %s", query, item.Raw)
		}
		if kind := gjson.Get(builtIn, "kind").String(); kind != "ConfigMapList" {
			t.Errorf("%s: the list is a %s", query, kind)
		}
		if item := gjson.Get(custom, "items.0"); item.Get("kind").String() != "Widget" || item.Get("apiVersion").String() != "test.dev/v1" {
			t.Errorf("%s: the custom item is %s", query, item.Raw)
		}
	}
	if _, obj := w.watch(maps + "?watch=true").next(); obj.Get("kind").String() != "ConfigMap" || obj.Get("apiVersion").String() != "v1" {
		t.Errorf("the event has %s", obj.Raw)
	}
}
