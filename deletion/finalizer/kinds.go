package finalizer

import (
	"context"
	"strings"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxReason bounds a reason, in bytes, so that it fits into an Event's message.
const maxReason = 600

// Kinds returns the request's kind, for the kind registry.
func (s *Service) Kinds() []*kind.Kind {
	return []*kind.Kind{kind.NewQuestion(v1.Scheme(), &v1.FinalizerRemoval{}, "finalizerremovals", v1.Schema(v1.FinalizerRemoval{}), kind.Asked(s.answer))}
}

func (s *Service) answer(ctx context.Context, r *v1.FinalizerRemoval, call kind.Call) (err error) {
	r.Spec.DryRun = r.Spec.DryRun || call.DryRun
	r.Status, err = s.RemoveFinalizer(ctx, r.Spec, call.Client)
	return err
}

func checkSpec(spec v1.FinalizerRemovalSpec) error {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if spec.Finalizer == "" {
		errs = append(errs, field.Required(finalizerPath, "name the finalizer to remove"))
	}
	switch reason := strings.TrimSpace(spec.Reason); {
	case reason == "":
		errs = append(errs, field.Required(path.Child("reason"), "say why: it is kept with the object's events"))
	case len(reason) > maxReason:
		errs = append(errs, field.TooLong(path.Child("reason"), "", maxReason))
	}
	if spec.Object == (v1.ObjectReference{}) {
		errs = append(errs, field.Required(path.Child("object"), "name the object by apiVersion, kind and name, or by uid alone"))
	}
	if len(errs) > 0 {
		return object.InvalidFields(errs)
	}
	return nil
}

// finder returns the find for a request's object. If the kind is not served, it is
// read as a plural and its apiVersion as a group, with or without version: so
// clients name objects of a broken definition.
func (s *Service) finder(client kind.Client, ref v1.ObjectReference) (find, error) {
	path := field.NewPath("spec", "object")
	if strings.ContainsRune(string(ref.UID), 0) {
		return nil, refuse(field.Invalid(path.Child("uid"), ref.UID, "must not contain NUL"))
	}
	if ref.Kind == "" && ref.APIVersion == "" && ref.Name == "" && ref.Namespace == "" {
		missing := func() error {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "objects"}, string(ref.UID))
		}
		return func(ctx context.Context, tx *store.Tx) (*store.Stored, error) {
			found, err := tx.GetByUID(ctx, ref.UID)
			if err != nil {
				return nil, err
			}
			if found != nil && client.May("force-finalize", found.Key) != nil && client.May("get", found.Key) != nil {
				found = nil // such a client does not learn that it exists
			}
			return check(found, missing, "")
		}, nil
	}
	var errs field.ErrorList
	if ref.Kind == "" {
		errs = append(errs, field.Required(path.Child("kind"), "name the object by apiVersion, kind and name, or by uid alone"))
	}
	if ref.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), "name the object by apiVersion, kind and name, or by uid alone"))
	}
	for _, f := range []struct{ name, value string }{{"kind", ref.Kind}, {"apiVersion", ref.APIVersion}, {"namespace", ref.Namespace}, {"name", ref.Name}} {
		if strings.ContainsRune(f.value, 0) { // PostgreSQL rejects NUL in text
			errs = append(errs, field.Invalid(path.Child(f.name), f.value, "must not contain NUL"))
		}
	}
	if len(errs) > 0 {
		return nil, object.InvalidFields(errs)
	}
	resource := schema.GroupResource{Resource: strings.ToLower(ref.Kind)}
	resource.Group, _, _ = strings.Cut(ref.APIVersion, "/")
	if !strings.Contains(ref.APIVersion, "/") && !strings.Contains(ref.APIVersion, ".") {
		resource.Group = "" // a version of the core group
	}
	storage := kind.StorageName(resource.Group, resource.Resource)
	if k, err := s.served(ref, path); err != nil {
		return nil, err
	} else if k != nil {
		storage, resource = k.Storage, schema.GroupResource{Group: k.Group, Resource: k.Plural}
	}
	// Only a client that may act learns whether the object exists.
	if err := client.MayResource("force-finalize", resource, ref.Namespace, ref.Name); err != nil {
		return nil, err
	}
	missing := func() error { return apierrors.NewNotFound(resource, ref.Name) }
	key := object.Key{Kind: storage, Namespace: ref.Namespace, Name: ref.Name}
	return func(ctx context.Context, tx *store.Tx) (*store.Stored, error) {
		found, err := tx.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		return check(found, missing, ref.UID)
	}, nil
}

// served returns the kind, nil if it is not served, and checks that the namespace
// fits its scope.
func (s *Service) served(ref v1.ObjectReference, path *field.Path) (*kind.Kind, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, refuse(field.Invalid(path.Child("apiVersion"), ref.APIVersion, err.Error()))
	}
	k := s.kinds.Snapshot().Named(gv.WithKind(ref.Kind))
	switch {
	case k == nil:
		return nil, nil
	case k.Ephemeral || k.Source != nil:
		return nil, refuse(field.Invalid(path.Child("kind"), ref.Kind, "objects of this kind have no finalizers"))
	case k.Namespaced && ref.Namespace == "":
		return nil, refuse(field.Required(path.Child("namespace"), ref.Kind+" lives in a namespace"))
	case !k.Namespaced && ref.Namespace != "":
		return nil, refuse(field.Invalid(path.Child("namespace"), ref.Namespace, ref.Kind+" lives in no namespace"))
	}
	return k, nil
}

func (s *Service) reference(o *store.Stored) v1.ObjectReference {
	ref := v1.ObjectReference{Namespace: o.Namespace, Name: o.Name, UID: o.UID}
	ref.Kind, ref.APIVersion = s.kinds.Snapshot().Names(o.Kind)
	return ref
}
