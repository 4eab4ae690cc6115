package archive

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

// TestLeftBehind: the restore of one object reports how many objects of its cascade stay
// in the archive; WithCascade restores them too.
func TestLeftBehind(t *testing.T) {
	each(t, func(w *world) {
		ns := w.create("namespaces:/shop")
		for _, name := range []string{"a", "b", "c"} {
			w.create("configmaps:shop/" + name)
		}
		w.delete(ns, background)
		name := &v1.ObjectName{Kind: "ns", Name: "shop"}
		for _, dryRun := range []bool{true, false} {
			status := w.restore(v1.RestoreSpec{Object: name, DryRun: dryRun})
			w.want(status, "Namespace/shop created")
			if status.LeftBehind != 3 || status.Cascade != string(ns.UID) {
				w.Errorf("dry run %v: %d objects of cascade %q are left behind", dryRun, status.LeftBehind, status.Cascade)
			}
		}
		w.want(w.restore(v1.RestoreSpec{Object: &v1.ObjectName{Kind: "cm", Namespace: "shop", Name: "b"}}), "ConfigMap/b created")
		said := ""
		call := kind.Call{Client: asUser("alice"), Warn: func(text string) { said += text }}
		if _, err := w.archive.answer(w.Context(), &v1.Restore{Spec: v1.RestoreSpec{Object: name, DryRun: true}}, call); err != nil || !strings.HasPrefix(said, "2 more objects of cascade") {
			w.Errorf("the client is told %q, %v", said, err)
		}
		if status := w.restore(v1.RestoreSpec{Object: name}); status.LeftBehind != 2 {
			w.Errorf("%d objects are left behind, want 2", status.LeftBehind)
		}
		status := w.restore(v1.RestoreSpec{Object: name, WithCascade: true})
		w.want(status, "Namespace/shop skipped", "ConfigMap/a created", "ConfigMap/b skipped", "ConfigMap/c created")
		if status.LeftBehind != 0 || status.Cascade != "" || status.Conflicts != 0 {
			w.Errorf("restored with its cascade: %+v", status)
		}
		if status := w.restore(v1.RestoreSpec{UID: ns.UID}); status.LeftBehind != 0 {
			w.Errorf("all objects are restored, but %d are reported as left behind", status.LeftBehind)
		}
		if _, err := w.archive.Restore(w.Context(), kindtest.Almighty(), v1.RestoreSpec{Cascade: string(ns.UID), WithCascade: true}); !object.Is(err, object.BadRequest) {
			w.Errorf("cascade and withCascade: %v", err)
		}
	})
}

// TestMergeNamespace: a cascade is restored into a namespace that exists again, and each
// conflict is named.
func TestMergeNamespace(t *testing.T) {
	each(t, func(w *world) {
		ns := w.create("namespaces:/shop")
		for _, name := range []string{"a", "b", "c"} {
			w.create("configmaps:shop/" + name)
		}
		w.delete(ns, background)
		again := w.create("namespaces:/shop")
		taken := map[string]types.UID{"a": w.create("configmaps:shop/a").UID, "c": w.create("configmaps:shop/c").UID}
		for _, dryRun := range []bool{true, false} {
			status := w.restore(v1.RestoreSpec{Cascade: string(ns.UID), DryRun: dryRun})
			w.want(status, "Namespace/shop skipped", "ConfigMap/a skipped", "ConfigMap/b created", "ConfigMap/c skipped")
			if r := status.Results[0]; r.ConflictsWith != "" || !strings.Contains(r.Reason, "exists again (uid "+string(again.UID)) {
				w.Errorf("the namespace: %+v", r)
			}
			if status.Conflicts != 2 || status.Results[1].ConflictsWith != taken["a"] || status.Results[3].ConflictsWith != taken["c"] {
				w.Errorf("conflicts: %+v", status)
			}
		}
		if !w.exists("configmaps:shop/b") {
			w.Error("b is not in the namespace")
		}
	})
}

// TestActors: every object of a cascade records the client, its request, and the actor
// that removed it, also if the removal is late, and over several transactions of the
// collector.
func TestActors(t *testing.T) {
	each(t, func(w *world) {
		owner := w.create("deployments.apps:n/owner")
		child := w.create("configmaps:n/child", owner)
		lingers := w.createWith("configmaps:n/lingers", func(m *metav1.ObjectMeta) {
			m.OwnerReferences, m.Finalizers = w.OwnedBy(child), []string{"x/y"}
		})
		var below []object.Object
		for i := range 9 { // in sets
			below = append(below, w.create(fmt.Sprintf("configmaps:n/below-%d", i), lingers))
		}
		w.delete(owner, background)
		held, m := w.get("configmaps:n/lingers")
		m.Finalizers = nil
		if _, err := w.store.Update(w.Context(), store.UpdateRequest{Key: held.Key, IfRevision: held.Revision, Meta: m, Body: held.Body, Remove: true, Actor: "bob"}); err != nil {
			w.Fatal(err)
		}
		w.Collect()
		actors := func(o object.Object) [4]string {
			got, err := source{w.archive}.Get(w.Context(), kindtest.Almighty(), "n", string(o.UID))
			if err != nil {
				w.Fatal(err)
			}
			spec := got.(*v1.ArchivedObject).Spec
			return [4]string{spec.RequestedBy, spec.Actor, spec.Cascade, spec.RequestID}
		}
		if got, want := actors(owner), [4]string{"alice", "alice", string(owner.UID), "delete-owner"}; got != want {
			w.Errorf("owner: %q, want %q", got, want)
		}
		want := [4]string{"alice", "system:garbage-collector", string(owner.UID), "delete-owner"}
		for _, o := range append(below, child, lingers) {
			if got := actors(o); got != want {
				w.Errorf("%s: %q, want %q", o.Name, got, want)
			}
		}
	})
}

const widgetDefinition = `{"metadata":{"name":"widgets.example.com","uid":"%s"},"spec":{"group":"example.com","scope":"Namespaced",` +
	`"names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList","shortNames":["wd"]},` +
	`"versions":[{"name":"v1","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}},{"name":"v2","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`

// deleteWidgets creates a definition with an object, and deletes them as the definition
// controller does.
func (w *world) deleteWidgets() (definition, first object.Object) {
	w.Helper()
	put := func(name string, body string) object.Object {
		m, err := object.ParseMeta([]byte(body))
		if err != nil {
			w.Fatal(err)
		}
		return storetest.Create(w, w.store, store.CreateRequest{Key: keyOf(name), Meta: m, Body: []byte(body)})
	}
	definition = put("customresourcedefinitions.apiextensions.k8s.io:/widgets.example.com", fmt.Sprintf(widgetDefinition, "crd-1"))
	first = put("widgets.example.com:n/first", `{"metadata":{"name":"first","namespace":"n","uid":"first-1"},"spec":{}}`)
	for _, o := range []object.Object{first, definition} {
		_, err := w.store.Delete(w.Context(), store.DeleteRequest{
			Key: o.Key, Actor: "system:definition-controller", Requester: "alice", Cascade: string(definition.UID),
		})
		if err != nil {
			w.Fatal(err)
		}
	}
	return definition, first
}

// TestDefaultAccountIsNotMissing: the ServiceAccount that the server creates with a namespace is not restored, and
// the restore is complete without it.
func TestDefaultAccountIsNotMissing(t *testing.T) {
	each(t, func(w *world) {
		ns := w.create("namespaces:/m")
		w.createWith("serviceaccounts:m/default", func(m *metav1.ObjectMeta) { m.ManagedFields = nil })
		w.create("configmaps:m/a")
		w.delete(ns, background)
		if s := w.restore(v1.RestoreSpec{Cascade: string(ns.UID)}); s.Created != 2 || s.LeftBehind != 0 || !s.Complete {
			w.Errorf("got %+v", s)
		}
	})
}

// TestChangedDefaultAccount: a ServiceAccount "default" that a client had changed comes back, also if the server has
// created one in the restored namespace before. It does not replace one that a client has changed since.
func TestChangedDefaultAccount(t *testing.T) {
	each(t, func(w *world) {
		ns := w.create("namespaces:/m")
		account := keyOf("serviceaccounts:m/default")
		put := func(fields string) object.Object {
			r := storetest.Object(w, account, fields)
			r.InNamespace = true
			return storetest.Create(w, w.store, r)
		}
		changed := put(`,"imagePullSecrets":[{"name":"registry"}]`)
		for _, since := range []string{"", `,"imagePullSecrets":[{"name":"other"}]`} {
			w.delete(ns, background)
			w.restore(v1.RestoreSpec{UID: ns.UID})
			since := put(since)
			dry := w.restore(v1.RestoreSpec{UID: changed.UID, DryRun: true})
			status := w.restore(v1.RestoreSpec{UID: changed.UID})
			if diff := cmp.Diff(dry.Results, status.Results); diff != "" {
				w.Errorf("the dry run (-) differs from the run (+):\n%s", diff)
			}
			is, _ := w.get("serviceaccounts:m/default")
			if isDefault(account, since.Body) != (is.UID == changed.UID && status.Created == 1) || is.UID != changed.UID && status.Conflicts != 1 {
				w.Errorf("%s: %+v", is.Body, status)
			}
		}
	})
}

// TestLateDependent: an object that refers to an owner which is gone belongs to the owner's cascade.
func TestLateDependent(t *testing.T) {
	each(t, func(w *world) {
		owner := w.create("configmaps:n/owner")
		w.delete(owner, background)
		late := w.create("configmaps:n/late", owner)
		w.Collect()
		if r, err := w.archive.byUID(w.Context(), late.UID); err != nil || r == nil || r.Cascade != string(owner.UID) {
			w.Errorf("the archive has %+v, %v", r, err)
		}
	})
}

// TestPodBeforeItsAccount: a restored pod is complete. Where a policy judges pods, it is not refused because its
// service account comes back after it.
func TestPodBeforeItsAccount(t *testing.T) {
	each(t, func(w *world) {
		w.Policed()
		ns := w.create("namespaces:/shop")
		pod := strings.Replace(bodies["pods"], `"serviceAccount":"default","serviceAccountName":"default"`, `"serviceAccount":"app","serviceAccountName":"app"`, 1)
		r := storetest.Object(w, keyOf("pods:shop/web"), pod)
		r.InNamespace = true
		storetest.Create(w, w.store, r)
		w.create("serviceaccounts:shop/app")
		w.delete(ns, background)
		w.Release(keyOf("pods:shop/web"))
		w.Collect()
		for _, dryRun := range []bool{true, false} {
			status, err := w.archive.Restore(w.Context(), w.Client(), v1.RestoreSpec{UID: ns.UID, WithCascade: true, DryRun: dryRun})
			if err != nil {
				w.Fatal(err)
			}
			w.want(status, "Namespace/shop created", "Pod/web created", "ServiceAccount/app created")
		}
	})
}

// TestRemovedKind: the archive knows the names of a kind whose definition is gone, also
// from the archived definition, and says how to restore the kind.
func TestRemovedKind(t *testing.T) {
	each(t, func(w *world) {
		definition, first := w.deleteWidgets()
		for _, word := range []string{"widget", "Widget", "widgets", "wd", "widgets.example.com", "widget.example.com"} {
			if got := strings.Join(w.list(kind.SourceQuery{}, "spec.kind="+word), " "); got != "Widget/first" {
				w.Errorf("list %s: %q", word, got)
			}
		}
		got, err := source{w.archive}.Get(w.Context(), kindtest.Almighty(), "n", string(first.UID))
		if err != nil {
			w.Fatal(err)
		}
		if o := got.(*v1.ArchivedObject); o.Spec.APIVersion != "example.com/v2" || !strings.Contains(string(o.Object.Raw), `"kind":"Widget"`) {
			w.Errorf("archived: %+v, %s", o.Spec, o.Object.Raw)
		}
		name := &v1.ObjectName{Kind: "widget", Namespace: "n", Name: "first"}
		status := w.restore(v1.RestoreSpec{Object: name})
		w.want(status, "Widget/first failed")
		if r := status.Results[0].Reason; !strings.Contains(r, "CustomResourceDefinition widgets.example.com was removed with it") ||
			!strings.Contains(r, "exeunt restore --cascade "+string(definition.UID)) {
			w.Errorf("reason %q", r)
		}
		w.want(w.restore(v1.RestoreSpec{Object: name, WithCascade: true, DryRun: true}), "CustomResourceDefinition/widgets.example.com created", "Widget/first created")
		_, err = w.archive.Restore(w.Context(), kindtest.Almighty(), v1.RestoreSpec{Object: &v1.ObjectName{Kind: "widget", Namespace: "n", Name: "second"}})
		if !object.Is(err, object.BadRequest) || !strings.Contains(err.Error(), "no archived widget is named second") {
			w.Errorf("another name: %v", err)
		}

		archived, err := w.archive.byUID(w.Context(), definition.UID)
		if err != nil {
			w.Fatal(err)
		}
		if _, err := w.store.ForgetArchived(w.Context(), []int64{archived.ID}); err != nil {
			w.Fatal(err)
		}
		status = w.restore(v1.RestoreSpec{Object: name})
		w.want(status, "Widget/first failed")
		if r := status.Results[0].Reason; !strings.Contains(r, "create or restore its CustomResourceDefinition") {
			w.Errorf("reason %q", r)
		}
	})
}

// TestRemovedKindElsewhere: for an object that was deleted before its definition, the
// error says to restore the definition first.
func TestRemovedKindElsewhere(t *testing.T) {
	each(t, func(w *world) {
		w.delete(w.create("widgets.example.com:n/early"), background)
		w.deleteWidgets()
		status := w.restore(v1.RestoreSpec{Object: &v1.ObjectName{Kind: "wd", Namespace: "n", Name: "early"}})
		w.want(status, "Widget/early failed")
		if r := status.Results[0].Reason; !strings.Contains(r, "first: exeunt restore customresourcedefinition/widgets.example.com") {
			w.Errorf("reason %q", r)
		}
	})
}

// TestServedAndRemoved: if a served and a removed kind have the same name, a client must
// say which one it means.
func TestServedAndRemoved(t *testing.T) {
	each(t, func(w *world) {
		w.deleteWidgets()
		w.kinds.Put(&kind.Kind{Group: "other.example", Name: "Widget", Plural: "widgets", Singular: "widget", Storage: "widgets.other.example"})
		_, err := w.archive.storageOf(w.Context(), kindtest.Almighty(), w.names(), v1.ObjectName{APIVersion: "", Kind: "widget"})
		if !object.Is(err, object.BadRequest) || !strings.Contains(err.Error(), "widgets.example.com, widgets.other.example") {
			w.Errorf("ambiguous: %v", err)
		}
		for apiVersion, want := range map[string]string{"example.com/v2": "widgets.example.com", "other.example/v1": "widgets.other.example"} {
			if got, err := w.archive.storageOf(w.Context(), kindtest.Almighty(), w.names(), v1.ObjectName{APIVersion: apiVersion, Kind: "widget"}); got != want || err != nil {
				w.Errorf("%s: %q, %v", apiVersion, got, err)
			}
		}
		// A definition that exists again is one kind, not two of a name.
		w.kinds.Put(&kind.Kind{Group: "example.com", Name: "Widget", Plural: "widgets", Singular: "widget", Storage: "widgets.example.com"})
		if got, err := w.archive.storageOf(w.Context(), kindtest.Almighty(), w.names(), v1.ObjectName{APIVersion: "example.com/v1", Kind: "widget"}); got != "widgets.example.com" || err != nil {
			w.Errorf("defined again: %q, %v", got, err)
		}
	})
}

// TestNotesExpire: names and references are removed with the rows to which they belong.
func TestNotesExpire(t *testing.T) {
	each(t, func(w *world) {
		w.deleteWidgets()
		w.family()
		count := func() (n int64) {
			if _, err := w.db.Row(w.Context(), `SELECT (SELECT count(*) FROM archive_kinds) + (SELECT count(*) FROM dropped_references)`, nil, &n); err != nil {
				w.Fatal(err)
			}
			return n
		}
		if n := count(); n != 2 {
			w.Fatalf("%d notes, want 2", n)
		}
		storetest.Run(w, store.Options{
			DB: w.db, Archive: store.ArchiveOptions{For: time.Hour}, CompactEvery: 10 * time.Millisecond,
			Now: func() time.Time { return time.Now().Add(2 * time.Hour) },
		})
		dbtest.Await(w, "the notes are gone", func() bool { return count() == 0 })
	})
}
