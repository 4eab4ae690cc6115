package expiry

import (
	"encoding/json"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/custom"
)

// The kinds of policies, as in object.Key.Kind.
var (
	policies        = kind.StorageName(v1.GroupVersion.Group, "expirypolicies")
	clusterPolicies = kind.StorageName(v1.GroupVersion.Group, "clusterexpirypolicies")
)

// Kinds makes ExpiryPolicy and ClusterExpiryPolicy custom kinds, from definitions that are not stored, as Repository is
// one.
func Kinds() (made []*kind.Kind, err error) {
	for _, names := range []apiextensionsv1.CustomResourceDefinitionNames{
		{Plural: "expirypolicies", Singular: "expirypolicy", Kind: "ExpiryPolicy", ListKind: "ExpiryPolicyList"},
		{Plural: "clusterexpirypolicies", Singular: "clusterexpirypolicy", Kind: "ClusterExpiryPolicy", ListKind: "ClusterExpiryPolicyList"},
	} {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		crd.Name, crd.Spec.Group, crd.Spec.Names, crd.Status.AcceptedNames = kind.StorageName(v1.GroupVersion.Group, names.Plural), v1.GroupVersion.Group, names, names
		crd.Spec.Scope = apiextensionsv1.NamespaceScoped
		cluster := crd.Name == clusterPolicies
		if cluster {
			crd.Spec.Scope = apiextensionsv1.ClusterScoped
		}
		crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: v1.GroupVersion.Version, Served: true, Storage: true,
			Schema:       &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schemaOf(cluster)},
			Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
		}}
		k, err := custom.New(crd, nil)
		if err != nil {
			return nil, err
		}
		k.Definition = "" // no stored definition declares it, so none can be deleted
		v := k.Versions[0]
		v.Strategy, v.Table = custom.Checked{Strategy: v.Strategy, Check: validate}, table
		made = append(made, k)
	}
	return made, nil
}

type props = apiextensionsv1.JSONSchemaProps

func text(description string) props {
	longest := int64(256)
	return props{Type: "string", MaxLength: &longest, Description: description}
}

func list(of props, most int64, description string) props {
	return props{Type: "array", MaxItems: &most, Description: description, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &of}}
}

func fieldsOf(description string, properties map[string]props, required ...string) props {
	return props{Type: "object", Description: description, Properties: properties, Required: required}
}

func oneOf(description string, values ...string) props {
	p := props{Type: "string", Description: description}
	for _, v := range values {
		p.Enum = append(p.Enum, apiextensionsv1.JSON{Raw: []byte(`"` + v + `"`)})
	}
	return p
}

func number(most float64, description string) props {
	least := 0.0
	p := props{Type: "integer", Format: "int64", Minimum: &least, Description: description}
	if most > 0 {
		p.Maximum = &most
	}
	return p
}

func schemaOf(cluster bool) *props {
	few, one := int64(64), int64(1)
	expression := text("An expression in CEL that must hold too, about the variable object, with the library and the limits of admission policies.")
	longest := int64(maxExpression)
	expression.MaxLength = &longest
	resources := list(text(""), 16, `The resources, with their group: "configmaps", "jobs.batch".`)
	resources.MinItems = &one
	spec := map[string]props{
		"resources": resources,
		"selector": fieldsOf("Which objects, by their labels. Default all.", map[string]props{
			"matchLabels": {Type: "object", MaxProperties: &few, AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &props{Type: "string"}}},
			"matchExpressions": list(fieldsOf("", map[string]props{
				"key": text(""), "operator": text(""), "values": list(text(""), 64, ""),
			}, "key", "operator"), 64, ""),
		}),
		"fieldSelector": text(`Which of them, by their fields: "status.phase=Failed".`),
		"condition":     expression,
		"expire": fieldsOf("When they expire.", map[string]props{
			"after": text(`How long after the time of since, such as "7d" or "12h".`),
			"since": oneOf("The creation, or the time at which one of the conditions came to hold. Default Creation.", sinceCreation, sinceCondition),
			"conditions": list(fieldsOf("", map[string]props{
				"type": text("As in status.conditions."), "status": oneOf("Default True.", "True", "False", "Unknown"),
			}, "type"), 16, "With since Condition: the first that holds counts."),
		}, "after"),
		"propagationPolicy":  oneOf("As of a delete.", "Background", "Foreground", "Orphan"),
		"gracePeriodSeconds": number(0, "As of a delete."),
		"confirmAbove": fieldsOf("How many objects it may take in a day (UTC) without another confirmation. 0: no such limit.", map[string]props{
			"objects": number(0, "A number. Default 1000, if confirmAbove is not set."),
			"percent": number(100, "A share of all objects of its resources and namespaces."),
		}),
	}
	about := "ExpiryPolicy says which objects of its namespace the server deletes, and when."
	if cluster {
		about = "ClusterExpiryPolicy says which objects the server deletes, and when."
		spec["namespaces"] = list(text("A pattern, with *, ? and […]."), 64, "The namespaces, by patterns. Default all, and cluster-scoped objects.")
	}
	top := fieldsOf(about+" It takes nothing until it is started: exeunt expiry start.", map[string]props{
		"apiVersion": {Type: "string"}, "kind": {Type: "string"}, "metadata": {Type: "object"},
		"spec": fieldsOf("The desired state.", spec, "resources", "expire"),
		"status": fieldsOf("What it does, some seconds old.", map[string]props{
			"state":              oneOf("Observing until it is started, Counting until its objects are counted, Started, or Waiting for a confirmation.", observing, counting, started, waiting),
			"message":            {Type: "string", Description: "What it waits for."},
			"observedGeneration": number(0, "The generation that is counted."),
			"countedAt":          {Type: "string", Format: "date-time", Description: "When its objects were counted: after each change of the policy."},
			"selected":           number(0, "How many objects it selected then."),
			"wouldTake":          number(0, "How many of them were due then."),
			"taken":              number(0, "How many objects it has taken."),
			"lastTaken":          {Type: "string", Format: "date-time", Description: "When it last took an object."},
		}),
	}, "spec")
	return &top
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

// table is what `kubectl get expirypolicies` shows.
var table = kind.Table[*unstructured.Unstructured]{Columns: []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The name in the API."},
	{Name: "State", Type: "string", Description: "Observing, Counting, Started, or Waiting."},
	{Name: "Selected", Type: "integer", Description: "How many objects it selected when they were counted."},
	{Name: "Would Take", Type: "integer", Description: "How many of them were due then."},
	{Name: "Taken", Type: "integer", Description: "How many objects it has taken."},
	{Name: "Age", Type: "string", Description: "Time since its creation."},
}, Cells: func(u *unstructured.Unstructured) []any {
	state, _, _ := unstructured.NestedString(u.Object, "status", "state")
	return []any{
		u.GetName(), state, figure(u, "selected"), figure(u, "wouldTake"), figure(u, "taken"),
		duration.HumanDuration(time.Since(u.GetCreationTimestamp().Time)),
	}
}}

func figure(u *unstructured.Unstructured, name string) int64 {
	n, _, _ := unstructured.NestedInt64(u.Object, "status", name)
	return n
}
