package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/object"
)

// maxNameBase is how many bytes of a generateName are kept, so that the name with
// its suffix fits a DNS label.
const maxNameBase = 58

// Creation is the input of a create besides the object: request, time and random
// values.
type Creation struct {
	Namespace string // of the request
	Now       time.Time
	UID       types.UID
	Suffix    string // 5 characters that complete a generateName
	Restored  bool   // the object comes back from the archive
}

// BeforeCreate turns what a client sent into an object that can be stored, or
// refuses it: BadRequest for a namespace or resourceVersion that contradicts
// the request, Invalid for fields that break a rule. obj is changed in place.
//
// The generation stays as the client sent it: the kind's strategy sets it,
// and kinds without a generation store the client's value.
func BeforeCreate(ctx context.Context, s Strategy, obj runtime.Object, c Creation) (warnings []string, err error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("before create of %T: %w", obj, err)
	}
	if err := matchNamespace(m, c.Namespace, s.NamespaceScoped()); err != nil {
		return nil, err
	}
	if !unversioned(m.GetResourceVersion()) {
		return nil, object.BadRequestf("resourceVersion should not be set on objects to be created")
	}
	if err := fillSystemFields(m, c); err != nil {
		return nil, fmt.Errorf("before create of %T: %w", obj, err)
	}
	warnings, errs := s.Create(ctx, obj)
	errs = append(checkMarks(m, nil, c.Restored), errs...)
	if len(errs) == 0 {
		// After the kind's own rules, whose messages are more precise.
		errs = apivalidation.ValidateObjectMetaAccessor(m, s.NamespaceScoped(), newNameRule, metadataPath)
	}
	if len(errs) > 0 {
		return nil, object.InvalidFields(distinct(errs))
	}
	return warnings, nil
}

// fillSystemFields sets the fields that clients cannot set. An error is a bug in
// the calling code.
func fillSystemFields(m metav1.Object, c Creation) error {
	if c.UID == "" || c.Now.IsZero() {
		return errors.New("no uid or time given")
	}
	m.SetResourceVersion("")
	m.SetSelfLink("")
	m.SetDeletionTimestamp(nil)
	m.SetDeletionGracePeriodSeconds(nil)
	m.SetUID(c.UID)
	m.SetCreationTimestamp(*wholeSeconds(c.Now))
	if m.GetName() != "" || m.GetGenerateName() == "" {
		return nil
	}
	if c.Suffix == "" {
		return errors.New("no suffix given for a generateName")
	}
	m.SetName(cutName(m.GetGenerateName()) + c.Suffix)
	return nil
}

// cutName cuts between two characters: a part of one is not valid UTF-8.
func cutName(base string) string {
	if len(base) <= maxNameBase {
		return base
	}
	end := maxNameBase
	for end > 0 && !utf8.RuneStart(base[end]) {
		end--
	}
	return base[:end]
}

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
