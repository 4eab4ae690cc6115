package builtin

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/exeunt/exeunt/kind"
)

var update = flag.Bool("update", false, "write types.json.gz")

// TestTypesAreTheLibrarys compares the embedded types with those of the client-go in go.mod.
func TestTypesAreTheLibrarys(t *testing.T) {
	library := applyconfigurations.NewTypeConverter(Scheme())
	want := map[string]string{}
	for _, k := range Kinds() {
		for _, v := range k.Versions {
			addTypes(t, library, v, want)
		}
	}
	if *update {
		writeTypes(t, want)
		return // this binary still embeds the old file
	}
	got, err := unpackTypes()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("types.json.gz is out of date; run go generate ./kind/builtin (-client-go +ours):\n%s", diff)
	}
}

// addTypes adds the types that a kind is made of, by the library's schema.
func addTypes(t *testing.T, library managedfields.TypeConverter, v *kind.Version, out map[string]string) {
	t.Helper()
	if hasNoTypes(v.GVK) {
		return
	}
	obj := v.New()
	obj.GetObjectKind().SetGroupVersionKind(v.GVK)
	value, err := library.ObjectToTyped(obj)
	if err != nil {
		t.Fatalf("%s: %v", v.GVK, err)
	}
	var add func(name string)
	add = func(name string) {
		if _, done := out[name]; done {
			return
		}
		def, ok := value.Schema().FindNamedType(name)
		if !ok {
			t.Fatalf("%s: client-go has no type %s", v.GVK, name)
		}
		text, err := yaml.Marshal(def)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(text)
		namedTypes(def.Atom, add)
	}
	add(*value.TypeRef().NamedType)
}

func writeTypes(t *testing.T, types map[string]string) {
	t.Helper()
	text, err := json.Marshal(types)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("types.json.gz", packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestTypesReadBack: a type survives writing and reading.
func TestTypesReadBack(t *testing.T) {
	t.Parallel()
	texts, err := unpackTypes()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range texts {
		var def smd.TypeDef
		if err := yaml.UnmarshalStrict([]byte(text), &def); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, err := yaml.Marshal(def)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(text, string(again)); diff != "" || def.Name != name {
			t.Errorf("%s is %s:\n%s", name, def.Name, diff)
		}
	}
}

// BenchmarkFirstWrite measures the first write of an object of a kind.
func BenchmarkFirstWrite(b *testing.B) {
	for _, k := range Kinds() {
		v := k.Versions[0]
		if k.Name != "ConfigMap" && k.Name != "Pod" {
			continue
		}
		b.Run(k.Name, func(b *testing.B) {
			for b.Loop() {
				if _, err := newTypeConverter(Scheme()).kind(v.GVK); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
