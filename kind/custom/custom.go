// Package custom holds the kind CustomResourceDefinition, and builds the kinds that
// CustomResourceDefinitions declare.
//
// [Definition] validates definitions by Kubernetes' own rules. [Accept] accepts or
// refuses one without side effects. [New] turns an accepted one into a kind whose
// objects are pruned, defaulted, validated and shown as in Kubernetes; [Stored] does so
// for a stored one, whose schemas it compiles at the first use and drops again
// (compiled.go). The package does not use the store: kind/definition watches the
// definitions and registers the kinds. Start reading at New.
package custom

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/yaml"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
)

// terminating is the answer to a create while the definition is being deleted.
const terminating = "create not allowed while custom resource definition is terminating"

// Declared is New for a definition that is not stored. Its names count as accepted, and it calls no conversion
// webhooks.
func Declared(definition runtime.Object) (*kind.Kind, error) {
	crd, ok := definition.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil, fmt.Errorf("a %T is no definition", definition)
	}
	crd = crd.DeepCopy()
	crd.Status.AcceptedNames = crd.Spec.Names
	return New(crd, nil)
}

// New builds the kind that an established definition declares, with all its served
// versions. A definition that serves no version gives a kind without versions: clients
// cannot reach its objects, but they can still be collected.
//
// New reports every error of the schemas, and keeps what they are compiled to. The first
// write to a version compiles its rules and builds its model for server-side apply. Convert
// builds the converter for the strategy Webhook; if it is nil, such a kind is served in its
// storage version only.
func New(crd *apiextensionsv1.CustomResourceDefinition, convert NewConverter) (*kind.Kind, error) {
	crd = crd.DeepCopy() // the kind must not change with the caller's value
	f := &family{crd: crd, read: func() (*apiextensionsv1.CustomResourceDefinition, error) { return crd, nil }}
	c, err := f.compile()
	if err == nil {
		err = checkRules(crd)
	}
	if err != nil {
		return nil, fmt.Errorf("serve %s: %w", crd.Name, err)
	}
	f.held.Store(c)
	f.raw = c.schemas.raw(crd.Generation)
	return f.newKind(convert)
}

// newKind makes the kind of a family that has crd, raw and read.
func (f *family) newKind(convert NewConverter) (*kind.Kind, error) {
	crd := f.crd
	if err := checkServable(crd); err != nil {
		return nil, fmt.Errorf("serve %s: %w", crd.Name, err)
	}
	names := crd.Status.AcceptedNames
	k := &kind.Kind{
		Group:      crd.Spec.Group,
		Name:       names.Kind,
		ListName:   names.ListKind,
		Plural:     names.Plural,
		Singular:   names.Singular,
		ShortNames: names.ShortNames,
		Categories: names.Categories,
		Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
		Storage:    kind.StorageName(crd.Spec.Group, names.Plural),
		Definition: crd.Name,
		Generation: crd.Generation,
	}
	if crd.DeletionTimestamp != nil {
		k.Refuse = terminating
	}
	if err := f.complete(convert); err != nil {
		return nil, fmt.Errorf("serve %s: %w", crd.Name, err)
	}
	k.StoredAs = f.storage
	for i := range crd.Spec.Versions {
		if !crd.Spec.Versions[i].Served {
			continue
		}
		v, err := f.version(k, &crd.Spec.Versions[i])
		if err != nil {
			return nil, fmt.Errorf("serve %s: version %s: %w", crd.Name, crd.Spec.Versions[i].Name, err)
		}
		k.Versions = append(k.Versions, v)
	}
	slices.SortStableFunc(k.Versions, func(a, b *kind.Version) int {
		return version.CompareKubeAwareVersionStrings(b.GVK.Version, a.GVK.Version)
	})
	return k, nil
}

// checkServable refuses definitions that validation never accepts, so that later code
// does not have to handle them.
func checkServable(crd *apiextensionsv1.CustomResourceDefinition) error {
	names := crd.Status.AcceptedNames
	if names.Plural == "" || names.Singular == "" || names.Kind == "" || names.ListKind == "" {
		return fmt.Errorf("its names have not been accepted")
	}
	if crd.Spec.PreserveUnknownFields {
		return fmt.Errorf("spec.preserveUnknownFields must be false")
	}
	return nil
}

// family is what the versions of one kind share. It is immutable, but for what its schemas are
// compiled to.
type family struct {
	crd     *apiextensionsv1.CustomResourceDefinition // of a stored definition: without the schemas
	read    func() (*apiextensionsv1.CustomResourceDefinition, error)
	kind    schema.GroupKind
	storage string // the version in which objects are written
	raw     bool
	size    int // bytes of the definition

	// unmarked is the version of bodies that do not name theirs. marks says that new
	// bodies name it: the storage version was changed once (see firstStorage).
	unmarked string
	marks    bool

	// convert may change its input, copying does not. hooked says that a webhook converts.
	convert, copying runtime.ObjectConvertor
	hooked           bool

	cache *Cache                   // nil if held is kept for ever
	held  atomic.Pointer[compiled] // nil if not compiled, or dropped
	mu    sync.Mutex               // of compiling
	weak  weak.Pointer[compiled]   // guarded by mu; the last one, while a request uses it
}

// complete sets what follows from the definition.
func (f *family) complete(convert NewConverter) error {
	crd := f.crd
	f.kind = schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Status.AcceptedNames.Kind}
	if f.storage = storageVersion(crd); f.storage == "" {
		return fmt.Errorf("it has no storage version")
	}
	f.unmarked, f.marks = f.storage, false
	if first := firstStorage(crd); first != "" {
		f.unmarked, f.marks = first, true
	}
	var err error
	if f.copying, f.convert, err = newConverter(crd); err != nil {
		return err
	}
	if c := crd.Spec.Conversion; c != nil && c.Strategy == apiextensionsv1.WebhookConverter {
		f.convert, f.hooked = newWebhook(crd, f.convert, convert), true
		f.copying = copyingConverter{f.convert}
	}
	return nil
}

// has reports whether the definition has the version.
func (f *family) has(version string) bool {
	return slices.ContainsFunc(f.crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
}

// gvk returns the family's kind in one of its versions.
func (f *family) gvk(version string) schema.GroupVersionKind { return f.kind.WithVersion(version) }

// BuiltIn creates a built-in kind from the YAML of a definition. Its objects are
// pruned, validated, shown and applied as those of custom kinds. The definition itself
// is not stored, so it cannot be deleted. The text needs only a spec. Its schemas, which take ten
// times as long to read as the rest, are read and compiled at their first use.
func BuiltIn(definition []byte) (*kind.Kind, error) {
	read := func(text []byte) (*apiextensionsv1.CustomResourceDefinition, error) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			return nil, fmt.Errorf("read the definition of a built-in kind: %w", err)
		}
		crd.Name, crd.Generation = crd.Spec.Names.Plural+"."+crd.Spec.Group, 1
		crd.Status.AcceptedNames = crd.Spec.Names
		return crd, nil
	}
	header, err := read(withoutSchemas(definition))
	if err != nil {
		return nil, err
	}
	f := &family{crd: header, raw: len(header.Spec.Versions) == 1 && !hasDefault.Match(definition)}
	f.read = func() (*apiextensionsv1.CustomResourceDefinition, error) { return read(definition) }
	k, err := f.newKind(nil)
	if err != nil {
		return nil, err
	}
	k.Definition, k.Fingerprint = "", string(definition)
	return k, nil
}

// hasDefault finds a default value. A schema in braces is that of a field named default; no definition has an object as a default.
var hasDefault = regexp.MustCompile(`default: [^{]`)

// withoutSchemas leaves the schemas out of a definition in YAML: a line "schema:" and the deeper ones below it.
func withoutSchemas(definition []byte) (rest []byte) {
	deeper := -1 // than these spaces is a line of the schema
	for line := range bytes.Lines(definition) {
		spaces := len(line) - len(bytes.TrimLeft(line, " "))
		text := bytes.TrimSpace(line)
		if deeper >= 0 && (spaces > deeper || len(text) == 0) {
			continue
		}
		if deeper = -1; string(text) == "schema:" {
			deeper = spaces
			continue
		}
		rest = append(rest, line...)
	}
	return rest
}

// Checked adds a check to the rules of a kind, for what its schema cannot express. Check sees new objects and changed ones.
type Checked struct {
	lifecycle.Strategy
	Check func(obj runtime.Object) field.ErrorList
}

// Create is part of lifecycle.Strategy.
func (s Checked) Create(ctx context.Context, obj runtime.Object) ([]string, field.ErrorList) {
	warnings, errs := s.Strategy.Create(ctx, obj)
	return warnings, append(errs, s.Check(obj)...)
}

// Update is part of lifecycle.Strategy.
func (s Checked) Update(ctx context.Context, obj, old runtime.Object) ([]string, field.ErrorList) {
	warnings, errs := s.Strategy.Update(ctx, obj, old)
	return warnings, append(errs, s.Check(obj)...)
}

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
