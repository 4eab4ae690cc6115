package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

var (
	tenantKinds      = []string{"configmaps", "secrets"}
	tenantNamespaces = []string{"n", "m"}
)

// tenant makes a client with random verbs on each kind in each namespace.
func tenant(random *rand.Rand, name string) kind.Client {
	rights := map[string]bool{}
	for _, resource := range tenantKinds {
		for _, namespace := range append(tenantNamespaces, "") {
			for _, verb := range []string{"get", "create", "delete", "force-finalize"} {
				rights[verb+" "+resource+" "+namespace] = random.IntN(2) == 0
			}
		}
	}
	nothing := kindtest.Almighty()
	return kind.Client{
		Name: name,
		Authorize: func(verb string, r schema.GroupResource, namespace, name string) error {
			if rights[verb+" "+r.Resource+" "+namespace] {
				return nil
			}
			return apierrors.NewForbidden(r, name, errors.New("no "+verb+" in "+namespace))
		},
		Mutate: nothing.Mutate, Admit: nothing.Admit, Contain: nothing.Contain,
	}
}

// population creates objects with random owners and finalizers, and deletes some: they are
// then live, DELETING, held by the guard, or in the archive.
func (w *world) population(random *rand.Rand, objects int) []object.Object {
	w.Helper()
	w.create("namespaces:/m")
	var all []object.Object
	for i := range objects {
		kind, namespace := tenantKinds[random.IntN(len(tenantKinds))], tenantNamespaces[random.IntN(len(tenantNamespaces))]
		all = append(all, w.createWith(fmt.Sprintf("%s:%s/thing-%02d", kind, namespace, i), func(m *metav1.ObjectMeta) {
			for range random.IntN(3) {
				if i > 0 {
					m.OwnerReferences = append(m.OwnerReferences, w.OwnedBy(all[random.IntN(i)])...)
				}
			}
			if random.IntN(4) == 0 {
				m.Finalizers = []string{"x.dev/hold"}
			}
		}))
	}
	for _, o := range all {
		if !w.exists(o.Kind + ":" + o.Namespace + "/" + o.Name) {
			continue
		}
		switch random.IntN(4) {
		case 0:
			w.delete(o, background)
		case 1:
			w.delete(o, metav1.DeletePropagationForeground)
		case 2:
			w.hold(o, background)
		}
	}
	w.Collect()
	return all
}

// asked is an object to ask about.
type asked struct {
	kind, namespace, name string
	uid                   types.UID
}

// ask asks every question about an object, and returns the answers, as texts. The
// questions change nothing.
func (w *world) ask(served []*kind.Kind, client kind.Client, o asked) map[string]string {
	w.Helper()
	word := strings.TrimSuffix(o.kind, "s")
	gvk := map[string]string{"configmaps": "ConfigMap", "secrets": "Secret"}[o.kind]
	reference := v1.ObjectReference{APIVersion: "v1", Kind: gvk, Namespace: o.namespace, Name: o.name}
	mixed := reference
	mixed.UID = o.uid
	questions := []runtime.Object{}
	for _, r := range []v1.ObjectReference{reference, mixed, {UID: o.uid}} {
		questions = append(questions,
			&v1.DeletionPreview{Spec: v1.DeletionPreviewSpec{Object: r}},
			&v1.DeletionPreview{Spec: v1.DeletionPreviewSpec{Object: r, Continue: "1"}},
			&v1.DeletionReport{Spec: v1.DeletionReportSpec{Object: r}},
		)
	}
	questions = append(questions, &v1.FinalizerRemoval{Spec: v1.FinalizerRemovalSpec{
		Object: v1.ObjectReference{UID: o.uid}, Finalizer: "x.dev/none", Reason: "test", DryRun: true,
	}})
	for _, namespace := range []string{o.namespace, ""} {
		name := &v1.ObjectName{Kind: word, Namespace: namespace, Name: o.name}
		questions = append(questions,
			&v1.Restore{Spec: v1.RestoreSpec{Object: name, DryRun: true}},
			&v1.Restore{Spec: v1.RestoreSpec{Object: name, DryRun: true, WithCascade: true}})
	}
	questions = append(questions,
		&v1.Restore{Spec: v1.RestoreSpec{UID: o.uid, DryRun: true}},
		&v1.Restore{Spec: v1.RestoreSpec{UID: o.uid, DryRun: true, WithCascade: true}},
	)
	answers := map[string]string{}
	note := func(label string, got any, err error) {
		text, failed := json.Marshal(got)
		if failed != nil {
			w.Fatal(failed)
		}
		// The requests of this world are named after the objects that they delete.
		answers[label] = strings.ReplaceAll(fmt.Sprintf("%s %v", text, err), "delete-thing-", "request-")
	}
	for _, k := range served {
		if k.Name == "Restore" {
			got, err := k.Answer(w.Context(), &v1.Restore{Spec: v1.RestoreSpec{Cascade: string(o.uid), DryRun: true}}, kind.Call{Client: client})
			if err != nil {
				got = nil
			}
			note("spec.cascade Restore", got, err)
		}
		for i, q := range questions {
			if kindOf(q) == k.Name {
				got, err := k.Answer(w.Context(), q.DeepCopyObject(), kind.Call{Client: client})
				if err != nil {
					got = nil
				}
				note(fmt.Sprintf("%d %s", i, k.Name), got, err)
			}
		}
		if k.Source == nil {
			continue
		}
		got, err := k.Source.Get(w.Context(), client, o.namespace, string(o.uid))
		note("get "+k.Plural, got, err)
		got, err = k.Source.Delete(w.Context(), client, o.namespace, string(o.uid), true)
		note("delete "+k.Plural, got, err)
		for _, selector := range []string{"metadata.name=" + string(o.uid), "spec.name=" + o.name, "spec.cascade=" + string(o.uid), "spec.kind=" + word + ",spec.name=" + o.name} {
			if k.Plural == "cascades" && !strings.HasPrefix(selector, "metadata") {
				continue
			}
			for _, namespace := range []string{o.namespace, ""} {
				list, err := k.Source.List(w.Context(), client, kind.SourceQuery{Namespace: namespace, Fields: fields.ParseSelectorOrDie(selector), Limit: 1})
				note(fmt.Sprintf("list %s %s in %q", k.Plural, strings.NewReplacer(string(o.uid), "UID", o.name, "NAME").Replace(selector), namespace), list, err)
			}
		}
	}
	return answers
}

func isOfCascade(label string) bool { return strings.Contains(label, "spec.cascade") }

// readsOf reports whether the client may get an object of a cascade.
func (w *world) readsOf(client kind.Client, cascade types.UID) (may bool) {
	w.Helper()
	err := w.store.Reader().Archived(w.Context(), store.ArchiveFilter{Whole: string(cascade)}, 0, 0, func(r *row) error {
		may = may || client.May("get", r.Key()) == nil
		return nil
	})
	deleting, failed := w.store.Reader().DeletingFor(w.Context(), "", string(cascade))
	if err = errors.Join(err, failed); err != nil {
		w.Fatal(err)
	}
	return may || slices.ContainsFunc(deleting, func(h store.Head) bool { return client.May("get", h.Key) == nil })
}

// TestUnreadableIsAbsent: of an object that a client may not get, every question gets the
// answer that it gets for an object that does not exist. Of the others, no answer has a
// name that the client cannot read.
func TestUnreadableIsAbsent(t *testing.T) {
	each(t, func(w *world) {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 1))
		all := w.population(random, 15)
		served := w.served()
		before := w.store.Revision()
		for i := range 4 {
			client := tenant(random, fmt.Sprintf("user-%d", i))
			// A visible object names its owners.
			readable := map[string]bool{}
			for _, o := range all {
				if client.May("get", o.Key) != nil {
					continue
				}
				m, err := object.ParseMeta(o.Body)
				if err != nil {
					w.Fatal(err)
				}
				readable[o.Name] = true
				for _, owner := range m.OwnerReferences {
					readable[owner.Name] = true
				}
			}
			for _, o := range all {
				ghost := asked{o.Kind, o.Namespace, "absent-00", types.UID(uuid.NewString())}
				answers := w.ask(served, client, asked{o.Kind, o.Namespace, o.Name, o.UID})
				if client.May("get", o.Key) != nil {
					want := w.ask(served, client, ghost)
					for label, got := range answers {
						if isOfCascade(label) && w.readsOf(client, o.UID) {
							continue // the client may get other objects of the cascade
						}
						if strings.HasSuffix(label, "FinalizerRemoval") && client.May("force-finalize", o.Key) == nil {
							continue // this right is enough
						}
						if got := strings.NewReplacer(o.Name, ghost.name, string(o.UID), string(ghost.uid)).Replace(got); got != want[label] {
							w.Errorf("seed %d: %s tells of %s:\n%s\n%s", seed, label, o.Key, got, want[label])
						}
					}
					continue
				}
				for label, got := range answers {
					for _, other := range all {
						if !readable[other.Name] && strings.Contains(got, other.Name) {
							w.Errorf("seed %d: %s about %s tells of %s:\n%s", seed, label, o.Key, other.Key, got)
						}
					}
				}
			}
		}
		if after := w.store.Revision(); after != before {
			w.Errorf("seed %d: the revision was %d and is %d", seed, before, after)
		}
	})
}
