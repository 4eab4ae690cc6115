package repository

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// table is what `kubectl get repositories` shows.
type table struct{}

var columns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The name in the API."},
	{Name: "Size", Type: "string", Description: "The bytes of all its blobs."},
	{Name: "Tags", Type: "integer", Description: "How many tags it has."},
	{Name: "Last Push", Type: "string", Description: "How long ago something was pushed."},
	{Name: "Reclaimable", Type: "string", Description: "The bytes that collection will remove."},
	{Name: "Age", Type: "string", Description: "How long it exists."},
	{Name: "Manifests", Type: "integer", Priority: 1, Description: "How many manifests it has."},
	{Name: "Path", Type: "string", Priority: 1, Description: "Where clients of the registry find it."},
}

// ConvertToTable shows one repository or a list.
func (table) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	t := &metav1.Table{}
	if o, ok := options.(*metav1.TableOptions); !ok || !o.NoHeaders {
		t.ColumnDefinitions = columns
	}
	if list, err := meta.ListAccessor(obj); err == nil {
		t.ResourceVersion, t.Continue, t.RemainingItemCount = list.GetResourceVersion(), list.GetContinue(), list.GetRemainingItemCount()
	} else if one, err := meta.Accessor(obj); err == nil {
		t.ResourceVersion = one.GetResourceVersion()
	}
	add := func(obj runtime.Object) error {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("no table of a %T", obj)
		}
		t.Rows = append(t.Rows, row(u))
		return nil
	}
	if meta.IsListType(obj) {
		return t, meta.EachListItem(obj, add)
	}
	return t, add(obj)
}

func row(u *unstructured.Unstructured) metav1.TableRow {
	push := "<never>"
	if text, _, _ := unstructured.NestedString(u.Object, "status", "lastPush"); text != "" {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			push = duration.HumanDuration(time.Since(at))
		}
	}
	return metav1.TableRow{
		Cells: []any{
			u.GetName(), size(figure(u, "size")), figure(u, "tags"), push, size(figure(u, "reclaimable")),
			duration.HumanDuration(time.Since(u.GetCreationTimestamp().Time)), figure(u, "manifests"), pathOf(u),
		},
		Object: runtime.RawExtension{Object: u},
	}
}

// figure is a number of the status.
func figure(u *unstructured.Unstructured, name string) int64 {
	n, _, _ := unstructured.NestedInt64(u.Object, "status", name)
	return n
}

// size is a number of bytes as people read it: two or three digits and a unit.
func size(n int64) string {
	unit := int64(1)
	for _, next := range []int64{1 << 10, 1 << 20, 1 << 30, 1 << 40} {
		if n >= 10*next {
			unit = next
		}
	}
	return resource.NewQuantity(n/unit*unit, resource.BinarySI).String()
}
