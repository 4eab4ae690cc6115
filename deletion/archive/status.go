package archive

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// statusOf returns a function that sets the status that an object has now. The rules of a
// create replace the status and do not change its parts, so it needs no copy.
func statusOf(obj runtime.Object) func(runtime.Object) {
	if custom, ok := obj.(*unstructured.Unstructured); ok {
		status, has := custom.Object["status"]
		return func(obj runtime.Object) {
			if made, ok := obj.(*unstructured.Unstructured); ok && has {
				made.Object["status"] = status
			}
		}
	}
	field := reflect.ValueOf(obj).Elem().FieldByName("Status")
	if !field.IsValid() {
		return func(runtime.Object) {}
	}
	status := reflect.ValueOf(field.Interface())
	return func(obj runtime.Object) { reflect.ValueOf(obj).Elem().FieldByName("Status").Set(status) }
}
