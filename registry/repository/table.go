package repository

import (
	"context"
	"fmt"
	"time"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/exeunt/exeunt/kind"
)

// table is what `kubectl get repositories` shows.
type table struct{}

var columns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The name in the API."},
	{Name: "Size", Type: "string", Description: "The bytes of all its blobs."},
	{Name: "Tags", Type: "integer", Description: "How many tags it has."},
	{Name: "Last Push", Type: "string", Description: "Time since the last push."},
	{Name: "Reclaimable", Type: "string", Description: "The bytes that collection will remove."},
	{Name: "Age", Type: "string", Description: "Time since its creation."},
	{Name: "Manifests", Type: "integer", Priority: 1, Description: "How many manifests it has."},
	{Name: "Path", Type: "string", Priority: 1, Description: "The path for clients of the registry."},
}

// ConvertToTable shows one repository or a list.
func (table) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return kind.NewTable(obj, options, columns, kind.Cells(cells))
}

func cells(u *unstructured.Unstructured) []any {
	push := "<never>"
	if text, _, _ := unstructured.NestedString(u.Object, "status", "lastPush"); text != "" {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			push = duration.HumanDuration(time.Since(at))
		}
	}
	return []any{
		u.GetName(), size(figure(u, "size")), figure(u, "tags"), push, size(figure(u, "reclaimable")),
		duration.HumanDuration(time.Since(u.GetCreationTimestamp().Time)), figure(u, "manifests"), pathOf(u),
	}
}

// content says what a deletion of the repository takes, by its status.
func content(body []byte) string {
	status := gjson.GetBytes(body, "status")
	count := func(field, word string) string {
		n := status.Get(field).Int()
		if n != 1 {
			word += "s"
		}
		return fmt.Sprintf("%d %s", n, word)
	}
	if status.Get("manifests").Int() == 0 {
		return ""
	}
	bytes := size(status.Get("size").Int())
	if status.Get("size").Int() < 10<<10 {
		bytes = count("size", "byte")
	}
	return fmt.Sprintf("%s, %s and %s", count("tags", "tag"), count("manifests", "manifest"), bytes)
}

// figure returns a number of the status.
func figure(u *unstructured.Unstructured, name string) int64 {
	n, _, _ := unstructured.NestedInt64(u.Object, "status", name)
	return n
}

// size formats a number of bytes: two or three digits and a unit.
func size(n int64) string {
	unit := int64(1)
	for _, next := range []int64{1 << 10, 1 << 20, 1 << 30, 1 << 40} {
		if n >= 10*next {
			unit = next
		}
	}
	return resource.NewQuantity(n/unit*unit, resource.BinarySI).String()
}
