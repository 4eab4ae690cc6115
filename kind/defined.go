package kind

import "github.com/tidwall/gjson"

// Defined returns the storage name of the kind that a stored
// CustomResourceDefinition declares; false if it cannot be read.
func Defined(definition []byte) (storage string, ok bool) {
	spec := gjson.GetBytes(definition, "spec")
	plural := spec.Get("names.plural").String()
	return StorageName(spec.Get("group").String(), plural), plural != ""
}
