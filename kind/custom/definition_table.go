package custom

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// definitionTable shows definitions with the columns of Kubernetes 1.37.
type definitionTable struct{}

// ConvertToTable is for rest.TableConvertor.
func (definitionTable) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	if o, ok := options.(*metav1.TableOptions); !ok || o == nil || !o.NoHeaders {
		table.ColumnDefinitions = definitionColumns()
	}
	if list, err := meta.ListAccessor(obj); err == nil {
		table.ResourceVersion = list.GetResourceVersion()
		table.Continue = list.GetContinue()
		table.RemainingItemCount = list.GetRemainingItemCount()
	} else if one, err := meta.CommonAccessor(obj); err == nil {
		table.ResourceVersion = one.GetResourceVersion()
	}
	add := func(item runtime.Object) error {
		crd, ok := item.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			return fmt.Errorf("table of definitions: unexpected %T", item)
		}
		table.Rows = append(table.Rows, definitionRow(crd))
		return nil
	}
	if meta.IsListType(obj) {
		return table, meta.EachListItem(obj, add)
	}
	return table, add(obj)
}

func definitionColumns() []metav1.TableColumnDefinition {
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: docs["name"]},
		{Name: "Scope", Type: "string", Description: "Whether its objects live in a namespace"},
		{Name: "Versions", Type: "string", Description: "The versions it serves"},
		{Name: "Created At", Type: "date", Description: docs["creationTimestamp"]},
		{Name: "Group", Type: "string", Priority: 1, Description: "The group of its kind"},
		{Name: "Kind", Type: "string", Priority: 1, Description: "The kind it declares"},
		{Name: "ShortNames", Type: "string", Priority: 1, Description: "The short names it asks for"},
		{Name: "Established", Type: "boolean", Priority: 1, Description: "Whether its kind is served"},
	}
}

func definitionRow(crd *apiextensionsv1.CustomResourceDefinition) metav1.TableRow {
	var versions []string
	for _, v := range crd.Spec.Versions {
		switch {
		case v.Served && v.Storage:
			versions = append(versions, v.Name+"(storage)")
		case v.Served:
			versions = append(versions, v.Name)
		}
	}
	slices.Sort(versions)

	return metav1.TableRow{
		Object: runtime.RawExtension{Object: crd},
		Cells: []any{
			crd.Name,
			string(crd.Spec.Scope),
			strings.Join(versions, ","),
			crd.CreationTimestamp.UTC().Format(time.RFC3339),
			crd.Spec.Group,
			crd.Spec.Names.Kind,
			strings.Join(crd.Spec.Names.ShortNames, ","),
			Established(crd),
		},
	}
}
