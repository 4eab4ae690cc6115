package custom

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// firstStorageKey is the annotation that names the storage version from before its first
// change. Only the server writes it.
//
// A webhook must know in which version an object was written. Most definitions never change
// their storage version, so bodies do not name it (decision 1): without this annotation,
// all of them are in the storage version. The update that changes the storage version for
// the first time adds the annotation. From then on a new body names its version, and one
// that names none is in the version of the annotation. That also holds for a replica that
// has not seen the change yet: it still writes that version, unnamed.
const firstStorageKey = "apiextensions.exeunt.dev/first-storage-version"

// firstStorage returns the annotation, or "".
func firstStorage(crd *apiextensionsv1.CustomResourceDefinition) string {
	return crd.Annotations[firstStorageKey]
}

// keepFirstStorage sets the annotation of a changed definition, whatever the client sent.
func keepFirstStorage(crd, before *apiextensionsv1.CustomResourceDefinition) {
	first, was := firstStorage(before), storageVersion(before)
	if first == "" && was != storageVersion(crd) {
		first = was
	}
	if first == "" {
		delete(crd.Annotations, firstStorageKey)
		return
	}
	if crd.Annotations == nil {
		crd.Annotations = map[string]string{}
	}
	crd.Annotations[firstStorageKey] = first
}

// storageVersion returns the name of the version in which objects are written, or "".
func storageVersion(crd *apiextensionsv1.CustomResourceDefinition) string {
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}
