package mesh

import (
	"context"
	_ "embed" // meshnode.yaml

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/lifecycle"
)

//go:embed meshnode.yaml
var definition []byte

// newKind makes the built-in kind MeshNode from a definition, like custom
// kinds. Clients read it, watch it, label it and delete it; only enrolment
// creates one, and only the mesh writes spec and status.
func newKind() (*kind.Kind, error) {
	k, err := custom.BuiltIn(definition)
	if err != nil {
		return nil, err
	}
	k.Refuse = "a MeshNode comes about when a node enrols: exeunt node join"
	for _, v := range k.Versions {
		v.Strategy = readOnly{v.Strategy}
	}
	return k, nil
}

// readOnly lets clients change metadata only.
type readOnly struct{ lifecycle.Strategy }

// Update refuses a change of spec or status and names the field.
func (s readOnly) Update(ctx context.Context, obj, old runtime.Object) ([]string, field.ErrorList) {
	warnings, errs := s.Strategy.Update(ctx, obj, old)
	a, b := obj.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
	for _, name := range []string{"spec", "status"} {
		if !equality.Semantic.DeepEqual(a.Object[name], b.Object[name]) {
			errs = append(errs, field.Forbidden(field.NewPath(name), "is the mesh's to write: delete the object to drain the node"))
		}
	}
	return warnings, errs
}
