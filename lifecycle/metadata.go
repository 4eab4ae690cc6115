package lifecycle

import (
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/object"
)

var metadataPath = field.NewPath("metadata")

// matchNamespace sets the namespace of the request on an object. A client may omit
// it. For a cluster-scoped kind the client's value is ignored.
func matchNamespace(m metav1.Object, requested string, namespaced bool) error {
	switch {
	case !namespaced:
		m.SetNamespace("")
	case m.GetNamespace() == "":
		m.SetNamespace(requested)
	case m.GetNamespace() != requested:
		return object.BadRequestf("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// unversioned reports whether a resourceVersion names no version.
func unversioned(resourceVersion string) bool {
	return resourceVersion == "" || resourceVersion == "0"
}

// maxName is the length of the longest new name, in bytes. An index of PostgreSQL has no
// entry above 2,704 bytes, and in a path each byte may take three.
const maxName = 1024

// newNameRule is the rule for the names of new objects, of all kinds.
func newNameRule(name string, prefix bool) []string {
	if len(name) > maxName && !prefix {
		return []string{validation.MaxLenError(maxName)}
	}
	return nameRule(name, prefix)
}

// nameRule is what every stored name has held to: a path can have it.
func nameRule(name string, prefix bool) []string {
	if prefix {
		name += "x" // as the suffix of a generateName
	}
	if errs := content.IsPathSegmentName(name); len(errs) > 0 {
		return errs // in the words of Kubernetes
	}
	if problem := object.NameProblem(name); problem != "" {
		return []string{problem}
	}
	return nil
}

// distinct drops errors with equal texts: kinds check metadata too.
func distinct(list field.ErrorList) field.ErrorList {
	seen := make(map[string]bool, len(list))
	out := make(field.ErrorList, 0, len(list))
	for _, err := range list {
		if text := err.Error(); !seen[text] {
			seen[text] = true
			out = append(out, err)
		}
	}
	return out
}
