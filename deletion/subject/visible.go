package subject

import (
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// A question about one object reaches others, in other namespaces and of other kinds.
// The answer names those that the client may get, and counts the rest.

// MayGet returns a denial if the client may not get the object of a question. It does
// not say whether the object exists. A uid alone cannot be guessed: the answer is
// checked again with the object that was found.
func MayGet(client kind.Client, kinds *kind.Snapshot, ref v1.ObjectReference) error {
	if ref.Kind == "" || ref.Name == "" {
		return nil
	}
	r := kinds.ResourceOf(ref.APIVersion, ref.Kind)
	namespace := ref.Namespace
	if r.Group == "" && r.Resource == object.Namespaces {
		namespace = ref.Name // the request for a Namespace is in that namespace
	}
	return client.MayResource("get", r, namespace, ref.Name)
}
