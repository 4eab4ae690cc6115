package expiry

import (
	_ "embed"
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/lifecycle"
)

// The kinds of policies, as in object.Key.Kind.
var (
	policies        = kind.StorageName(v1.GroupVersion.Group, "expirypolicies")
	clusterPolicies = kind.StorageName(v1.GroupVersion.Group, "clusterexpirypolicies")
)

//go:embed expirypolicy.yaml
var definition string

// ofCluster makes the definition of ClusterExpiryPolicy of that of ExpiryPolicy.
var ofCluster = strings.NewReplacer("scope: Namespaced", "scope: Cluster", "ExpiryPolicy", "ClusterExpiryPolicy", "expirypolic", "clusterexpirypolic",
	"# namespaces:", "namespaces:", " of its namespace", "")

// Kinds returns ExpiryPolicy and ClusterExpiryPolicy.
func Kinds() (made []*kind.Kind, err error) {
	for _, text := range []string{definition, ofCluster.Replace(definition)} {
		k, err := custom.BuiltIn([]byte(text))
		if err != nil {
			return nil, err
		}
		k.Most = lifecycle.MostPolicies
		k.Versions[0].Strategy = custom.Checked{Strategy: k.Versions[0].Strategy, Check: validate}
		made = append(made, k)
	}
	return made, nil
}

func validate(obj runtime.Object) field.ErrorList {
	body, err := json.Marshal(obj)
	var p *Policy
	if err == nil {
		p, err = parsePolicy(body)
	}
	if err == nil && p.Condition != nil {
		_, err = p.Condition()
	}
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), "", err.Error())}
	}
	return nil
}
