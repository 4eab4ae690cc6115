package deletion

import (
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
)

// A question about one object reaches others, in other namespaces and of other kinds.
// The answer names those that the client may get, and counts the rest.

// MayGet returns a denial if the client may not get the object of a question. It does
// not say whether the object exists. For a uid alone it returns nil: what that finds is
// checked with the object's key, and a denial is answered as if nothing was found.
func MayGet(client kind.Client, kinds *kind.Snapshot, ref v1.ObjectReference) error {
	if ref.Kind == "" || ref.Name == "" {
		return nil
	}
	return client.MayResource("get", kinds.ResourceOf(ref.APIVersion, ref.Kind), ref.Namespace, ref.Name)
}
