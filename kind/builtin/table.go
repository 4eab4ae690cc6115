package builtin

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"
	printerstorage "k8s.io/kubernetes/pkg/printers/storage"
)

// printer makes the tables of `kubectl get` from internal types.
var printer = sync.OnceValue(func() printerstorage.TableConvertor {
	return printerstorage.TableConvertor{TableGenerator: printers.NewTableGenerator().With(printersinternal.AddHandlers)}
})

// tables makes the tables of objects of the version that is served.
type tables struct{}

// ConvertToTable implements rest.TableConvertor. Rows carry the objects as they were given.
func (tables) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	in, err := internal(obj)
	if err != nil {
		return nil, err
	}
	table, err := printer().ConvertToTable(ctx, in, options)
	if err != nil {
		return nil, err
	}
	items := []runtime.Object{obj}
	if meta.IsListType(obj) {
		if items, err = meta.ExtractList(obj); err != nil {
			return nil, err
		}
	}
	if len(items) != len(table.Rows) {
		return nil, fmt.Errorf("table of %T has %d rows for %d objects", obj, len(table.Rows), len(items))
	}
	for i := range items {
		table.Rows[i].Object.Object = items[i]
	}
	return table, nil
}

// ScaleTable returns the table of Scales.
func ScaleTable() rest.TableConvertor { return tables{} }
