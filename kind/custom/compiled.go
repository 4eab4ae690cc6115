package custom

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/klauspost/compress/s2"
	"github.com/tidwall/gjson"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// compiled is what the schemas of a definition are compiled to. Rules and types are made at their
// first use.
//
// One write makes two typed values and merges them, which needs that both point to the same
// smdschema.Schema. They point into this struct, and so keep it reachable: family.weak finds it
// until the last one is gone, and no write meets two.
type compiled struct {
	merge   smdschema.Schema
	schemas schemas
	rules   map[string]func() (built, error) // by version
	types   func() map[runtimeschema.GroupVersionKind]*typed.ParseableType

	cost int         // bytes, about; see expansion
	used atomic.Bool // since the hand of the cache passed
}

// expansion is how many bytes one byte of a definition takes once its schemas, rules and types are
// compiled (BenchmarkKinds in test/start).
const expansion = 30

// Cache keeps what the definitions that are in use are compiled to, up to a limit (the CLOCK
// algorithm, as the caches of package store).
type Cache struct {
	limit int // on the sum of costs

	mu   sync.Mutex
	ring []*family // each holds a compiled; guarded by mu
	hand int       // in ring; guarded by mu
	size int       // sum of costs; guarded by mu
}

// NewCache makes a cache of about so many bytes.
func NewCache(limit int) *Cache { return &Cache{limit: limit} }

// add keeps what f was compiled to, and drops others that were not used for longest.
func (c *Cache) add(f *family, made *compiled) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.ring) > 0 && c.size+made.cost > c.limit {
		c.hand %= len(c.ring)
		old := c.ring[c.hand].held.Load()
		if old.used.Swap(false) {
			c.hand++
			continue
		}
		c.ring[c.hand].held.Store(nil)
		c.size -= old.cost
		last := len(c.ring) - 1
		c.ring[c.hand], c.ring[last] = c.ring[last], nil
		c.ring = c.ring[:last]
	}
	c.ring, c.size = append(c.ring, f), c.size+made.cost
	f.held.Store(made)
}

// compiled returns what the schemas are compiled to, and compiles them if that is not kept.
func (f *family) compiled() (*compiled, error) {
	c := f.held.Load()
	if c == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if c = f.held.Load(); c == nil {
			if c = f.weak.Value(); c == nil {
				var err error
				if c, err = f.compile(); err != nil {
					return nil, fmt.Errorf("serve %s: %w", f.crd.Name, err)
				}
				f.weak = weak.Make(c)
			}
			if f.cache == nil {
				f.held.Store(c)
			} else {
				f.cache.add(f, c)
			}
		}
	}
	if !c.used.Load() { // avoids writes to a shared cache line
		c.used.Store(true)
	}
	return c, nil
}

func (f *family) compile() (*compiled, error) {
	crd, err := f.read()
	if err != nil {
		return nil, err
	}
	c := &compiled{rules: map[string]func() (built, error){}, cost: f.size * expansion}
	if c.schemas, err = newSchemas(crd); err != nil {
		return nil, err
	}
	for version, s := range c.schemas {
		c.rules[version] = sync.OnceValues(func() (built, error) { return f.build(version, s) })
	}
	c.types = sync.OnceValue(func() map[runtimeschema.GroupVersionKind]*typed.ParseableType { return f.parseable(&c.merge) })
	return c, nil
}

// structural returns the schema of a version for pruning and defaulting; nil if there is none.
func (f *family) structural(version string) (*schema.Structural, error) {
	c, err := f.compiled()
	if err != nil {
		return nil, err
	}
	return c.schemas[version], nil
}

// rules returns the strategies of a version.
func (f *family) rules(version string) (built, error) {
	c, err := f.compiled()
	if err != nil {
		return built{}, err
	}
	return c.rules[version]()
}

// parseable fills merge with the types of all versions, for server-side apply. Versions that are
// not served are included, since managed fields may be in one. Nil if the schemas do not allow it.
func (f *family) parseable(merge *smdschema.Schema) map[runtimeschema.GroupVersionKind]*typed.ParseableType {
	models, err := generated(runtime.NewScheme(), metav1.ObjectMeta{}.OpenAPIModelName())
	if err != nil {
		return nil
	}
	out := map[runtimeschema.GroupVersionKind]*typed.ParseableType{}
	for _, v := range f.crd.Spec.Versions {
		name := modelName(f.gvk(v.Name))
		if models[name] = f.openAPI(v.Name); models[name] == nil {
			return nil
		}
		out[f.gvk(v.Name)] = &typed.ParseableType{Schema: merge, TypeRef: smdschema.TypeRef{NamedType: &name}}
	}
	made, err := schemaconv.ToSchemaFromOpenAPI(models, false)
	if err != nil {
		return nil
	}
	merge.Types = made.Types
	return out
}

// types is the managedfields.TypeConverter of a family. If its schemas do not allow that, field
// types are deduced from each object, as for a kind without a schema: server-side apply then
// replaces lists as a whole, which is better than refusing every write.
type types struct{ family *family }

// ObjectToTyped implements managedfields.TypeConverter.
func (t types) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	c, err := t.family.compiled()
	if err != nil {
		return nil, err
	}
	all := c.types()
	if all == nil {
		return managedfields.NewDeducedTypeConverter().ObjectToTyped(obj, opts...)
	}
	one := all[obj.GetObjectKind().GroupVersionKind()]
	if one == nil {
		return noTypes().ObjectToTyped(obj, opts...)
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return one.FromUnstructured(u.Object, opts...)
	}
	return one.FromStructured(obj, opts...)
}

// TypedToObject implements managedfields.TypeConverter.
func (t types) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	return noTypes().TypedToObject(value)
}

// noTypes knows no type: it answers the error that the library expects for a version that is gone.
var noTypes = sync.OnceValue(func() managedfields.TypeConverter {
	none, err := managedfields.NewTypeConverter(map[string]*spec.Schema{}, false)
	if err != nil {
		panic(err) // the input is constant
	}
	return none
})

// Header decodes a stored definition without its schemas, which are nearly all of it, and without
// what only clients read: the managed fields and the last applied configuration.
func Header(body []byte, resourceVersion string) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	var light bytes.Buffer
	end := 0
	each(string(body), func(s gjson.Result) {
		light.Write(body[end:s.Index])
		light.WriteString("{}")
		end = s.Index + len(s.Raw)
	})
	light.Write(body[end:])
	gvk := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	err := object.DecodeInto(light.Bytes(), resourceVersion, gvk, crd)
	crd.ManagedFields = nil
	delete(crd.Annotations, corev1.LastAppliedConfigAnnotation)
	return crd, err
}

// each visits the schemas in a stored definition.
func each(body string, visit func(gjson.Result)) {
	gjson.Get(body, "spec.versions").ForEach(func(_, version gjson.Result) bool {
		if s := version.Get("schema.openAPIV3Schema"); s.IsObject() && s.Index > 0 {
			visit(s)
		}
		return true
	})
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Stored is New for a definition whose stored body was accepted, and its Header. It takes
// microseconds, and compiles the schemas at the first use; what cannot be compiled fails then. The
// kind keeps the body, compressed.
func Stored(header *apiextensionsv1.CustomResourceDefinition, body []byte, cache *Cache, convert NewConverter) (*kind.Kind, error) {
	buffer := buffers.Get().(*[]byte)
	*buffer = s2.Encode((*buffer)[:cap(*buffer)], body)
	packed := bytes.Clone(*buffer) // a smaller piece of memory
	buffers.Put(buffer)
	f := &family{crd: header, cache: cache, size: len(body), raw: rawBody(body, header.Generation)}
	f.read = func() (*apiextensionsv1.CustomResourceDefinition, error) {
		body, err := s2.Decode(nil, packed)
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		return crd, object.DecodeInto(body, "", apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), crd)
	}
	k, err := f.newKind(convert)
	if err == nil {
		k.Fingerprint = Fingerprint(header)
	}
	return k, err
}

// Fingerprint is equal for two definitions that declare the same kind.
func Fingerprint(crd *apiextensionsv1.CustomResourceDefinition) string {
	return fmt.Sprintf("%s/%d/%v", crd.UID, crd.Generation, crd.Status.AcceptedNames)
}

// rawBody is schemas.raw for a body: it may be false where that is true. Equal schemas have equal
// bodies, and a default is a field of that name.
func rawBody(body []byte, generation int64) bool {
	if generation > 1 || bytes.Contains(body, []byte(`"default":`)) { // mostly: the rest copies the body
		return false
	}
	raw, first := true, ""
	each(string(body), func(s gjson.Result) {
		raw = raw && (first == "" || first == s.Raw)
		first = s.Raw
	})
	return raw
}
