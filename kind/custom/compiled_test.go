package custom

import (
	"fmt"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// TestHeader: a header is the definition without what only takes memory.
func TestHeader(t *testing.T) {
	t.Parallel()
	for _, text := range []string{widgets, plain} {
		crd := create(t, text)
		crd.Annotations = map[string]string{
			firstStorageKey: "v1", "kubectl.kubernetes.io/last-applied-configuration": `{"schema":{"openAPIV3Schema":{"type":"object"}}}`,
		}
		body, err := object.Encode(crd)
		if err != nil {
			t.Fatal(err)
		}
		header, err := Header(body, "7")
		if err != nil {
			t.Fatal(err)
		}
		want := crd.DeepCopy()
		want.ResourceVersion, want.TypeMeta = "7", header.TypeMeta
		want.Annotations = map[string]string{firstStorageKey: "v1"}
		for i := range want.Spec.Versions {
			want.Spec.Versions[i].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{}
		}
		if !equality.Semantic.DeepEqual(want, header) {
			t.Errorf("header of %s is %+v", crd.Name, header)
		}
	}
}

// TestCacheIsBounded: whatever is used, what is kept stays below the limit, and what is used often is kept.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	body, err := object.Encode(create(t, plain))
	if err != nil {
		t.Fatal(err)
	}
	cost := len(body) * expansion
	cache := NewCache(3 * cost)
	var families []*family
	for i := range 10 {
		f := familyOf(serveIn(t, cache, create(t, edit(t, plain, "gears.example.com", fmt.Sprintf("gears%d.example.com", i), "plural: gears, kind: Gear", fmt.Sprintf("plural: gears%d, kind: Gear%d", i, i)))))
		families = append(families, f)
		for _, used := range []*family{families[0], f} {
			if _, err := used.compiled(); err != nil {
				t.Fatal(err)
			}
		}
		if cache.size > cache.limit {
			t.Fatalf("%d bytes are kept, more than %d", cache.size, cache.limit)
		}
	}
	kept := 0
	for _, f := range families {
		if f.held.Load() != nil {
			kept++
		}
	}
	if kept != len(cache.ring) || kept < 2 || kept > 3 || families[0].held.Load() == nil {
		t.Errorf("%d are kept, the first: %v", kept, families[0].held.Load() != nil)
	}
}

func familyOf(k *kind.Kind) *family { return k.Versions[0].Wire.TypeConverter.(types).family }

// TestDroppedWhileInUse: typed values of one kind can be compared, although what made the first was
// dropped before the second was made, while other goroutines use both kinds.
func TestDroppedWhileInUse(t *testing.T) {
	t.Parallel()
	cache := NewCache(1) // keeps the last one that was used
	one, other := pick(t, serveIn(t, cache, create(t, widgets)), "v1"), serveIn(t, cache, create(t, plain)).Versions[0]
	obj := request(t, one, widget("v1", "spec: {size: 3, ports: [{name: a}]}"))
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 50 {
				first, err := one.Wire.TypeConverter.ObjectToTyped(obj, typed.AllowDuplicates)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := other.Decode([]byte(`{"metadata":{"name":"g"}}`), "1"); err != nil {
					t.Error(err)
				}
				second, err := one.Wire.TypeConverter.ObjectToTyped(obj, typed.AllowDuplicates)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := first.Compare(second); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
}
