package gc

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/graph"
)

// TestBlocks: what a review knows about a dependent that it has just made DELETING is what the
// store answers about it.
func TestBlocks(t *testing.T) {
	yes, no, nowhere, elsewhere := true, false, "", "m"
	owner := store.Named{
		Key: object.Key{Kind: "gadgets.example.org", Namespace: "n", Name: "owner"}, UID: "owner",
		As: store.GroupKind{Group: "example.org", Kind: "Gadget"},
	}
	reference := metav1.OwnerReference{APIVersion: "example.org/v1", Kind: "Gadget", Name: "owner", UID: "owner", BlockOwnerDeletion: &yes}
	for name, test := range map[string]struct {
		change func(*metav1.OwnerReference)
		inside *string // the dependent's namespace; nil means the owner's
		want   bool
	}{
		"it blocks":         {change: func(*metav1.OwnerReference) {}, want: true},
		"another version":   {change: func(r *metav1.OwnerReference) { r.APIVersion = "example.org/v2" }, want: true},
		"does not block":    {change: func(r *metav1.OwnerReference) { r.BlockOwnerDeletion = &no }},
		"says nothing":      {change: func(r *metav1.OwnerReference) { r.BlockOwnerDeletion = nil }},
		"another uid":       {change: func(r *metav1.OwnerReference) { r.UID = "other" }},
		"another name":      {change: func(r *metav1.OwnerReference) { r.Name = "other" }},
		"another kind":      {change: func(r *metav1.OwnerReference) { r.Kind = "Other" }},
		"another group":     {change: func(r *metav1.OwnerReference) { r.APIVersion = "example.com/v1" }},
		"in no namespace":   {change: func(*metav1.OwnerReference) {}, inside: &nowhere},
		"in another one":    {change: func(*metav1.OwnerReference) {}, inside: &elsewhere},
		"of the core group": {change: func(r *metav1.OwnerReference) { r.APIVersion = "v1" }},
	} {
		t.Run(name, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
				r, namespace := reference, "n"
				test.change(&r)
				if test.inside != nil {
					namespace = *test.inside
				}
				if got := blocks(&r, namespace, owner); got != test.want {
					t.Errorf("got %v, want %v", got, test.want)
				}
				w := newWorld(t, db, Options{})
				w.add(namespace+"/dependent", func(_ *world, m *metav1.ObjectMeta) { m.OwnerReferences = []metav1.OwnerReference{r} })
				blocked, _, err := graph.Blocked(t.Context(), w.store.Reader(), owner)
				if err != nil || blocked != test.want {
					t.Errorf("the store answers %v, %v; want %v", blocked, err, test.want)
				}
			})
		})
	}
}
