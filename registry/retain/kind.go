package retain

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"

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
	k.Most = lifecycle.MostRetentionPolicies
	k.Versions[0].Strategy = custom.Checked{Strategy: k.Versions[0].Strategy, Check: validate}
	return k, nil
}

const (
	mostKept     = 1000 // tags that a policy keeps by their number
	mostPatterns = 64   // of a policy
	mostPattern  = 128  // bytes, as a tag
)

// checkCost refuses a policy that costs too much for each tag. One that was stored earlier still works.
func (p *Policy) checkCost() error {
	kept, patterns := 0, slices.Clone(p.Keep)
	for _, r := range p.Rules {
		kept, patterns = kept+r.KeepLast, append(patterns, r.Tags...)
	}
	switch {
	case kept > mostKept:
		return fmt.Errorf("rules: the numbers of keepLast are %d together, more than %d", kept, mostKept)
	case len(patterns) > mostPatterns:
		return fmt.Errorf("it has %d patterns, more than %d", len(patterns), mostPatterns)
	case slices.ContainsFunc(patterns, func(p string) bool { return len(p) > mostPattern }):
		return fmt.Errorf("a pattern has more than %d bytes", mostPattern)
	}
	return nil
}

func validate(obj runtime.Object) field.ErrorList {
	body, err := json.Marshal(obj)
	var p Policy
	if err == nil {
		p, err = parse(body)
	}
	if err == nil {
		err = p.checkCost()
	}
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), "", err.Error())}
	}
	return nil
}
