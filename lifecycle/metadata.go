package lifecycle

import (
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// unversioned says whether a resourceVersion names no version.
func unversioned(resourceVersion string) bool {
	return resourceVersion == "" || resourceVersion == "0"
}

// nameRule is the rule for the names of all kinds: a name is part of a URL path and
// is stored in a text column, which allows neither invalid UTF-8 nor NUL.
func nameRule(name string, prefix bool) []string {
	if !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return []string{"must be valid UTF-8 without NUL"}
	}
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
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
