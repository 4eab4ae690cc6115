package api

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

// eachWatchPath runs a test for frames from stored bytes and for the library's. The query
// selects the path.
func eachWatchPath(t *testing.T, test func(t *testing.T, base string)) {
	t.Helper()
	for name, query := range map[string]string{"stored bytes": "", "library": "&pretty=false"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, configMaps+"?watch=true"+query)
		})
	}
}

func TestWatchEvents(t *testing.T) {
	eachWatchPath(t, func(t *testing.T, base string) {
		w := newWorld(t, store.Options{})
		w.configMap("before", "")
		x := w.watch(base)
		x.wants("ADDED before")
		w.configMap("a", "")
		modified := w.patch(configMaps+"/a", `{"data":{"k":"v"}}`)
		w.want(http.StatusOK, "DELETE", configMaps+"/a", "")
		x.wants("ADDED a")
		kind, obj := x.next()
		if kind != "MODIFIED" || obj.Get("data.k").String() != "v" || obj.Get("metadata.resourceVersion").String() != modified {
			t.Errorf("%s %s", kind, obj.Raw)
		}
		if obj.Get("kind").String() != "ConfigMap" || obj.Get("apiVersion").String() != "v1" {
			t.Errorf("the object does not say what it is: %s", obj.Raw)
		}
		kind, obj = x.next()
		if version := obj.Get("metadata.resourceVersion").Int(); kind != "DELETED" || obj.Get("data.k").String() != "v" || version <= gjsonInt(modified) {
			t.Errorf("%s %s: want the last state at the version of the deletion", kind, obj.Raw)
		}
	})
}

// TestWatchBegins: the initial state is that of the moment when the response begins. All later
// changes are events.
func TestWatchBegins(t *testing.T) {
	eachWatchPath(t, func(t *testing.T, base string) {
		w := newWorld(t, store.Options{})
		x := w.watchBegun(base, func() {
			w.configMap("a", "")
			w.patch(configMaps+"/a", `{"data":{"k":"v"}}`)
			w.want(http.StatusOK, "DELETE", configMaps+"/a", "")
		})
		x.wants("ADDED a", "MODIFIED a", "DELETED a")
	})
}

func gjsonInt(s string) (n int64) {
	_, _ = fmt.Sscan(s, &n)
	return n
}

// TestWatchSelection: an object that begins to match is ADDED, one that no longer matches is
// DELETED, and one that never matched gets no event.
func TestWatchSelection(t *testing.T) {
	t.Run("labels", func(t *testing.T) {
		eachWatchPath(t, func(t *testing.T, base string) {
			w := newWorld(t, store.Options{})
			x := w.watch(base + "&labelSelector=" + url.QueryEscape("tier=front"))
			w.configMap("a", `,"labels":{"tier":"back"}`)
			w.configMap("b", `,"labels":{"tier":"front"}`)
			w.patch(configMaps+"/a", `{"metadata":{"labels":{"tier":"front"}}}`)
			w.patch(configMaps+"/a", `{"data":{"k":"v"}}`)
			left := w.patch(configMaps+"/a", `{"metadata":{"labels":{"tier":"back"}},"data":{"k":"w"}}`)
			w.want(http.StatusOK, "DELETE", configMaps+"/a", "")
			w.want(http.StatusOK, "DELETE", configMaps+"/b", "")
			x.wants("ADDED b", "ADDED a", "MODIFIED a")
			// The event has the last matching state, and the version of the change.
			kind, obj := x.next()
			if kind != "DELETED" || obj.Get("metadata.labels.tier").String() != "front" || obj.Get("data.k").String() != "v" ||
				obj.Get("metadata.resourceVersion").String() != left {
				t.Errorf("%s %s, want version %s", kind, obj.Raw, left)
			}
			x.wants("DELETED b")
		})
	})
	t.Run("fields", func(t *testing.T) {
		for name, more := range map[string]string{"stored bytes": "", "library": "&pretty=false"} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, store.Options{})
				w.define()
				x := w.watch(widgets + "?watch=true&fieldSelector=" + url.QueryEscape("spec.color=red") + more)
				for _, name := range []string{"a", "b"} {
					w.want(http.StatusCreated, "POST", widgets, fmt.Sprintf(`{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":%q},"spec":{"color":"blue"}}`, name))
				}
				w.patch(widgets+"/b", `{"spec":{"color":"red"}}`)
				w.patch(widgets+"/b", `{"spec":{"color":"green"}}`)
				w.patch(widgets+"/a", `{"spec":{"color":"red"}}`)
				x.wants("ADDED b", "DELETED b", "ADDED a")
			})
		}
	})
	t.Run("one name", func(t *testing.T) {
		eachWatchPath(t, func(t *testing.T, base string) {
			w := newWorld(t, store.Options{})
			x := w.watch(base + "&fieldSelector=" + url.QueryEscape("metadata.name=b"))
			w.configMap("a", "")
			w.configMap("b", "")
			x.wants("ADDED b")
		})
	})
}

// TestWatchResumes: a watch from a version gets every later event once.
func TestWatchResumes(t *testing.T) {
	eachWatchPath(t, func(t *testing.T, base string) {
		w := newWorld(t, store.Options{})
		from := w.configMap("a", "")
		w.configMap("b", "")
		w.want(http.StatusOK, "DELETE", configMaps+"/a", "")
		w.watch(base+"&resourceVersion="+from).wants("ADDED b", "DELETED a")
		w.watch(base + "&resourceVersion=0").wants("ADDED b")
	})
}

func TestWatchInitialEvents(t *testing.T) {
	eachWatchPath(t, func(t *testing.T, base string) {
		w := newWorld(t, store.Options{})
		w.configMap("a", "")
		current := w.configMap("b", "")
		base += "&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
		x := w.watch(base + "&sendInitialEvents=true")
		x.wants("ADDED a", "ADDED b")
		kind, obj := x.next()
		if kind != "BOOKMARK" || obj.Get(`metadata.annotations.k8s\.io/initial-events-end`).String() != "true" ||
			obj.Get("metadata.resourceVersion").String() != current || obj.Get("kind").String() != "ConfigMap" {
			t.Errorf("%s %s: want the closing bookmark at %s", kind, obj.Raw, current)
		}
		w.configMap("c", "")
		x.wants("ADDED c")

		// Without matching objects the bookmark is sent too, or clients wait forever.
		x = w.watch(base + "&sendInitialEvents=true&labelSelector=no%3Dmatch")
		if kind, obj := x.next(); kind != "BOOKMARK" || obj.Get(`metadata.annotations.k8s\.io/initial-events-end`).String() != "true" {
			t.Errorf("%s %s", kind, obj.Raw)
		}
		// Without initial events, only new events are sent.
		x = w.watch(base + "&sendInitialEvents=false")
		w.configMap("d", "")
		x.wants("ADDED d")
	})
}

// TestLastBookmark: a watch that asked for bookmarks gets one before its timeout, although the
// next regular one is far away.
func TestLastBookmark(t *testing.T) {
	eachWatchPath(t, func(t *testing.T, base string) {
		w := newWorld(t, store.Options{})
		from := w.configMap("a", "")
		x := w.watch(base + "&allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion=" + from)
		other := w.want(http.StatusCreated, "POST", "/api/v1/namespaces/shop/secrets", `{"metadata":{"name":"s"}}`).get("metadata.resourceVersion")
		if kind, obj := x.next(); kind != "BOOKMARK" || obj.Get("metadata.resourceVersion").String() != other {
			t.Errorf("%s %s: want a bookmark at %s", kind, obj.Raw, other)
		}
	})
}

func TestWatchBookmarks(t *testing.T) {
	eachWatchPath(t, func(t *testing.T, base string) {
		w := newWorld(t, store.Options{})
		w.api.bookmarkEvery = time.Nanosecond
		from := w.configMap("a", "")
		x := w.watch(base + "&allowWatchBookmarks=true&resourceVersion=" + from)
		// Changes outside the selection advance the version too.
		other := w.want(http.StatusCreated, "POST", "/api/v1/namespaces/shop/secrets", `{"metadata":{"name":"s"}}`).get("metadata.resourceVersion")
		kind, obj := x.next()
		if kind != "BOOKMARK" || obj.Get("metadata.resourceVersion").String() != other || obj.Get("metadata.annotations").Exists() {
			t.Errorf("%s %s: want a bookmark at %s", kind, obj.Raw, other)
		}
		if obj.Get("kind").String() != "ConfigMap" || obj.Get("metadata.name").Exists() {
			t.Errorf("the bookmark is %s", obj.Raw)
		}
	})
}

// TestWatchTimesOut: the end of a watch by its timeout is no event for the log.
func TestWatchTimesOut(t *testing.T) {
	eachWatchPath(t, func(t *testing.T, base string) {
		w := newWorld(t, store.Options{})
		var log bytes.Buffer
		w.api.Logger = slog.New(slog.NewTextHandler(&log, nil))
		w.configMap("a", "")
		x := w.watch(base + "&timeoutSeconds=1")
		x.wants("ADDED a")
		x.ends()
		if log.Len() != 0 {
			t.Errorf("logged: %s", log.String())
		}
	})
}

// TestWatchOfLargestTimeout: a timeout that overflows a time.Duration means "as long as
// possible", not "already over".
func TestWatchOfLargestTimeout(t *testing.T) {
	eachWatchPath(t, func(t *testing.T, base string) {
		w := newWorld(t, store.Options{})
		w.configMap("a", "")
		x := w.watch(base + "&timeoutSeconds=9223372036854775807")
		x.wants("ADDED a")
		w.configMap("b", "")
		x.wants("ADDED b")
	})
}

// TestWatchEndsAtShutdown: watches end cleanly, and Close waits for them.
func TestWatchEndsAtShutdown(t *testing.T) {
	eachWatchPath(t, func(t *testing.T, base string) {
		w := newWorld(t, store.Options{})
		w.configMap("a", "")
		x := w.watch(base)
		x.wants("ADDED a")
		closed := make(chan struct{})
		go func() { w.api.Close(t.Context()); close(closed) }()
		x.ends()
		select {
		case <-closed:
		case <-time.After(patience):
			t.Fatal("Close did not return")
		}
	})
}

// compacted is a world in which the given version is compacted.
func compacted(t *testing.T) (w *world, old string) {
	t.Helper()
	w = newWorld(t, store.Options{KeepRevisions: 1, CompactEvery: 5 * time.Millisecond})
	old = w.configMap("a", "")
	for i := range 5 {
		w.configMap(fmt.Sprintf("b-%d", i), "")
	}
	dbtest.Until(w.t, "version "+old+" is forgotten", func() error {
		if r := w.send("GET", configMaps+"?resourceVersionMatch=Exact&resourceVersion="+old, ""); r.code != http.StatusGone {
			return fmt.Errorf("%d", r.code)
		}
		return nil
	})
	return w, old
}

// TestWatchGone: a version that is too old gives one ERROR event with HTTP 200.
func TestWatchGone(t *testing.T) {
	eachWatchPath(t, func(t *testing.T, base string) {
		w, old := compacted(t)
		x := w.watch(base + "&resourceVersion=" + old)
		kind, obj := x.next()
		if x.code != http.StatusOK || kind != "ERROR" || obj.Get("kind").String() != "Status" ||
			obj.Get("code").Int() != http.StatusGone || obj.Get("reason").String() != "Expired" {
			t.Errorf("%d %s %s", x.code, kind, obj.Raw)
		}
		x.ends()
	})
}

func TestWatchBadOptions(t *testing.T) {
	w := newWorld(t, store.Options{})
	for name, query := range map[string]string{
		"version is no number":            "resourceVersion=abc",
		"version is negative":             "resourceVersion=-1",
		"label selector":                  "labelSelector=%3D%3D",
		"field selector":                  "fieldSelector=spec.nothing%3Dx",
		"timeout is no number":            "timeoutSeconds=abc",
		"initial events without match":    "sendInitialEvents=true",
		"match without initial events":    "resourceVersionMatch=NotOlderThan&resourceVersion=1",
		"initial events with exact match": "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1",
	} {
		t.Run(name, func(t *testing.T) {
			for _, more := range []string{"", "&pretty=false"} {
				r := w.send("GET", configMaps+"?watch=true&"+query+more, "")
				number := r.code == http.StatusInternalServerError && strings.HasPrefix(r.get("message"), "resourceVersion: Invalid value") // as kube-apiserver
				if r.code != http.StatusBadRequest && r.code != http.StatusUnprocessableEntity && !number || r.get("kind") != "Status" {
					t.Errorf("%q answered %d %s", query+more, r.code, r.body)
				}
			}
		})
	}
}
