package preview

import (
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// resolve finds the object of a reference. found is false for a valid reference
// without an object; an invalid reference is the error Invalid.
func (s *Service) resolve(r *reader, ref v1.ObjectReference, path *field.Path) (head, bool, error) {
	if ref.UID != "" && ref.Kind == "" && ref.APIVersion == "" && ref.Name == "" && ref.Namespace == "" {
		return r.head(headByUID, string(ref.UID))
	}
	key, err := s.key(ref, path)
	if err != nil {
		return head{}, false, err
	}
	h, found, err := r.head(headByKey, key.Kind, key.Namespace, key.Name)
	if found && ref.UID != "" && ref.UID != h.uid {
		return head{}, false, nil // another object has that name now
	}
	return h, found, err
}

// key returns the storage key of a reference.
func (s *Service) key(ref v1.ObjectReference, path *field.Path) (object.Key, error) {
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
	k := s.kinds.Snapshot().Named(gv.WithKind(ref.Kind))
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

// reference names a stored object as clients know it. For a kind that is no longer
// served, it uses the plural and the group.
func (s *Service) reference(key object.Key, uid types.UID) v1.ObjectReference {
	ref := v1.ObjectReference{Namespace: key.Namespace, Name: key.Name, UID: uid}
	ref.Kind, ref.APIVersion = s.kinds.Snapshot().Names(key.Kind)
	return ref
}

func notFound(ref v1.ObjectReference) error {
	if ref.Name == "" {
		return object.Errorf(object.NotFound, "no object with uid %s", ref.UID)
	}
	return object.Errorf(object.NotFound, "%s not found", describe(ref))
}

// describe names an object for people: "Deployment web in namespace shop".
func describe(ref v1.ObjectReference) string {
	text := ref.Kind + " " + ref.Name
	if ref.Namespace != "" {
		text += " in namespace " + ref.Namespace
	}
	return text
}
