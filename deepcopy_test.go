package exeunt_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	access "github.com/exeunt/exeunt/access/v1"
	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	deletion "github.com/exeunt/exeunt/deletion/v1"
)

// TestDeepCopies: a copy is equal and shares no memory with the original. It fails when a
// generated copy is older than its type: go generate in the type's package.
func TestDeepCopies(t *testing.T) {
	kinds := []runtime.Object{&access.User{}, &access.UserList{}, &v1alpha1.MeshNode{}}
	for _, typ := range deletion.Scheme().AllKnownTypes() {
		if typ.PkgPath() == reflect.TypeFor[deletion.Cascade]().PkgPath() {
			kinds = append(kinds, reflect.New(typ).Interface().(runtime.Object))
		}
	}
	fill := randfill.NewWithSeed(1).NilChance(0).NumElements(1, 2).MaxDepth(12).
		Funcs(func(raw *runtime.RawExtension, c randfill.Continue) { c.Fill(&raw.Raw) })
	for _, o := range kinds {
		fill.Fill(o)
		c := o.DeepCopyObject()
		if diff := cmp.Diff(o, c); diff != "" {
			t.Errorf("copy of %T (-original +copy):\n%s", o, diff)
		}
		shared(t, fmt.Sprintf("%T", o), reflect.ValueOf(o), reflect.ValueOf(c))
	}
}

// shared reports what two equal values have in common.
func shared(t *testing.T, path string, a, b reflect.Value) {
	t.Helper()
	switch a.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice:
		if !a.IsNil() && a.UnsafePointer() == b.UnsafePointer() && a.Type().Elem().Size() > 0 {
			t.Errorf("%s: the copy shares it with the original", path)
		}
	}
	switch a.Kind() {
	case reflect.Pointer:
		if a.Type().Elem().PkgPath() != "time" && !a.IsNil() {
			shared(t, path, a.Elem(), b.Elem())
		}
	case reflect.Slice:
		for i := range a.Len() {
			shared(t, fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i))
		}
	case reflect.Struct:
		for i := range a.NumField() {
			if f := a.Type().Field(i); f.IsExported() {
				shared(t, path+"."+f.Name, a.Field(i), b.Field(i))
			}
		}
	}
}
