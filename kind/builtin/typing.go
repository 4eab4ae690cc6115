package builtin

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"

	"go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

//go:generate go test . -run TestTypesAreTheLibrarys -update

// packedTypes are the types of every field of the built-in kinds for server-side apply: a
// map, a list with keys, or atomic. They are client-go's, for the kinds that we serve: a
// gzipped JSON object with one YAML text per type.
//
//go:embed types.json.gz
var packedTypes []byte

// typeConverter types the objects of the built-in kinds for server-side apply. client-go's
// own converter reads the types of all kinds, which takes half a second and several
// megabytes. This one reads the types of a kind when an object of it is first written.
//
// The kinds that are never stored have no types there. Their types are deduced from the values, which is
// enough for objects that are never stored.
type typeConverter struct {
	scheme  *runtime.Scheme
	deduced managedfields.TypeConverter

	kinds sync.Map // schema.GroupVersionKind to *typed.ParseableType; entries never change

	mu    sync.Mutex
	types map[string]smd.TypeDef // types read so far, shared by kinds; guarded by mu
}

func newTypeConverter(s *runtime.Scheme) *typeConverter {
	return &typeConverter{scheme: s, deduced: managedfields.NewDeducedTypeConverter(), types: map[string]smd.TypeDef{}}
}

// ObjectToTyped implements managedfields.TypeConverter.
func (c *typeConverter) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	if hasNoTypes(gvk) {
		return c.deduced.ObjectToTyped(obj, opts...)
	}
	t, err := c.kind(gvk)
	if err != nil {
		return nil, err
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return t.FromUnstructured(u.UnstructuredContent(), opts...)
	}
	return t.FromStructured(obj, opts...)
}

// TypedToObject needs no types: the value has its own.
func (c *typeConverter) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	return c.deduced.TypedToObject(value)
}

// kind returns the type of a kind, with all types that it refers to.
func (c *typeConverter) kind(gvk schema.GroupVersionKind) (*typed.ParseableType, error) {
	if t, ok := c.kinds.Load(gvk); ok {
		return t.(*typed.ParseableType), nil
	}
	name, err := c.scheme.ToOpenAPIDefinitionName(gvk)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	texts, err := unpackTypes()
	if err != nil {
		return nil, err
	}
	s := &smd.Schema{}
	if err := c.reach(name, texts, map[string]bool{}, s); err != nil {
		return nil, fmt.Errorf("types of %s: %w", gvk, err)
	}
	t, _ := c.kinds.LoadOrStore(gvk, &typed.ParseableType{Schema: s, TypeRef: smd.TypeRef{NamedType: &name}})
	return t.(*typed.ParseableType), nil
}

// reach adds the named type, and all that it refers to, to s. The caller holds mu.
func (c *typeConverter) reach(name string, texts map[string]string, done map[string]bool, s *smd.Schema) error {
	if done[name] {
		return nil
	}
	done[name] = true
	t, ok := c.types[name]
	if !ok {
		text, ok := texts[name]
		if !ok {
			return fmt.Errorf("type %s does not exist", name)
		}
		if err := yaml.UnmarshalStrict([]byte(text), &t); err != nil {
			return fmt.Errorf("type %s: %w", name, err)
		}
		c.types[name] = t
	}
	s.Types = append(s.Types, t)
	var err error
	namedTypes(t.Atom, func(next string) {
		if err == nil {
			err = c.reach(next, texts, done, s)
		}
	})
	return err
}

// namedTypes returns the types that an atom refers to.
func namedTypes(a smd.Atom, tell func(string)) {
	ref := func(r smd.TypeRef) {
		if r.NamedType != nil {
			tell(*r.NamedType)
			return
		}
		namedTypes(r.Inlined, tell)
	}
	if a.List != nil {
		ref(a.List.ElementType)
	}
	if a.Map != nil {
		ref(a.Map.ElementType)
		for _, f := range a.Map.Fields {
			ref(f.Type)
		}
	}
}

func unpackTypes() (map[string]string, error) {
	r, err := gzip.NewReader(bytes.NewReader(packedTypes))
	if err != nil {
		return nil, fmt.Errorf("unpack types: %w", err)
	}
	var texts map[string]string
	if err := json.NewDecoder(r).Decode(&texts); err != nil {
		return nil, fmt.Errorf("unpack types: %w", err)
	}
	return texts, nil
}

// hasNoTypes says that client-go has no types of a kind: of those that are never stored.
func hasNoTypes(gvk schema.GroupVersionKind) bool {
	return gvk.Group == "authentication.k8s.io" || gvk.Group == "authorization.k8s.io" || gvk.Group == "" && gvk.Kind == "Binding"
}
