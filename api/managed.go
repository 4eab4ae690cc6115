package api

import (
	"bytes"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/exeunt/exeunt/kind"
)

// fieldOwners says who owns which fields of the objects of one version. For an
// object that did not exist before that is its creator, for all of them: the
// library's field manager without its detours over the owners and the object
// before. Updates are the library's.
type fieldOwners struct {
	v       *kind.Version
	library *managedfields.FieldManager
	empty   func() (*typed.TypedValue, error)
	reset   fieldpath.Filter // nil: none
}

// neverOwned are the fields that belong to the server.
var neverOwned = fieldpath.NewSet(
	fieldpath.MakePathOrDie("apiVersion"),
	fieldpath.MakePathOrDie("kind"),
	fieldpath.MakePathOrDie("metadata"),
	fieldpath.MakePathOrDie("metadata", "name"),
	fieldpath.MakePathOrDie("metadata", "namespace"),
	fieldpath.MakePathOrDie("metadata", "creationTimestamp"),
	fieldpath.MakePathOrDie("metadata", "selfLink"),
	fieldpath.MakePathOrDie("metadata", "uid"),
	fieldpath.MakePathOrDie("metadata", "clusterName"),
	fieldpath.MakePathOrDie("metadata", "generation"),
	fieldpath.MakePathOrDie("metadata", "managedFields"),
	fieldpath.MakePathOrDie("metadata", "resourceVersion"),
)

func newFieldOwners(v *kind.Version, library *managedfields.FieldManager) *fieldOwners {
	return &fieldOwners{
		v:       v,
		library: library,
		empty: sync.OnceValues(func() (*typed.TypedValue, error) {
			obj, err := v.Wire.Creater.New(v.GVK)
			if err != nil {
				return nil, err
			}
			obj.GetObjectKind().SetGroupVersionKind(v.GVK)
			return v.Wire.TypeConverter.ObjectToTyped(obj, typed.AllowDuplicates)
		}),
		reset: fieldpath.NewExcludeFilterSetMap(v.ResetFields)[fieldpath.APIVersion(v.GVK.GroupVersion().String())],
	}
}

// created records the manager as the owner of everything in obj. Like the
// library, it leaves an object alone whose fields cannot be told.
func (c *fieldOwners) created(obj runtime.Object, m metav1.Object, manager string, now time.Time) {
	m.SetManagedFields(nil)
	obj.GetObjectKind().SetGroupVersionKind(c.v.GVK)
	empty, err := c.empty()
	if err != nil {
		return
	}
	value, err := c.v.Wire.TypeConverter.ObjectToTyped(obj, typed.AllowDuplicates)
	if err != nil {
		return
	}
	change, err := empty.Compare(value)
	if err != nil {
		return
	}
	owned := change.Added.Union(change.Modified)
	if c.reset != nil {
		owned = c.reset.Filter(owned)
	}
	owned = owned.Difference(neverOwned)
	if owned.Empty() {
		return
	}
	fields, err := owned.ToJSON()
	if err != nil {
		return
	}
	at := metav1.NewTime(now.UTC())
	m.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: c.v.GVK.GroupVersion().String(),
		Time: &at, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: fields},
	}})
}

// updated records the manager as the owner of what it changed. It may change
// obj, and never live.
func (c *fieldOwners) updated(live, obj runtime.Object, manager string) runtime.Object {
	return c.library.UpdateNoErrors(live, obj, manager)
}

// managerName is who writes: what the caller says, or the beginning of its
// User-Agent.
func managerName(option, userAgent string) string {
	if option != "" {
		return option
	}
	program, _, _ := strings.Cut(userAgent, "/")
	var name bytes.Buffer
	for _, r := range program {
		if !unicode.IsPrint(r) {
			continue
		}
		if name.Len()+utf8.RuneLen(r) > validation.FieldManagerMaxLength {
			break
		}
		name.WriteRune(r)
	}
	if name.Len() == 0 {
		return "unknown"
	}
	return name.String()
}
