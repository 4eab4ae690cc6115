package archive

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
)

// TestRevertOfOwners: after a revert each object has the owners of then: where an owner was made again since, the new one of its
// name; where it came back in the same revert, that, beside one that never left. What is new goes, and the result says what it
// waits for.
func TestRevertOfOwners(t *testing.T) {
	eachRevert(t, func(w *world) {
		first, stays := w.create("configmaps:n/again"), w.create("configmaps:n/stays")
		w.create("configmaps:n/child", first)
		a := w.create("configmaps:n/a")
		b := w.create("configmaps:n/b", stays, a)
		w.put("configmaps:n/a", w.owned(b))
		then := w.store.Revision()
		w.delete(first, metav1.DeletePropagationOrphan)
		second := w.create("configmaps:n/again")
		w.put("configmaps:n/b", w.owned(a))
		w.delete(a, background)
		if w.exists("configmaps:n/a") || w.exists("configmaps:n/b") {
			w.Fatal("the ring exists")
		}
		w.Exec(`DELETE FROM archive`) // so that the history alone has them
		w.create("configmaps:n/new")
		w.createWith("configmaps:n/held", func(m *metav1.ObjectMeta) { m.Finalizers = []string{"x.dev/hold"} })
		results := w.revertNamespace(w.Client(), then)
		w.wantOwners("configmaps:n/child", second.UID)
		w.wantOwners("configmaps:n/a", b.UID)
		w.wantOwners("configmaps:n/b", stays.UID, a.UID)
		for name, want := range map[string]string{"child": "changed ", "a": "created ", "b": "created ", "new": "deleted ", "held": "deleted it is being deleted, and waits for"} {
			r := results[name]
			if got := fmt.Sprint(r.Outcome, " ", r.Reason); !strings.HasPrefix(got, want) || strings.HasSuffix(want, " ") && got != want || r.UID == "" {
				w.Errorf("%s: %+v", name, r)
			}
		}
	})
}

// TestRightsOfThePast: the past of an object needs get and history on it, that of a kind in a namespace list and history.
func TestRightsOfThePast(t *testing.T) {
	each(t, func(w *world) {
		ns, _ := w.get("namespaces:/n")
		for _, key := range []object.Key{keyOf("configmaps:n/a"), keyOf("configmaps:n/"), keyOf("namespaces:/n"), keyOf("clusterroles.rbac.authorization.k8s.io:/c")} {
			for rights := range 8 {
				held := map[string]bool{"get": rights&1 > 0, "list": rights&2 > 0, "history": rights&4 > 0}
				client := kindtest.Almighty()
				client.Authorize = func(verb string, r schema.GroupResource, _, name string) error {
					if held[verb] {
						return nil
					}
					return apierrors.NewForbidden(r, name, errors.New("no "+verb))
				}
				want := held["history"] && (key.Name != "" && held["get"] || key.Name == "" && held["list"])
				if err := w.archive.mayReadPast(w.Context(), client, key, ns.Revision); (err == nil) != want {
					w.Errorf("%s with %v: %v", key, held, err)
				}
			}
		}
	})
}

// TestRefusedWrite: a refusal of a request is the result of its object; what may pass by itself ends the turn, and is tried again.
func TestRefusedWrite(t *testing.T) {
	d := &difference{version: &kind.Version{}}
	resource := schema.GroupResource{Resource: "configmaps"}
	for _, again := range []error{errors.New("the connection was lost"), apierrors.NewTooManyRequests("busy", 1), apierrors.NewInternalError(errors.New("down"))} {
		if result, err := refusedWrite(d, again); !errors.Is(err, again) || result.Outcome != "" {
			t.Errorf("%v: %+v, %v", again, result, err)
		}
	}
	for reason, refused := range map[string]error{
		"no":                         apierrors.NewForbidden(resource, "a", errors.New("no")),
		"it was changed meanwhile: ": apierrors.NewConflict(resource, "a", errors.New("other version")),
	} {
		if result, err := refusedWrite(d, refused); err != nil || result.Outcome != v1.Failed || !strings.Contains(result.Reason, reason) {
			t.Errorf("%v: %+v, %v", refused, result, err)
		}
	}
}

// TestShownWithoutConversion: the archive shows an object as it is stored, so that a conversion webhook which does not answer
// neither delays nor hides it.
func TestShownWithoutConversion(t *testing.T) {
	k := &kind.Kind{Group: "example.com", Name: "Gizmo", Plural: "gizmos", Storage: "gizmos.example.com", Namespaced: true}
	k.Versions = []*kind.Version{{
		Kind: k, GVK: schema.GroupVersionKind{Group: k.Group, Version: "v1", Kind: k.Name},
		Decode: func([]byte, string) (runtime.Object, error) { return nil, errors.New("the webhook does not answer") },
		DecodeStored: func(_ []byte, version string) (runtime.Object, error) {
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: version}}, nil
		},
	}}
	n := &names{served: kind.NewRegistry([]*kind.Kind{k}).Snapshot()}
	o, err := n.archived(&row{Kind: k.Storage, Namespace: "n", Name: "a", Body: []byte(`{}`), BodyRevision: 7})
	if err != nil || o.Object == nil || !strings.Contains(string(o.Object.Raw), `"resourceVersion":"7"`) {
		t.Errorf("got %+v, %v", o, err)
	}
}
