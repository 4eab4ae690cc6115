package kind

import (
	"reflect"
	"strings"
)

// ReportsGeneration reports whether the schema of the kind has a
// status.observedGeneration: the generation that its controller has seen.
func (k *Kind) ReportsGeneration() bool {
	for _, v := range k.Versions {
		if v.reportsGeneration() {
			return true
		}
	}
	return false
}

// reportsGeneration reads the schema of a custom kind, or the Go type of a built-in
// one.
func (v *Version) reportsGeneration() bool {
	if v.Schema != nil {
		_, found := v.Schema.Properties["status"].Properties["observedGeneration"]
		return found
	}
	if v.New == nil {
		return false
	}
	status, found := fieldOf(reflect.TypeOf(v.New()), "status")
	if !found {
		return false
	}
	_, found = fieldOf(status, "observedGeneration")
	return found
}

// fieldOf returns the type of a struct's field by its JSON name.
func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil, false
	}
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if tag == name {
			return t.Field(i).Type, true
		}
	}
	return nil, false
}
