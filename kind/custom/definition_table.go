package custom

import (
	"context"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/kind"
)

// definitionTable shows definitions with the columns of Kubernetes 1.37.
type definitionTable struct{}

// ConvertToTable implements rest.TableConvertor.
func (definitionTable) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return kind.NewTable(obj, options, definitionColumns(), kind.Cells(definitionCells))
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

func definitionCells(crd *apiextensionsv1.CustomResourceDefinition) []any {
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
	return []any{
		crd.Name,
		string(crd.Spec.Scope),
		strings.Join(versions, ","),
		crd.CreationTimestamp.UTC().Format(time.RFC3339),
		crd.Spec.Group,
		crd.Spec.Names.Kind,
		strings.Join(crd.Spec.Names.ShortNames, ","),
		Established(crd),
	}
}
