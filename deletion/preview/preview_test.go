package preview

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/deletion"
	"github.com/exeunt/exeunt/deletion/deletiontest"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// lines returns the items, one per line.
func lines(items []v1.Item) string {
	var b strings.Builder
	for _, item := range items {
		mark := ""
		if item.Uncertain {
			mark = "?"
		}
		fmt.Fprintf(&b, "%s %s %s%s: %s\n", item.Kind, item.Name, item.Action, mark, item.Reason)
	}
	return b.String()
}

// TestPreview has one row for each outcome with its reason. After the preview the test
// does the deletion, which must have the predicted result.
func TestPreview(t *testing.T) {
	hold := []string{"example.com/hold"}
	for name, test := range map[string]struct {
		prepare func(w *world) object.Object
		policy  metav1.DeletionPropagation
		want    string
	}{
		"alone": {
			prepare: func(w *world) object.Object { return w.Create(thing{Namespace: "n", Name: "a"}) },
			policy:  metav1.DeletePropagationBackground,
			want:    "ConfigMap a Delete: the object itself\n",
		},
		"kept by another owner": {
			prepare: func(w *world) object.Object {
				a := w.Create(thing{Namespace: "n", Name: "a"})
				b := w.Create(thing{Namespace: "n", Name: "b"})
				w.Create(thing{Namespace: "n", Name: "c", Owners: w.OwnedBy(a, b)})
				return a
			},
			policy: metav1.DeletePropagationBackground,
			want:   "ConfigMap a Delete: the object itself\nConfigMap c Keep: also owned by ConfigMap b, which stays\n",
		},
		"a held dependent keeps its own until it goes": {
			prepare: func(w *world) object.Object {
				a := w.Create(thing{Namespace: "n", Name: "a"})
				b := w.Create(thing{Namespace: "n", Name: "b", Owners: w.OwnedBy(a), Finalizers: hold})
				c := w.Create(thing{Namespace: "n", Name: "c", Owners: w.OwnedBy(b)})
				w.Create(thing{Namespace: "n", Name: "d", Owners: w.OwnedBy(c)})
				return a
			},
			policy: metav1.DeletePropagationBackground,
			want: "ConfigMap a Delete: the object itself\nConfigMap b Block: held by finalizer example.com/hold\n" +
				"ConfigMap c Wait: goes when ConfigMap b goes\nConfigMap d Wait: goes when ConfigMap c goes\n",
		},
		"in the foreground it waits for what blocks": {
			prepare: func(w *world) object.Object {
				a := w.Create(thing{Namespace: "n", Name: "a"})
				b := w.Create(thing{Namespace: "n", Name: "b", Owners: w.OwnedBy(a), Finalizers: hold})
				w.Create(thing{Namespace: "n", Name: "c", Owners: w.OwnedBy(b)})
				return a
			},
			policy: metav1.DeletePropagationForeground,
			want: "ConfigMap a Wait: waits for dependents that block it\nConfigMap b Block: held by finalizer example.com/hold\n" +
				"ConfigMap c Delete: owned by ConfigMap b\n",
		},
		"one that does not block is not waited for": {
			prepare: func(w *world) object.Object {
				a := w.Create(thing{Namespace: "n", Name: "a"})
				w.Create(thing{Namespace: "n", Name: "b", Owners: []metav1.OwnerReference{w.Reference(a.Key, a.UID, false)}, Finalizers: hold})
				return a
			},
			policy: metav1.DeletePropagationForeground,
			want:   "ConfigMap a Delete: the object itself, after its dependents\nConfigMap b Block: held by finalizer example.com/hold\n",
		},
		"one that an unserved kind keeps does not block, and goes after its owner": {
			prepare: func(w *world) object.Object {
				a := w.Create(thing{Namespace: "n", Name: "a"})
				owners := append(w.OwnedBy(a, a), w.Reference(a.Key, a.UID, true))
				owners[2].APIVersion, owners[2].Kind = "example.org/v1", "Gadget"
				w.Create(thing{Namespace: "n", Name: "b", Owners: owners, Finalizers: hold})
				return a
			},
			policy: metav1.DeletePropagationForeground,
			want:   "ConfigMap a Delete: the object itself, after its dependents\nConfigMap b Block: held by finalizer example.com/hold\n",
		},
		"one that an unserved kind keeps has its own grace period": {
			prepare: func(w *world) object.Object {
				a := w.Create(thing{Namespace: "n", Name: "a", Passes: "0"})
				owners := w.OwnedBy(a, a)
				owners[1].APIVersion, owners[1].Kind = "example.org/v1", "Gadget"
				w.Create(thing{Kind: "pods", Namespace: "n", Name: "b", Owners: owners, Rest: `,"spec":{"nodeName":"node","terminationGracePeriodSeconds":30}`})
				return a
			},
			policy: metav1.DeletePropagationBackground,
			want:   "ConfigMap a Delete: the object itself\nPod b Block: has 30s of grace\n",
		},
		"an owner passes its grace period on": {
			prepare: func(w *world) object.Object {
				a := w.Create(thing{Namespace: "n", Name: "a", Passes: "0"})
				w.Create(thing{Kind: "pods", Namespace: "n", Name: "b", Owners: w.OwnedBy(a), Rest: deletiontest.OnNode})
				return a
			},
			policy: metav1.DeletePropagationBackground,
			want:   "ConfigMap a Delete: the object itself\nPod b Delete: owned by ConfigMap a\n",
		},
		"an owner passes a longer grace period on": {
			prepare: func(w *world) object.Object {
				a := w.Create(thing{Namespace: "n", Name: "a", Passes: "7"})
				b := w.Create(thing{Namespace: "n", Name: "b", Owners: w.OwnedBy(a)})
				w.Create(thing{Kind: "pods", Namespace: "n", Name: "c", Owners: w.OwnedBy(b), Rest: deletiontest.OnNode})
				return a
			},
			policy: metav1.DeletePropagationForeground,
			want: "ConfigMap a Wait: waits for dependents that block it\nConfigMap b Wait: waits for dependents that block it\n" +
				"Pod c Block: has 7s of grace\n",
		},
		"what a pod of a namespace owns goes as its own finalizer says": {
			prepare: func(w *world) object.Object {
				p := w.Create(thing{Kind: "pods", Namespace: "n", Name: "p"})
				a := w.Create(thing{Namespace: "n", Name: "a", Owners: w.OwnedBy(p), Finalizers: []string{metav1.FinalizerDeleteDependents}})
				w.Create(thing{Namespace: "n", Name: "b", Owners: w.OwnedBy(a), Finalizers: hold})
				return w.home
			},
			policy: metav1.DeletePropagationBackground,
			want: "Namespace n Wait: waits for what is left in it\nPod p Delete: in namespace n, which is deleted\n" +
				"ConfigMap a Wait: waits for dependents that block it\nConfigMap b Block: held by finalizer example.com/hold\n",
		},
		"orphaning drops references that dangle": {
			prepare: func(w *world) object.Object {
				a := object.Key{Kind: "configmaps", Namespace: "n", Name: "a"}
				misnamed := w.Reference(a, "uid-a", true)
				misnamed.Name = "not-a"
				w.Create(thing{Namespace: "n", Name: "b", Owners: []metav1.OwnerReference{misnamed}})
				return w.Create(thing{Namespace: "n", Name: "a", UID: "uid-a"})
			},
			policy: metav1.DeletePropagationOrphan,
			want:   "ConfigMap b Orphan: orphaned by ConfigMap not-a\nConfigMap a Delete: the object itself\n",
		},
		"a circle ends": {
			prepare: func(w *world) object.Object {
				b := w.Reference(object.Key{Kind: "configmaps", Namespace: "n", Name: "b"}, "uid-b", true)
				a := w.Create(thing{Namespace: "n", Name: "a", Owners: []metav1.OwnerReference{b}})
				w.Create(thing{Namespace: "n", Name: "b", UID: "uid-b", Owners: w.OwnedBy(a)})
				return a
			},
			policy: metav1.DeletePropagationForeground,
			want:   "ConfigMap a Delete: the object itself, after its dependents\nConfigMap b Delete: owned by ConfigMap a\n",
		},
		"which of two is let go first is not promised": {
			prepare: func(w *world) object.Object {
				a := w.Create(thing{Namespace: "n", Name: "a"})
				b := w.Create(thing{Namespace: "n", Name: "b", Owners: w.OwnedBy(a)})
				c := w.Create(thing{Namespace: "n", Name: "c", Owners: w.OwnedBy(b)})
				w.Create(thing{Namespace: "n", Name: "d", Owners: w.OwnedBy(b, c), Finalizers: hold})
				return a
			},
			policy: metav1.DeletePropagationForeground,
			want: "ConfigMap a Wait?: waits for dependents that block it\nConfigMap b Wait?: waits for dependents that block it\n" +
				"ConfigMap c Wait?: waits for dependents that block it\nConfigMap d Block: held by finalizer example.com/hold\n",
		},
		"orphaned": {
			prepare: func(w *world) object.Object {
				a := w.Create(thing{Namespace: "n", Name: "a", Finalizers: hold})
				b := w.Create(thing{Namespace: "n", Name: "b", Owners: w.OwnedBy(a)})
				w.Create(thing{Namespace: "n", Name: "c", Owners: w.OwnedBy(b)})
				return a
			},
			policy: metav1.DeletePropagationOrphan,
			want:   "ConfigMap a Block: held by finalizer example.com/hold\nConfigMap b Orphan: orphaned by ConfigMap a\n",
		},
		"a namespace": {
			prepare: func(w *world) object.Object {
				a := w.Create(thing{Namespace: "n", Name: "a"})
				w.Create(thing{Namespace: "n", Name: "b", Owners: w.OwnedBy(a)})
				w.Create(thing{Kind: "pods", Namespace: "n", Name: "p"})
				return w.home
			},
			policy: metav1.DeletePropagationBackground,
			want: "Namespace n Delete: the object itself\nConfigMap a Delete: in namespace n, which is deleted\n" +
				"ConfigMap b Delete: in namespace n, which is deleted\nPod p Delete: in namespace n, which is deleted\n",
		},
		"a namespace whose pods do not go": {
			prepare: func(w *world) object.Object {
				w.Create(thing{Namespace: "n", Name: "a"})
				w.Create(thing{Kind: "pods", Namespace: "n", Name: "p", Rest: deletiontest.OnNode})
				w.Create(thing{Kind: "pods", Namespace: "n", Name: "q"})
				return w.home
			},
			policy: metav1.DeletePropagationBackground,
			want: "Namespace n Wait: waits for what is left in it\nConfigMap a Wait: goes when what leaves namespace n first is gone: pods, then provisioned resources\n" +
				"Pod p Block: has 30s of grace\nPod q Delete: in namespace n, which is deleted\n",
		},
		"a namespace in the foreground is emptied while it waits": {
			prepare: func(w *world) object.Object {
				w.Create(thing{Kind: "clusterroles.rbac.authorization.k8s.io", Name: "r", Owners: w.OwnedBy(w.home), Finalizers: hold})
				w.Create(thing{Namespace: "n", Name: "a"})
				return w.home
			},
			policy: metav1.DeletePropagationForeground,
			want: "Namespace n Wait: waits for dependents that block it\nClusterRole r Block: held by finalizer example.com/hold\n" +
				"ConfigMap a Delete: in namespace n, which is deleted\n",
		},
		"a namespace that somebody else finalizes too": {
			prepare: func(w *world) object.Object {
				return w.Create(thing{Kind: object.Namespaces, Name: "m", Rest: `,"spec":{"finalizers":["kubernetes","example.com/last"]},"status":{"phase":"Active"}`})
			},
			policy: metav1.DeletePropagationBackground,
			want:   "Namespace m Block: held by spec.finalizers example.com/last\n",
		},
		"what a namespace owns goes after it": {
			prepare: func(w *world) object.Object {
				w.Create(thing{Kind: "clusterroles.rbac.authorization.k8s.io", Name: "r", Owners: w.OwnedBy(w.home)})
				return w.home
			},
			policy: metav1.DeletePropagationBackground,
			want:   "Namespace n Delete: the object itself\nClusterRole r Delete: owned by Namespace n\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, w *world) {
				w.home = w.Create(thing{Kind: object.Namespaces, Name: "n"})
				o := test.prepare(w)
				status := w.preview(o, deletiontest.With(test.policy))
				if got := lines(status.Items); got != test.want {
					t.Errorf("got\n%swant\n%s", got, test.want)
				}
				w.Delete(o.Key, deletiontest.With(test.policy))
				w.Collect()
				w.holdsTrue(status)
			})
		})
	}
}

// holdsTrue compares a preview with what has happened since.
func (w *world) holdsTrue(status v1.DeletionPreviewStatus) {
	w.T.Helper()
	for _, item := range status.Items {
		key, err := deletion.Key(w.Kinds.Snapshot(), item.ObjectReference, nil)
		if err != nil {
			w.T.Fatal(err)
		}
		found := w.Get(key, item.UID) != nil
		if found == (item.Action == v1.Delete) && !item.Uncertain {
			w.T.Errorf("%s: predicted %s, found %v", key, item.Action, found)
		}
	}
}

// TestPreviewOfDefinition: its objects go with it, in every namespace.
func TestPreviewOfDefinition(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		crd := w.Create(thing{Kind: object.Definitions, Name: "widgets.example.com", Rest: `,"spec":{"group":"example.com","names":{"plural":"widgets"}}`})
		for _, namespace := range []string{"m", "n"} {
			w.Create(thing{Kind: object.Namespaces, Name: namespace})
			w.Create(thing{Kind: deletiontest.Unserved, Namespace: namespace, Name: "w"})
		}
		want := "CustomResourceDefinition widgets.example.com Delete: the object itself\n" +
			"widgets w Delete: of a kind whose definition is deleted\nwidgets w Delete: of a kind whose definition is deleted\n"
		if got := lines(w.preview(crd, metav1.DeleteOptions{}).Items); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}

// TestPreviewPages: a preview of thousands of objects has pages that fit together, with
// only one batch of rows in memory.
func TestPreviewPages(t *testing.T) {
	const batch, dependents = 50, 1500
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, db, Options{Batch: batch})
		w.Create(thing{Kind: object.Namespaces, Name: "n"})
		root := w.Create(thing{Namespace: "n", Name: "root"})
		var parents []object.Object
		for i := range 10 {
			parents = append(parents, w.Create(thing{Namespace: "n", Name: fmt.Sprintf("parent-%d", i), Owners: w.OwnedBy(root)}))
		}
		for i := range dependents {
			o := thing{Namespace: "n", Name: fmt.Sprintf("leaf-%d", i), Owners: w.OwnedBy(parents[i%3])}
			if i%100 == 0 {
				o.Finalizers = []string{"example.com/hold"}
			}
			w.Create(o)
		}
		spec := v1.DeletionPreviewSpec{Object: v1.ObjectReference{UID: root.UID}, Limit: 700}
		seen := map[string]bool{}
		for pages := 1; ; pages++ {
			status, walk, err := w.service.preview(t.Context(), kindtest.Almighty(), spec)
			if err != nil {
				t.Fatal(err)
			}
			if walk.r.peak > batch {
				t.Errorf("%d rows were in memory, more than %d", walk.r.peak, batch)
			}
			for _, item := range status.Items {
				if seen[item.Name] {
					t.Errorf("%s is listed twice", item.Name)
				}
				seen[item.Name] = true
			}
			if status.Total != dependents+11 || status.BlockersTotal != dependents/100 || len(status.Blockers) != dependents/100 {
				t.Errorf("got total %d, %d of %d blockers", status.Total, len(status.Blockers), status.BlockersTotal)
			}
			if len(status.Counts) != 2 || status.Counts[0].Count != dependents/100 || status.Counts[1].Count != dependents+11-dependents/100 {
				t.Errorf("got the counts %+v", status.Counts)
			}
			if spec.Continue = status.Continue; spec.Continue == "" {
				if want := (dependents + 11 + 699) / 700; pages != want {
					t.Errorf("got %d pages, want %d", pages, want)
				}
				break
			}
			if len(status.Items) != 700 {
				t.Errorf("got a page of %d items", len(status.Items))
			}
		}
		if len(seen) != dependents+11 {
			t.Errorf("got %d items, want %d", len(seen), dependents+11)
		}
	})
}

func TestPreviewCounts(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{Objects: 4})
	w.Create(thing{Kind: object.Namespaces, Name: "n"})
	a := w.Create(thing{Namespace: "n", Name: "a"})
	b := w.Create(thing{Kind: "secrets", Namespace: "n", Name: "b", Owners: w.OwnedBy(a)})
	w.Create(thing{Kind: "secrets", Namespace: "n", Name: "c", Owners: w.OwnedBy(b), Finalizers: []string{"example.com/x"}})
	ask := v1.DeletionPreviewSpec{Object: v1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "n", Name: "a"}, CountsOnly: true}
	status, err := w.service.Preview(t.Context(), kindtest.Almighty(), ask)
	if err != nil {
		t.Fatal(err)
	}
	want := []v1.Count{
		{APIVersion: "v1", Kind: "ConfigMap", Action: v1.Delete, Count: 1},
		{APIVersion: "v1", Kind: "Secret", Action: v1.Block, Count: 1},
		{APIVersion: "v1", Kind: "Secret", Action: v1.Delete, Count: 1},
	}
	if !slices.Equal(status.Counts, want) || status.Items != nil || status.Truncated || status.Action != v1.Delete {
		t.Errorf("got %+v", status)
	}
	for i := range 3 {
		w.Create(thing{Namespace: "n", Name: fmt.Sprintf("more-%d", i), Owners: w.OwnedBy(a)})
	}
	if status, err = w.service.Preview(t.Context(), kindtest.Almighty(), ask); err != nil || !status.Truncated || status.Total != 4 {
		t.Errorf("above the bound: got total %d, truncated %v, %v", status.Total, status.Truncated, err)
	}
}

// TestOwnersOfItems: an item names all its owners, also those that keep it, and which of
// them wait for it.
func TestOwnersOfItems(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{})
	w.Create(thing{Kind: object.Namespaces, Name: "n"})
	a := w.Create(thing{Namespace: "n", Name: "a"})
	b := w.Create(thing{Namespace: "n", Name: "b"})
	w.Create(thing{Namespace: "n", Name: "c", Owners: []metav1.OwnerReference{w.Reference(a.Key, a.UID, true), w.Reference(b.Key, b.UID, false)}})
	many := make([]metav1.OwnerReference, v1.MaxOwners+5)
	for i := range many {
		many[i] = w.Reference(a.Key, a.UID, true)
	}
	w.Create(thing{Namespace: "n", Name: "d", Owners: many})
	status := w.preview(a, metav1.DeleteOptions{})
	items := map[string][]v1.Owner{}
	for _, item := range status.Items {
		items[item.Name] = item.Owners
		if want := map[string]types.UID{"d": a.UID}[item.Name]; item.Owner != want && item.Name != "c" {
			t.Errorf("%s goes with %q, want %q", item.Name, item.Owner, want)
		}
	}
	below := w.Create(thing{Namespace: "n", Name: "below", Owners: w.OwnedBy(b, w.Create(thing{Namespace: "n", Name: "e", Owners: w.OwnedBy(a)}))})
	w.Create(thing{Namespace: "n", Name: "last", Owners: w.OwnedBy(below)})
	for _, item := range w.preview(b, metav1.DeleteOptions{}).Items {
		if item.Name != "b" && item.Owner != b.UID {
			t.Errorf("%s goes with %q, want b", item.Name, item.Owner)
		}
	}
	want := []v1.Owner{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: a.UID, Blocked: true},
		{APIVersion: "v1", Kind: "ConfigMap", Name: "b", UID: b.UID},
	}
	if !slices.Equal(items["c"], want) {
		t.Errorf("c has the owners %+v, want %+v", items["c"], want)
	}
	if len(items["a"]) != 0 || len(items["d"]) != v1.MaxOwners {
		t.Errorf("a has %d owners and d %d, want 0 and %d", len(items["a"]), len(items["d"]), v1.MaxOwners)
	}
}

// TestGraceOfTheObjectItself: it has the grace period that the request asks for.
func TestGraceOfTheObjectItself(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{})
	w.Create(thing{Kind: object.Namespaces, Name: "n"})
	p := w.Create(thing{Kind: "pods", Namespace: "n", Name: "p", Rest: deletiontest.OnNode})
	for options, want := range map[*metav1.DeleteOptions]string{{}: "has 30s of grace", {GracePeriodSeconds: new(int64(5))}: "has 5s of grace"} {
		if status := w.preview(p, *options); len(status.Items) != 1 || status.Items[0].Reason != want {
			t.Errorf("got %+v, want %s", status.Items, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{})
	w.Create(thing{Kind: object.Namespaces, Name: "n"})
	a := w.Create(thing{Namespace: "n", Name: "a"})
	b := w.Create(thing{Namespace: "n", Name: "b"})
	object1 := v1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "n", Name: "a"}
	never := metav1.DeletionPropagation("Never")
	for name, test := range map[string]struct {
		change func(*v1.DeletionPreviewSpec)
		code   object.Code
		want   string
	}{
		"no name": {func(s *v1.DeletionPreviewSpec) { s.Object.Name = "" }, object.Invalid,
			"spec.object.name: Required value: name the object by apiVersion, kind and name, or by uid alone"},
		"no such kind": {func(s *v1.DeletionPreviewSpec) { s.Object.Kind = "Widget" }, object.Invalid,
			`spec.object.kind: Invalid value: "Widget": no such kind in v1`},
		"an odd version": {func(s *v1.DeletionPreviewSpec) { s.Object.APIVersion = "a/b/c" }, object.Invalid,
			`spec.object.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c`},
		"a kind that is never stored": {func(s *v1.DeletionPreviewSpec) {
			s.Object.APIVersion, s.Object.Kind = "authentication.k8s.io/v1", "TokenReview"
		}, object.Invalid, `spec.object.kind: Invalid value: "TokenReview": objects of this kind are never stored`},
		"no namespace": {func(s *v1.DeletionPreviewSpec) { s.Object.Namespace = "" }, object.Invalid,
			"spec.object.namespace: Required value: ConfigMap lives in a namespace"},
		"a namespace too many": {func(s *v1.DeletionPreviewSpec) { s.Object.Kind = "Namespace" }, object.Invalid,
			`spec.object.namespace: Invalid value: "n": Namespace lives in no namespace`},
		"another object by that name": {func(s *v1.DeletionPreviewSpec) { s.Object.UID = b.UID }, object.NotFound,
			"ConfigMap a in namespace n not found"},
		"an unknown uid": {func(s *v1.DeletionPreviewSpec) { s.Object = v1.ObjectReference{UID: "who"} }, object.NotFound,
			"no object with uid who"},
		"a negative limit": {func(s *v1.DeletionPreviewSpec) { s.Limit = -1 }, object.Invalid,
			"spec.limit: Invalid value: -1: must be between 0 and 10000"},
		"counts of a page": {func(s *v1.DeletionPreviewSpec) { s.CountsOnly, s.Limit = true, 1 }, object.Invalid,
			"spec.countsOnly: Forbidden: excludes limit and continue: there are no items"},
		"an unknown policy": {func(s *v1.DeletionPreviewSpec) { s.PropagationPolicy = &never }, object.Invalid,
			`spec.propagationPolicy: Unsupported value: "Never": supported values: "Foreground", "Background", "Orphan", "nil"`},
		"a token that is none": {func(s *v1.DeletionPreviewSpec) { s.Continue = "!" }, object.BadRequest,
			"spec.continue is not a token of an earlier answer"},
		"a token of another": {func(s *v1.DeletionPreviewSpec) {
			s.Continue = formatContinue(v1.ObjectReference{UID: "other"}, 1)
		}, object.BadRequest, "spec.continue belongs to the preview of another object, with uid other"},
	} {
		spec := v1.DeletionPreviewSpec{Object: object1}
		test.change(&spec)
		_, err := w.service.Preview(t.Context(), kindtest.Almighty(), spec)
		if !object.Is(err, test.code) || err.Error() != test.want {
			t.Errorf("%s: got %v\nwant %s", name, err, test.want)
		}
	}
	if w.Get(a.Key, a.UID) == nil {
		t.Error("a preview deleted something")
	}
}

// TestRefusedDelete: the preview of a delete that the server would refuse says so,
// and keeps the object; so does the preview of its owner's deletion, because the
// collector does not delete it either.
func TestRefusedDelete(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		const refusal = "this namespace may not be deleted"
		owner := w.Create(thing{Kind: "nodes", Name: "owner"})
		system := w.Create(thing{Kind: object.Namespaces, Name: "kube-system", Owners: w.OwnedBy(owner)})
		w.Create(thing{Namespace: "kube-system", Name: "inside"})
		got := w.preview(system, metav1.DeleteOptions{})
		if got.Refused != refusal || got.Action != v1.Keep || got.Total != 1 || got.Items[0].Reason != refusal || got.Guard != nil {
			t.Errorf("a refused delete: %+v; want it kept, and the refusal", got)
		}
		got = w.preview(owner, metav1.DeleteOptions{})
		if got.Refused != "" || got.Action != v1.Delete || len(got.Items) != 2 || got.Items[1].Action != v1.Keep || got.Items[1].Reason != refusal {
			t.Errorf("its owner's delete: %+v; want the namespace kept, and the refusal", got)
		}
		w.Delete(owner.Key, metav1.DeleteOptions{})
		w.Collect()
		if w.Get(system.Key, system.UID) == nil {
			t.Error("the collector deleted what the preview keeps")
		}
	})
}

// TestReadPanics: a panic while dependents are read in the background reaches the goroutine of the
// request, which answers it.
func TestReadPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a read without a reader did not panic")
		}
	}()
	w := &walk{s: &Service{opts: Options{Batch: 1}}, r: &reader{ctx: t.Context()}}
	if err := w.expandOne("owner", 0); err != nil {
		t.Error(err)
	}
}
