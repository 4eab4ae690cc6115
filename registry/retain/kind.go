package retain

import (
	_ "embed"
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/lifecycle"
)

//go:embed retentionpolicy.yaml
var definition []byte

func newKind() (*kind.Kind, error) {
	k, err := custom.BuiltIn(definition)
	if err != nil {
		return nil, err
	}
	k.Most = lifecycle.MostPolicies
	k.Versions[0].Strategy = custom.Checked{Strategy: k.Versions[0].Strategy, Check: validate}
	return k, nil
}

func validate(obj runtime.Object) field.ErrorList {
	body, err := json.Marshal(obj)
	if err == nil {
		_, err = parse(body)
	}
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), "", err.Error())}
	}
	return nil
}
