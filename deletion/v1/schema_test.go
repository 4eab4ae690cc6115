package v1

import (
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// TestSchemas compares the published schemas with the Go types, field by field: it fails when
// the generated file is older than the types.
func TestSchemas(t *testing.T) {
	for _, kind := range []any{DeletionPreview{}, DeletionReport{}, FinalizerRemoval{}, ArchivedObject{}, Cascade{}, Restore{}} {
		typ := reflect.TypeOf(kind)
		compare(t, typ.Name(), typ, *Schema(kind), 0)
	}
}

func compare(t *testing.T, path string, typ reflect.Type, s spec.Schema, depth int) {
	t.Helper()
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		if typ.Kind() == reflect.Slice {
			if len(s.Type) != 1 || s.Type[0] != "array" || s.Items == nil {
				t.Errorf("%s: is a list, and the schema says %v", path, s.Type)
				return
			}
			s = *s.Items.Schema
		}
		typ = typ.Elem()
	}
	if typ == reflect.TypeFor[metav1.Time]() || typ.Kind() != reflect.Struct {
		want := map[reflect.Kind]string{reflect.String: "string", reflect.Int64: "integer", reflect.Int: "integer", reflect.Bool: "boolean", reflect.Struct: "string"}[typ.Kind()]
		if len(s.Type) != 1 || s.Type[0] != want {
			t.Errorf("%s: want %s, the schema says %v", path, want, s.Type)
		}
		return
	}
	if preserved, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields"); preserved {
		return
	}
	fields := map[string]reflect.Type{}
	jsonFields(typ, fields)
	delete(fields, "metadata") // common to all objects, and published with them
	delete(fields, "inline")
	for name, of := range fields {
		property, ok := s.Properties[name]
		if !ok {
			t.Errorf("%s.%s has no schema", path, name)
			continue
		}
		if property.Description == "" {
			t.Errorf("%s.%s has no description", path, name)
		}
		compare(t, path+"."+name, of, property, depth+1)
	}
	for name := range s.Properties {
		if _, ok := fields[name]; !ok {
			t.Errorf("%s has no field %s", path, name)
		}
	}
}

// jsonFields collects fields by their JSON names, including those of embedded structs,
// except TypeMeta.
func jsonFields(typ reflect.Type, into map[string]reflect.Type) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Type == reflect.TypeFor[metav1.TypeMeta]():
		case options == "inline":
			jsonFields(f.Type, into)
		default:
			into[name] = f.Type
		}
	}
}
