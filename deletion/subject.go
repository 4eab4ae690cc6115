// Package deletion names the object that a question about a deletion is about: it
// finds the object of a reference, and names objects in messages and on command
// lines. It knows the kinds and reads the store; it decides nothing.
package deletion

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// Find reads the object of a reference; nil for a valid reference without an
// object. An invalid reference is the error Invalid.
func Find(ctx context.Context, r *store.Reader, kinds *kind.Snapshot, ref v1.ObjectReference, path *field.Path) (*store.Stored, error) {
	if ref.UID != "" && ref.Kind == "" && ref.APIVersion == "" && ref.Name == "" && ref.Namespace == "" {
		return r.GetByUID(ctx, ref.UID)
	}
	key, err := Key(kinds, ref, path)
	if err != nil {
		return nil, err
	}
	o, err := r.Get(ctx, key)
	if o != nil && ref.UID != "" && ref.UID != o.UID {
		return nil, nil // another object has that name now
	}
	return o, err
}

// Key returns the storage key of a reference. Error: Invalid.
func Key(kinds *kind.Snapshot, ref v1.ObjectReference, path *field.Path) (object.Key, error) {
	var errs field.ErrorList
	for _, f := range []struct{ name, value string }{{"apiVersion", ref.APIVersion}, {"kind", ref.Kind}, {"name", ref.Name}} {
		if f.value == "" {
			errs = append(errs, field.Required(path.Child(f.name), "name the object by apiVersion, kind and name, or by uid alone"))
		}
	}
	if len(errs) > 0 {
		return object.Key{}, object.InvalidFields(errs)
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return object.Key{}, object.InvalidFields(field.ErrorList{field.Invalid(path.Child("apiVersion"), ref.APIVersion, err.Error())})
	}
	k := kinds.Named(gv.WithKind(ref.Kind))
	switch {
	case k == nil:
		errs = append(errs, field.Invalid(path.Child("kind"), ref.Kind, "no such kind in "+ref.APIVersion))
	case k.Ephemeral:
		errs = append(errs, field.Invalid(path.Child("kind"), ref.Kind, "objects of this kind are never stored"))
	case k.Namespaced && ref.Namespace == "":
		errs = append(errs, field.Required(path.Child("namespace"), ref.Kind+" lives in a namespace"))
	case !k.Namespaced && ref.Namespace != "":
		errs = append(errs, field.Invalid(path.Child("namespace"), ref.Namespace, ref.Kind+" lives in no namespace"))
	}
	if len(errs) > 0 {
		return object.Key{}, object.InvalidFields(errs)
	}
	return object.Key{Kind: k.Storage, Namespace: ref.Namespace, Name: ref.Name}, nil
}

// Reference names a stored object as clients know it. For a kind that is no longer
// served, it uses the plural and the group.
func Reference(kinds *kind.Snapshot, key object.Key, uid types.UID) v1.ObjectReference {
	ref := v1.ObjectReference{Namespace: key.Namespace, Name: key.Name, UID: uid}
	ref.Kind, ref.APIVersion = kinds.Names(key.Kind)
	return ref
}

// NotFound is the error for a reference without an object.
func NotFound(ref v1.ObjectReference) error {
	if ref.Name == "" {
		return object.Errorf(object.NotFound, "no object with uid %s", ref.UID)
	}
	return object.Errorf(object.NotFound, "%s not found", Describe(ref))
}

// Describe names an object for people, and for their terminals: "Deployment web in namespace shop".
func Describe(ref v1.ObjectReference) string {
	text := ref.Kind + " " + ref.Name
	if ref.Namespace != "" {
		text += " in namespace " + ref.Namespace
	}
	return Printable(text)
}

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
