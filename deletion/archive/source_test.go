package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/deletion/deletiontest"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// list reads all pages of a list as "kind/name".
func (w *world) list(q kind.SourceQuery, selector string) []string {
	w.Helper()
	var err error
	if q.Fields, err = fields.ParseSelector(selector); err != nil {
		w.Fatal(err)
	}
	var names []string
	for {
		got, err := source{w.archive}.List(w.Context(), kindtest.Almighty(), q)
		if err != nil {
			w.Fatalf("list %q: %v", selector, err)
		}
		page := got.(*v1.ArchivedObjectList)
		if q.Limit > 0 && len(page.Items) > int(q.Limit) {
			w.Fatalf("%d items in a page of %d", len(page.Items), q.Limit)
		}
		for _, o := range page.Items {
			names = append(names, o.Spec.Kind+"/"+o.Spec.Name)
		}
		if q.Continue = page.Continue; q.Continue == "" {
			return names
		}
	}
}

func TestList(t *testing.T) {
	each(t, func(w *world) {
		shop := w.create("namespaces:/shop")
		a := w.create("configmaps:n/a")
		w.create("configmaps:n/child", a)
		w.delete(a, background)
		w.create("configmaps:shop/b")
		w.create("secrets:shop/s")
		w.delete(shop, background)
		for _, test := range []struct {
			q        kind.SourceQuery
			selector string
			want     string
		}{
			{want: "Namespace/shop Secret/s ConfigMap/b ConfigMap/child ConfigMap/a"},
			{q: kind.SourceQuery{Limit: 2}, want: "Namespace/shop Secret/s ConfigMap/b ConfigMap/child ConfigMap/a"},
			{q: kind.SourceQuery{Namespace: "n"}, want: "ConfigMap/child ConfigMap/a"},
			{q: kind.SourceQuery{Namespace: "shop"}, want: "Namespace/shop Secret/s ConfigMap/b"},
			{selector: "spec.kind=ConfigMap", want: "ConfigMap/b ConfigMap/child ConfigMap/a"},
			{selector: "spec.kind=secrets", want: "Secret/s"},
			{selector: "spec.kind=ns", want: "Namespace/shop"},
			{selector: "spec.name=a", want: "ConfigMap/a"},
			{selector: "spec.actor=alice", want: "Namespace/shop ConfigMap/a"},
			{selector: "spec.requestedBy=alice,spec.kind=cm", want: "ConfigMap/b ConfigMap/child ConfigMap/a"},
			{selector: "spec.requestedBy=system:garbage-collector", want: ""},
			{selector: "spec.actor=system:garbage-collector,spec.kind=cm", want: "ConfigMap/b ConfigMap/child"},
			{selector: "spec.cascade=" + string(a.UID), want: "ConfigMap/child ConfigMap/a"},
			{q: kind.SourceQuery{Limit: 1}, selector: "spec.cascade=" + string(shop.UID), want: "Namespace/shop Secret/s ConfigMap/b"},
			{selector: "spec.cascade=" + string(shop.UID) + ",spec.kind=cm", want: "ConfigMap/b"},
			{selector: "metadata.name=" + string(a.UID), want: "ConfigMap/a"},
			{selector: "metadata.name=" + string(a.UID) + ",metadata.namespace=shop", want: ""},
			{q: kind.SourceQuery{Labels: labels.SelectorFromSet(labels.Set{"a": "b"})}, want: ""},
		} {
			if got := strings.Join(w.list(test.q, test.selector), " "); got != test.want {
				w.Errorf("%+v %q:\ngot  %q\nwant %q", test.q, test.selector, got, test.want)
			}
		}
	})
}

func TestListRefuses(t *testing.T) {
	each(t, func(w *world) {
		for name, q := range map[string]kind.SourceQuery{
			"a token of another list": {Continue: "abc"},
			"the token zero":          {Continue: "0"},
			"an unknown field":        {Fields: fields.OneTermEqualSelector("spec.size", "1")},
			"an inequality":           {Fields: fields.OneTermNotEqualSelector("spec.name", "a")},
			"two namespaces":          {Namespace: "n", Fields: fields.OneTermEqualSelector("metadata.namespace", "m")},
			"an unknown kind":         {Fields: fields.OneTermEqualSelector("spec.kind", "gizmo")},
			"an ambiguous kind":       {Fields: fields.OneTermEqualSelector("spec.kind", "thing")},
		} {
			if name == "an ambiguous kind" {
				for _, group := range []string{"a.example", "b.example"} {
					w.kinds.Put(&kind.Kind{Group: group, Name: "Thing", Plural: "things", Storage: "things." + group})
				}
			}
			if _, err := (source{w.archive}).List(w.Context(), kindtest.Almighty(), q); !object.Is(err, object.BadRequest) {
				w.Errorf("%s: got error %v, want a bad request", name, err)
			}
		}
	})
}

func TestGetAndPurge(t *testing.T) {
	each(t, func(w *world) {
		s := source{w.archive}
		o := w.create("configmaps:n/a")
		w.delete(o, background)
		got, err := s.Get(w.Context(), kindtest.Almighty(), "n", string(o.UID))
		if err != nil {
			w.Fatal(err)
		}
		archived := got.(*v1.ArchivedObject)
		var original struct{ Kind, APIVersion string }
		if err := json.Unmarshal(archived.Object.Raw, &original); err != nil || original.Kind != "ConfigMap" || original.APIVersion != "v1" {
			w.Errorf("the original is %s: %v", archived.Object.Raw, err)
		}
		if !strings.Contains(string(archived.Object.Raw), fmt.Sprintf(`"resourceVersion":"%d"`, o.Revision)) || archived.Spec.Actor != "alice" || archived.UID != o.UID {
			w.Errorf("got %+v", archived)
		}
		if age := time.Since(archived.Spec.RemovedAt.Time); age < 0 || age > time.Minute {
			w.Errorf("removed %v ago", age)
		}
		for _, wrong := range [][2]string{{"m", string(o.UID)}, {"n", "unknown"}} {
			if _, err := s.Get(w.Context(), kindtest.Almighty(), wrong[0], wrong[1]); !object.Is(err, object.NotFound) {
				w.Errorf("get %v: %v", wrong, err)
			}
			if _, err := s.Delete(w.Context(), kindtest.Almighty(), wrong[0], wrong[1], false); !object.Is(err, object.NotFound) {
				w.Errorf("delete %v: %v", wrong, err)
			}
		}
		reader := kindtest.Almighty()
		reader.Authorize = func(verb string, r schema.GroupResource, _, name string) error {
			if verb == "get" {
				return nil
			}
			return apierrors.NewForbidden(r, name, errors.New("reads only"))
		}
		for _, dryRun := range []bool{true, false} {
			if _, err := s.Delete(w.Context(), reader, "n", string(o.UID), dryRun); !apierrors.IsForbidden(err) {
				w.Errorf("purge by a reader, dry run %v: %v", dryRun, err)
			}
		}
		for _, dryRun := range []bool{true, false} {
			if _, err := s.Delete(w.Context(), kindtest.Almighty(), "n", string(o.UID), dryRun); err != nil {
				w.Errorf("purge, dry run %v: %v", dryRun, err)
			}
		}
		if _, err := s.Delete(w.Context(), kindtest.Almighty(), "n", string(o.UID), false); !object.Is(err, object.NotFound) {
			w.Errorf("purge again: %v", err)
		}
		if _, err := w.archive.Restore(w.Context(), kindtest.Almighty(), v1.RestoreSpec{UID: o.UID}); !object.Is(err, object.BadRequest) {
			w.Errorf("restore what was purged: %v", err)
		}
	})
}

// TestWaitForKind: the restore waits for the kind of a definition that was just restored,
// and for no other.
func TestWaitForKind(t *testing.T) {
	each(t, func(w *world) {
		w.archive.opts.KindWait = 20 * time.Second
		r := w.archive.begin(kindtest.Almighty(), v1.RestoreSpec{}, w.names())
		if _, err := r.version(w.Context(), "gizmos.example.com"); err == nil {
			w.Error("a kind that the server does not serve was found")
		}
		cm, _ := w.kinds.Snapshot().Stored("configmaps")
		w.kinds.Put(&kind.Kind{Group: "example.com", Plural: "gizmos", Storage: "gizmos.example.com", Versions: cm.Versions, Refuse: "terminating"})
		if _, err := r.version(w.Context(), "gizmos.example.com"); err == nil {
			w.Error("the kind of a removed definition was found, because it is still served")
		}
		r.made[object.Key{Kind: object.Definitions, Name: "gizmos.example.com"}] = true
		go func() {
			w.kinds.Put(&kind.Kind{Group: "example.com", Plural: "gizmos", Storage: "gizmos.example.com", Versions: cm.Versions})
		}()
		if _, err := r.version(w.Context(), "gizmos.example.com"); err != nil {
			w.Error(err)
		}
	})
}

// TestExpiredWhilePlanned: a row may expire between the plan and its restore.
func TestExpiredWhilePlanned(t *testing.T) {
	each(t, func(w *world) {
		o := w.create("configmaps:n/a")
		w.delete(o, background)
		candidates := w.removed(target{UID: o.UID})
		if _, err := w.store.ForgetArchived(w.Context(), []int64{candidates[0].id}); err != nil {
			w.Fatal(err)
		}
		result, err := w.archive.begin(kindtest.Almighty(), v1.RestoreSpec{}, w.names()).one(w.Context(), candidates[0])
		if err != nil || result.Outcome != v1.Failed || result.NewUID != "" {
			w.Errorf("got %+v, %v", result, err)
		}
	})
}

// TestInvalidNow: an object that today's rules refuse is not restored, with the reason.
func TestInvalidNow(t *testing.T) {
	each(t, func(w *world) {
		key := keyOf("configmaps:n/x")
		body := []byte(`{"metadata":{"name":"x","namespace":"n","uid":"odd"},"data":{"no/key":"x"}}`)
		m, err := object.ParseMeta(body)
		if err != nil {
			w.Fatal(err)
		}
		o, err := w.store.Create(w.Context(), store.CreateRequest{Key: key, Meta: m, Body: body})
		if err != nil {
			w.Fatal(err)
		}
		w.delete(o, background)
		status := w.restore(v1.RestoreSpec{UID: "odd"})
		w.want(status, "ConfigMap/x failed")
		if !strings.Contains(status.Results[0].Reason, "no/key") {
			w.Errorf("reason %q", status.Results[0].Reason)
		}
	})
}

// TestPagesOfWhatIsVisible: rows that the client may not get take no place in a page, and do
// not show in a continue token.
func TestPagesOfWhatIsVisible(t *testing.T) {
	each(t, func(w *world) {
		for range 3 {
			w.delete(w.create("secrets:n/s"), background)
			w.delete(w.create("configmaps:n/c"), background)
		}
		for resource, want := range map[string]int{"configmaps": 3, "secrets": 3, "pods": 0} {
			readable := []string{resource}
			client := deletiontest.MayGet(&readable)
			got := 0
			for q := (kind.SourceQuery{Namespace: "n", Limit: 1}); ; got++ {
				list, err := source{w.archive}.List(w.Context(), client, q)
				if err != nil {
					w.Fatal(err)
				}
				page := list.(*v1.ArchivedObjectList)
				q.Continue = page.Continue
				if len(page.Items) != 1 {
					if got > 0 || page.Continue != "" {
						w.Errorf("%s: page %d has %d objects and continues at %q", resource, got, len(page.Items), page.Continue)
					}
					break
				}
				if q.Continue == "" {
					got++
					break
				}
			}
			if got != want {
				w.Errorf("%s: %d pages, want %d", resource, got, want)
			}
			shown, err := cascades{w.archive}.List(w.Context(), client, kind.SourceQuery{Namespace: "n", Limit: 2})
			if n := len(shown.(*v1.CascadeList).Items); err != nil || n != min(want, 2) {
				w.Errorf("%s: %d cascades, %v", resource, n, err)
			}
		}
	})
}
