package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

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
