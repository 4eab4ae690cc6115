package finalizer

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/access/accesstest"
	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/api/openapi"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// world is a whole API on a database, with the service under test. Its client is "tester".
type world struct {
	testing.TB
	store   *store.Store
	service *Service
	api     *api.API
	log     *bytes.Buffer
}

func each(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) { test(newWorld(t, db)) })
}

func newWorld(t testing.TB, db *sqldb.DB) *world {
	t.Helper()
	w := &world{TB: t, log: &bytes.Buffer{}}
	quiet := slog.New(slog.DiscardHandler)
	w.store = storetest.Run(t, store.Options{DB: db, Archive: store.ArchiveOptions{For: time.Hour}})
	var err error
	kinds := kind.NewRegistry(append(builtin.Kinds(), custom.Definition()))
	if w.service, err = New(w.store, kinds, slog.New(slog.NewTextHandler(w.log, nil))); err != nil {
		t.Fatal(err)
	}
	kinds.Put(w.service.Kinds()...)
	w.api = api.New(api.Config{
		Store: w.store, Kinds: kinds, Access: accesstest.Control("ad admin shop", "ed edit shop"), Admission: accesstest.NoAdmission{}, OpenAPI: openapi.New(kinds, "test"), Logger: quiet, Version: "test",
	})
	t.Cleanup(func() { w.api.Close(context.Background()) })
	for _, name := range []string{"default", "shop"} {
		w.want(201, "POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
	}
	return w
}

func (w *world) want(code int, method, path, body string) gjson.Result {
	w.Helper()
	return gjson.Parse(accesstest.Caller{TB: w, Handler: w.api}.Want(code, method, path, body).Body)
}

const (
	configMaps = "/api/v1/namespaces/shop/configmaps"
	removals   = "/apis/lifecycle.exeunt.dev/v1/finalizerremovals"
)

// stuck creates a ConfigMap with finalizers and deletes it.
func (w *world) stuck(name string, finalizers ...string) (uid string) {
	w.Helper()
	w.want(201, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":%q,"finalizers":["%s"]}}`, name, strings.Join(finalizers, `","`)))
	return w.want(200, "DELETE", configMaps+"/"+name, "").Get("metadata.uid").String()
}

// removal returns a request for a ConfigMap in shop; more is JSON for the spec.
func removal(name, finalizer, more string) string {
	return fmt.Sprintf(`{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"FinalizerRemoval","spec":{
		"object":{"apiVersion":"v1","kind":"ConfigMap","namespace":"shop","name":%q},"finalizer":%q%s}}`, name, finalizer, more)
}

const because = `,"reason":"its operator is gone"`

func (w *world) events(namespace string) []gjson.Result {
	w.Helper()
	return w.want(200, "GET", "/api/v1/namespaces/"+namespace+"/events", "").Get("items").Array()
}

// TestRemoveNeedsTheVerb: the client needs force-finalize on the object; without it the
// client does not learn whether the object exists. Changing finalizers by an update needs
// update on the finalizers subresource.
func TestRemoveNeedsTheVerb(t *testing.T) {
	each(t, func(w *world) {
		uid := w.stuck("a", "example.com/one", "example.com/two")
		as := func(user, method, path, body string) (int, string) {
			a := accesstest.Caller{TB: t, Handler: w.api}.Do(accesstest.As(accesstest.Request(method, path, body), user))
			return a.Code, a.Body
		}
		byUID := fmt.Sprintf(`{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"FinalizerRemoval","spec":{"object":{"uid":%q},"finalizer":"example.com/one","reason":"x"}}`, uid)
		for _, test := range []struct {
			user, method, path, body string
			code                     int
			says                     string
		}{
			{"ed", "POST", removals, removal("a", "example.com/one", because), 403, `cannot force-finalize resource`},
			{"ed", "POST", removals, byUID, 403, `cannot force-finalize resource`},
			{"ed", "POST", removals, removal("missing", "example.com/one", because), 403, `cannot force-finalize resource`},
			{"ed", "PATCH", configMaps + "/a", `{"metadata":{"finalizers":null}}`, 403, `cannot update resource \"configmaps/finalizers\" in API group \"\" in the namespace \"shop\": cannot change finalizers`},
			{"ed", "PATCH", configMaps + "/a", `{"data":{"a":"b"}}`, 200, ``},
			{"ad", "POST", removals, removal("a", "example.com/one", because), 201, `"finalizers":["example.com/two"]`},
			{"ad", "PATCH", configMaps + "/a", `{"metadata":{"finalizers":null}}`, 200, ``},
		} {
			if code, answer := as(test.user, test.method, test.path, test.body); code != test.code || !strings.Contains(answer, test.says) {
				t.Errorf("%s %s %s %s: %d %s", test.user, test.method, test.path, test.body, code, answer)
			}
		}
	})
}

// TestRemove: the object stays while another finalizer holds it, and is removed in the
// same transaction as the last one; each removal writes an Event, also when the object is
// gone.
func TestRemove(t *testing.T) {
	each(t, func(w *world) {
		uid := w.stuck("a", "example.com/one", "example.com/two")
		got := w.want(201, "POST", removals, removal("a", "example.com/one", because))
		if got.Get("status.gone").Bool() || got.Get("status.finalizers").String() != `["example.com/two"]` || got.Get("status.object.uid").String() != uid {
			t.Errorf("got %s", got)
		}
		if left := w.want(200, "GET", configMaps+"/a", "").Get("metadata.finalizers").String(); left != `["example.com/two"]` {
			t.Errorf("left %s", left)
		}
		before := w.store.Revision()
		if got := w.want(201, "POST", removals, removal("a", "example.com/two", because)); !got.Get("status.gone").Bool() {
			t.Errorf("got %s", got)
		}
		w.want(404, "GET", configMaps+"/a", "")
		if grown := w.store.Revision() - before; grown != 2 {
			t.Errorf("%d revisions, want the removal and its Event", grown)
		}
		events := w.events("shop")
		if len(events) != 2 {
			t.Fatalf("got %d events: %v", len(events), events)
		}
		for _, e := range events {
			if e.Get("involvedObject.uid").String() != uid || e.Get("involvedObject.kind").String() != "ConfigMap" || e.Get("reason").String() != "FinalizerRemoved" ||
				e.Get("type").String() != "Warning" || !strings.Contains(e.Get("message").String(), "removed by tester: its operator is gone") {
				t.Errorf("got %s", e)
			}
		}
		for _, part := range []string{"finalizer=example.com/two", "actor=tester", `reason="its operator is gone"`, "uid=" + uid, "gone=true"} {
			if !strings.Contains(w.log.String(), part) {
				t.Errorf("no %s in the log: %s", part, w.log)
			}
		}
	})
}

// TestRefused: each error names the mistake and the existing finalizers, and nothing
// changes.
func TestRefused(t *testing.T) {
	each(t, func(w *world) {
		w.want(201, "POST", configMaps, `{"metadata":{"name":"active","finalizers":["example.com/one"]}}`)
		w.stuck("a", "example.com/one", "foregroundDeletion")
		w.stuck("o", "orphan")
		w.stuck("g", "lifecycle.exeunt.dev/confirm-cascade")
		w.want(201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"going"}}`)
		w.want(200, "DELETE", "/api/v1/namespaces/going", "")
		before := w.store.Revision()
		object := func(fields string) string {
			return fmt.Sprintf(`{"spec":{"object":{%s},"finalizer":"x.example.com/x"%s}}`, fields, because)
		}
		for name, c := range map[string]struct {
			code int
			body string
			want string
		}{
			"no reason":         {422, removal("a", "example.com/one", ""), "spec.reason: Required value: say why"},
			"blank reason":      {422, removal("a", "example.com/one", `,"reason":"  "`), "spec.reason: Required value"},
			"long reason":       {422, removal("a", "example.com/one", `,"reason":"`+strings.Repeat("x", maxReason+1)+`"`), "spec.reason: Too long"},
			"no finalizer":      {422, removal("a", "", because), "spec.finalizer: Required value"},
			"unknown finalizer": {422, removal("a", "example.com/three", because), "not on ConfigMap a in namespace shop, which has: example.com/one, foregroundDeletion"},
			"unknown object":    {404, removal("b", "example.com/one", because), `configmaps \"b\" not found`},
			"another uid":       {409, strings.Replace(removal("a", "example.com/one", because), `"name":"a"`, `"name":"a","uid":"u"`, 1), "another object has that name now"},
			"not deleted":       {409, removal("active", "example.com/one", because), "is not being deleted"},
			"foreground":        {422, removal("a", "foregroundDeletion", because), "kubectl delete configmap a -n shop --cascade=background"},
			"orphan":            {422, removal("o", "orphan", because), "kubectl delete configmap o -n shop --cascade=background"},
			"guard":             {422, removal("g", "lifecycle.exeunt.dev/confirm-cascade", because), "exeunt why configmap/g -n shop"},
			"content": {422, `{"spec":{"object":{"apiVersion":"v1","kind":"Namespace","name":"going"},"finalizer":"kubernetes"` + because + `}}`,
				"exeunt why namespace/going"},
			"no object":       {422, `{"spec":{"finalizer":"x.example.com/x"` + because + `}}`, "spec.object: Required value"},
			"no name":         {422, object(`"apiVersion":"v1","kind":"ConfigMap"`), "spec.object.name: Required value"},
			"no kind":         {422, object(`"name":"a"`), "spec.object.kind: Required value"},
			"no namespace":    {422, object(`"apiVersion":"v1","kind":"ConfigMap","name":"a"`), "spec.object.namespace: Required value"},
			"one too many":    {422, object(`"apiVersion":"v1","kind":"Namespace","name":"shop","namespace":"shop"`), "lives in no namespace"},
			"bad version":     {422, object(`"apiVersion":"a/b/c","kind":"ConfigMap","name":"a"`), "spec.object.apiVersion"},
			"never stored":    {422, object(`"apiVersion":"lifecycle.exeunt.dev/v1","kind":"FinalizerRemoval","name":"a"`), "have no finalizers"},
			"unknown kind":    {404, object(`"apiVersion":"example.com/v1","kind":"Thing","name":"a"`), `thing.example.com \"a\" not found`},
			"unknown uid":     {404, object(`"uid":"u"`), `objects \"u\" not found`},
			"not a text":      {400, `{"spec":{"finalizer":3}}`, "finalizer"},
			"a name with NUL": {422, object(`"apiVersion":"v1","kind":"ConfigMap","namespace":"shop","name":"a\u0000"`), "must not contain NUL"},
			"a uid with NUL":  {422, object(`"uid":"a\u0000"`), "must not contain NUL"},
		} {
			if got := w.want(c.code, "POST", removals, c.body); !strings.Contains(got.Raw, c.want) {
				t.Errorf("%s: got %s, want %q", name, got.Get("message"), c.want)
			}
		}
		if after := w.store.Revision(); after != before || w.log.Len() > 0 {
			t.Errorf("revision %d, was %d; log: %s", after, before, w.log)
		}
	})
}

// TestDryRun: both forms of a dry run answer as the request would, and nothing changes.
func TestDryRun(t *testing.T) {
	each(t, func(w *world) {
		w.stuck("a", "example.com/one")
		before := w.store.Revision()
		for path, body := range map[string]string{
			removals:                 removal("a", "example.com/one", because+`,"dryRun":true`),
			removals + "?dryRun=All": removal("a", "example.com/one", because),
		} {
			if got := w.want(201, "POST", path, body); !got.Get("status.gone").Bool() {
				t.Errorf("%s: got %s", path, got)
			}
		}
		if after := w.store.Revision(); after != before || w.log.Len() > 0 {
			t.Errorf("revision %d, was %d; log: %s", after, before, w.log)
		}
	})
}

// TestUnservedKind: an object whose definition is gone or broken can be released, by
// plural and group or by uid.
func TestUnservedKind(t *testing.T) {
	each(t, func(w *world) {
		for i, ref := range []string{
			`"apiVersion":"example.com","kind":"things","namespace":"shop","name":"t0"`,
			`"apiVersion":"example.com/v1","kind":"things","namespace":"shop","name":"t1"`,
			`"uid":"uid-2"`,
		} {
			key := object.Key{Kind: "things.example.com", Namespace: "shop", Name: fmt.Sprintf("t%d", i)}
			at := metav1.Unix(2000, 0)
			storetest.Create(t, w.store, storetest.Object(t, key, `,"spec":{"this":"breaks every schema"}`, func(m *metav1.ObjectMeta) {
				m.UID, m.Finalizers = types.UID(fmt.Sprintf("uid-%d", i)), []string{"example.com/one"}
				m.DeletionTimestamp, m.DeletionGracePeriodSeconds = &at, new(int64)
			}))
			got := w.want(201, "POST", removals, fmt.Sprintf(`{"spec":{"object":{%s},"finalizer":"example.com/one"%s}}`, ref, because))
			if !got.Get("status.gone").Bool() || got.Get("status.object.kind").String() != "things" {
				t.Errorf("%s: got %s", ref, got)
			}
			if _, err := w.store.Get(t.Context(), key); !object.Is(err, object.NotFound) {
				t.Errorf("%s: got %v", ref, err)
			}
		}
	})
}

// TestTerminatingNamespace: a terminating namespace accepts no Events, so they go to the
// namespace default. A finalizer in the namespace's spec can be removed too.
func TestTerminatingNamespace(t *testing.T) {
	each(t, func(w *world) {
		w.stuck("a", "example.com/one")
		w.want(201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"other"},"spec":{"finalizers":["kubernetes","example.com/spec"]}}`)
		for _, name := range []string{"shop", "other"} {
			w.want(200, "DELETE", "/api/v1/namespaces/"+name, "")
		}
		w.want(201, "POST", removals, removal("a", "example.com/one", because))
		got := w.want(201, "POST", removals, `{"spec":{"object":{"apiVersion":"v1","kind":"Namespace","name":"other"},"finalizer":"example.com/spec"`+because+`}}`)
		if got.Get("status.gone").Bool() || got.Get("status.finalizers").String() != `["kubernetes"]` {
			t.Errorf("got %s", got)
		}
		if left := w.want(200, "GET", "/api/v1/namespaces/other", "").Get("spec.finalizers").String(); left != `["kubernetes"]` {
			t.Errorf("left %s", left)
		}
		about := map[string]bool{}
		for _, e := range w.events("default") {
			about[e.Get("involvedObject.namespace").String()+"/"+e.Get("involvedObject.name").String()] = true
		}
		if !about["shop/a"] || !about["/other"] || len(w.events("shop")) > 0 {
			t.Errorf("events about %v in default, %d in shop", about, len(w.events("shop")))
		}
	})
}

// TestTogether: many clients remove the same finalizer concurrently. One succeeds, the
// others learn that the finalizer or the object is gone.
func TestTogether(t *testing.T) {
	each(t, func(w *world) {
		w.stuck("a", "example.com/one")
		spec := v1.FinalizerRemovalSpec{
			Object:    v1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "a"},
			Finalizer: "example.com/one", Reason: "a race",
		}
		var group sync.WaitGroup
		var mu sync.Mutex
		done := 0
		for range 8 {
			group.Go(func() {
				if _, err := w.service.RemoveFinalizer(t.Context(), spec, kindtest.Almighty()); err == nil {
					mu.Lock()
					done++
					mu.Unlock()
				}
			})
		}
		group.Wait()
		if events := w.events("shop"); done != 1 || len(events) != 1 {
			t.Errorf("%d requests succeeded, with %d events", done, len(events))
		}
	})
}
