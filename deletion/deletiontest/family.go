package deletiontest

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// Going is an object, and how many objects go with it, itself included.
type Going struct {
	Of    object.Object
	Count int64
}

// Family creates an owner with two generations below it, a dependent that another owner
// keeps, and Events, in a namespace. It returns what goes with the owner and what goes
// with the namespace; Events do not count.
func (w *World) Family() []Going {
	w.T.Helper()
	home := w.Create(Thing{Kind: object.Namespaces, Name: "n"})
	owner := w.Create(Thing{Namespace: "n", Name: "owner"})
	other := w.Create(Thing{Namespace: "n", Name: "other"})
	for i := range 5 {
		child := w.Create(Thing{Namespace: "n", Name: fmt.Sprintf("c%d", i), Owners: w.OwnedBy(owner)})
		w.Create(Thing{Namespace: "n", Name: fmt.Sprintf("g%d", i), Owners: w.OwnedBy(child)})
	}
	w.Create(Thing{Namespace: "n", Name: "kept", Owners: w.OwnedBy(owner, other)})
	w.Create(Thing{Kind: object.Events, Namespace: "n", Name: "e"})
	w.Create(Thing{Kind: object.Events, Namespace: "n", Name: "of-owner", Owners: w.OwnedBy(owner)})
	return []Going{{owner, 11}, {home, 13}}
}

// Mixed creates the owner "root" of a ConfigMap "seen" and of a Secret "hidden", which a
// finalizer holds.
func (w *World) Mixed() (root object.Object) {
	w.T.Helper()
	w.Create(Thing{Kind: object.Namespaces, Name: "n"})
	root = w.Create(Thing{Namespace: "n", Name: "root"})
	w.Create(Thing{Namespace: "n", Name: "seen", Owners: w.OwnedBy(root)})
	w.Create(Thing{Kind: "secrets", Namespace: "n", Name: "hidden", Owners: w.OwnedBy(root), Finalizers: []string{"x.dev/hold"}})
	return root
}

// MayGet returns a client that may get these resources, as they are when it asks, and
// nothing else.
func MayGet(resources *[]string) kind.Client {
	return kind.Client{Authorize: func(verb string, r schema.GroupResource, namespace, name string) error {
		if verb == "get" && slices.Contains(*resources, r.Resource) {
			return nil
		}
		return apierrors.NewForbidden(r, name, fmt.Errorf("no %s in %s", verb, namespace))
	}}
}
