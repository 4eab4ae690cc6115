package archive

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/deletion/deletiontest"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// TestCascadeAddsUp: from the delete to the end, what a cascade removed and what remains add up to all that it removes.
// Objects with an owner outside of it are not counted. Finalizers hold some objects; the test removes them at the end.
func TestCascadeAddsUp(t *testing.T) {
	each(t, func(w *world) {
		for seed := range uint64(12) {
			random := rand.New(rand.NewPCG(seed, 30))
			namespace := fmt.Sprintf("world-%d", seed)
			root := w.create("namespaces:/" + namespace)
			outside := w.create("configmaps:" + namespace + "/outside")
			policy := []metav1.DeletionPropagation{background, metav1.DeletePropagationForeground}[seed%2]
			whole := seed%4 == 3 // the namespace goes
			all, leaves, held := []object.Object{}, 0, []object.Object{}
			for i := range 5 + random.IntN(30) {
				var owners []object.Object
				if i > 0 {
					owners = []object.Object{all[random.IntN(len(all))]}
				}
				kept := i > 0 && random.IntN(8) == 0
				if kept {
					owners = append(owners, outside)
				}
				o := w.createWith(fmt.Sprintf("configmaps:%s/%d", namespace, i), func(m *metav1.ObjectMeta) {
					m.OwnerReferences = w.OwnedBy(owners...)
					if random.IntN(6) == 0 {
						m.Finalizers = []string{"example.com/x"}
					}
				})
				if !kept {
					all, leaves = append(all, o), leaves+1
				}
				held = append(held, o)
			}
			if whole {
				leaves = len(held) + 2 // the outside one, and the namespace
			} else {
				root = held[0]
			}
			r := store.DeleteRequest{Key: root.Key, Options: deletiontest.With(policy), Rules: w.Rules(root.Kind), Actor: "alice", RequestID: "1"}
			if _, err := w.store.Delete(w.Context(), r); err != nil {
				t.Fatal(err)
			}
			addsUp := func(when string) (c v1.CascadeStatus) {
				t.Helper()
				got, err := cascades{w.archive}.Get(w.Context(), kindtest.Almighty(), namespace, string(root.UID))
				if err != nil {
					t.Fatal(err)
				}
				c = got.(*v1.Cascade).Status
				if c.Removed+c.Remaining != int64(leaves) {
					t.Fatalf("seed %d, %s, %s: %d removed, %d remain, of %d", seed, policy, when, c.Removed, c.Remaining, leaves)
				}
				return c
			}
			addsUp("at first")
			for idle := 0; idle < 2; {
				claimed, _, err := w.Turn(w.Context())
				if err != nil {
					t.Fatal(err)
				}
				if addsUp("between"); claimed == 0 {
					idle++
				}
			}
			for {
				at := slices.IndexFunc(held, func(o object.Object) bool {
					m := w.Get(o.Key, o.UID)
					return m != nil && m.DeletionTimestamp != nil && slices.Contains(m.Finalizers, "example.com/x")
				})
				if at < 0 {
					break
				}
				w.Release(held[at].Key)
				w.Collect()
				addsUp("after a finalizer was removed")
			}
			if c := addsUp("in the end"); c.Remaining != 0 || c.State != v1.CascadeEnded {
				t.Errorf("seed %d, %s: %+v", seed, policy, c)
			}
		}
	})
}

// mayGet is a client that may get objects in one namespace only.
func mayGet(namespace string) kind.Client {
	c := kindtest.Almighty()
	c.Authorize = func(_ string, _ schema.GroupResource, in, _ string) error {
		if in != namespace {
			return object.Errorf(object.Forbidden, "not in %s", in)
		}
		return nil
	}
	return c
}

// TestCascadePages: pages of cascades and of archived objects have all of them once. The first page of archived objects
// says how many are left, if the client may get everything.
func TestCascadePages(t *testing.T) {
	each(t, func(w *world) {
		w.create("namespaces:/other")
		var want []string
		for i := range 7 {
			namespace := []string{"n", "other"}[i%2]
			o := w.create(fmt.Sprintf("configmaps:%s/c%d", namespace, i))
			w.create(fmt.Sprintf("configmaps:%s/d%d", namespace, i), o)
			w.delete(o, background)
			want = append(want, string(o.UID))
		}
		slices.Reverse(want)
		pages := func(client kind.Client, q kind.SourceQuery) (out []string) {
			t.Helper()
			for range 10 {
				got, err := cascades{w.archive}.List(w.Context(), client, q)
				if err != nil {
					t.Fatal(err)
				}
				list := got.(*v1.CascadeList)
				for _, c := range list.Items {
					out = append(out, c.Name)
				}
				if q.Continue = list.Continue; q.Continue == "" {
					break
				}
			}
			return out
		}
		for limit := range int64(9) {
			if got := pages(kindtest.Almighty(), kind.SourceQuery{Limit: limit}); !slices.Equal(got, want) {
				t.Errorf("with limit %d: %v, want %v", limit, got, want)
			}
		}
		if got := pages(mayGet("other"), kind.SourceQuery{Limit: 1}); len(got) != 3 {
			t.Errorf("of one namespace: %v", got)
		}
		if _, err := (cascades{w.archive}).List(w.Context(), kindtest.Almighty(), kind.SourceQuery{Continue: "gone"}); !object.Is(err, object.Expired) {
			t.Errorf("with the token of a cascade that left: %v", err)
		}

		count := func(client kind.Client, q kind.SourceQuery) string {
			t.Helper()
			var out []string
			for range 3 {
				got, err := source{w.archive}.List(w.Context(), client, q)
				if err != nil {
					t.Fatal(err)
				}
				list := got.(*v1.ArchivedObjectList)
				left := "none"
				if n := list.RemainingItemCount; n != nil {
					left = fmt.Sprint(*n)
				}
				out = append(out, fmt.Sprintf("%d then %s", len(list.Items), left))
				if q.Continue = list.Continue; q.Continue == "" {
					break
				}
			}
			return strings.Join(out, ", ")
		}
		cascade, err := fields.ParseSelector("spec.cascade=" + want[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			client kind.Client
			query  kind.SourceQuery
			want   string
		}{
			{kindtest.Almighty(), kind.SourceQuery{Limit: 10}, "10 then 4, 4 then none"},
			{kindtest.Almighty(), kind.SourceQuery{Limit: 1, Fields: cascade}, "1 then none, 1 then none"},
			{kindtest.Almighty(), kind.SourceQuery{Limit: 5, Namespace: "other"}, "5 then 1, 1 then none"},
			{mayGet("other"), kind.SourceQuery{Limit: 5}, "5 then none, 1 then none"},
			{mayGet("other"), kind.SourceQuery{Limit: 5, Namespace: "other"}, "5 then 1, 1 then none"},
			{kindtest.Almighty(), kind.SourceQuery{}, "14 then none"},
		} {
			if got := count(c.client, c.query); got != c.want {
				t.Errorf("%+v: %s, want %s", c.query, got, c.want)
			}
		}
	})
}
