package kind

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// NewTable converts an object or a list to a Table with one row per object. Rows carry
// their object; the library's handler drops it or reduces it to metadata. options says
// whether to include the column definitions.
func NewTable(obj, options runtime.Object, columns []metav1.TableColumnDefinition, row func(runtime.Object) (metav1.TableRow, error)) (*metav1.Table, error) {
	t := &metav1.Table{Rows: []metav1.TableRow{}}
	if o, ok := options.(*metav1.TableOptions); !ok || o == nil || !o.NoHeaders {
		t.ColumnDefinitions = columns
	}
	if list, err := meta.ListAccessor(obj); err == nil {
		t.ResourceVersion, t.Continue, t.RemainingItemCount = list.GetResourceVersion(), list.GetContinue(), list.GetRemainingItemCount()
	} else if one, err := meta.CommonAccessor(obj); err == nil {
		t.ResourceVersion = one.GetResourceVersion()
	}
	add := func(item runtime.Object) error {
		r, err := row(item)
		if err != nil {
			return err
		}
		r.Object = runtime.RawExtension{Object: item}
		t.Rows = append(t.Rows, r)
		return nil
	}
	if !meta.IsListType(obj) {
		return t, add(obj)
	}
	return t, meta.EachListItem(obj, add)
}

// Cells returns the row function of NewTable for objects of one Go type.
func Cells[P any](cells func(P) []any) func(runtime.Object) (metav1.TableRow, error) {
	return func(item runtime.Object) (metav1.TableRow, error) {
		p, ok := item.(P)
		if !ok {
			return metav1.TableRow{}, fmt.Errorf("no table of a %T", item)
		}
		return metav1.TableRow{Cells: cells(p)}, nil
	}
}
