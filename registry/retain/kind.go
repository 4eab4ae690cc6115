package retain

import (
	"context"
	"encoding/json"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/lifecycle"
	v1 "github.com/exeunt/exeunt/registry/v1"
)

// plural is the resource's name.
const plural = "retentionpolicies"

// newKind makes RetentionPolicy a custom kind, from a definition that is not stored, as Repository is one.
func newKind() (*kind.Kind, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = kind.StorageName(v1.GroupVersion.Group, plural)
	crd.Spec.Group, crd.Spec.Scope = v1.GroupVersion.Group, apiextensionsv1.NamespaceScoped
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{
		Plural: plural, Singular: "retentionpolicy", Kind: "RetentionPolicy", ListKind: "RetentionPolicyList",
	}
	crd.Status.AcceptedNames = crd.Spec.Names
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{
		Name: v1.GroupVersion.Version, Served: true, Storage: true,
		Schema:       &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema()},
		Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
	}}
	k, err := custom.New(crd, nil)
	if err != nil {
		return nil, err
	}
	k.Definition = "" // no stored definition declares it, so none can be deleted
	v := k.Versions[0]
	v.Strategy, v.Table = rules{v.Strategy}, table
	return k, nil
}

type props = apiextensionsv1.JSONSchemaProps

func schema() *props {
	text := func(description string) props {
		longest := int64(256)
		return props{Type: "string", MaxLength: &longest, Description: description}
	}
	list := func(of props, most int64, description string) props {
		return props{Type: "array", MaxItems: &most, Description: description, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &of}}
	}
	object := func(description string, fields map[string]props, required ...string) props {
		return props{Type: "object", Description: description, Properties: fields, Required: required}
	}
	least := 0.0
	few := int64(64)
	number := props{Type: "integer", Format: "int64", Minimum: &least, Description: "How many of the newest of these tags stay."}
	by := props{Type: "string", Enum: []apiextensionsv1.JSON{{Raw: []byte(`"Push"`)}, {Raw: []byte(`"Pull"`)}},
		Description: "Whether a tag is as new as its last push, or as its last pull if that is later. Default Push."}
	selector := object("Which repositories of the namespace, by their labels. Default all.", map[string]props{
		"matchLabels": {Type: "object", MaxProperties: &few, AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &props{Type: "string"}}},
		"matchExpressions": list(object("", map[string]props{
			"key": text(""), "operator": text(""), "values": list(text(""), 64, ""),
		}, "key", "operator"), 64, ""),
	})
	rule := object("", map[string]props{
		"tags":     list(text("A pattern, with *, ? and […]."), 16, "The tags that the rule is about: those that match a pattern and no rule before."),
		"keepLast": number,
		"keepFor":  text(`Tags that are younger stay, such as "30d" or "12h".`),
		"by":       by,
	}, "tags")
	state := object("What it does, some minutes old.", map[string]props{
		"state":     text("Observing, until it is started, or Started."),
		"wouldTake": {Type: "integer", Format: "int64", Description: "How many tags it would take now, while it is observing."},
		"taken":     {Type: "integer", Format: "int64", Description: "How many tags it has taken."},
		"lastTaken": {Type: "string", Format: "date-time", Description: "When it last took a tag."},
	})
	top := object("RetentionPolicy says which tags of the repositories of its namespace leave. What a workload names, and what could be brought "+
		"back, stays. It takes nothing until it is started: set the annotation "+lifecycle.StartRetention+" to metadata.generation.", map[string]props{
		"apiVersion": {Type: "string"}, "kind": {Type: "string"}, "metadata": {Type: "object"},
		"spec": object("The desired state.", map[string]props{
			"selector": selector, "rules": list(rule, 16, "The first rule that a tag matches decides about it."),
			"keep": list(text("A pattern."), 16, "Tags that stay in any case."),
		}, "rules"),
		"status": state,
	}, "spec")
	return &top
}

// rules are the rules of a custom kind, and what a schema cannot express.
type rules struct{ lifecycle.Strategy }

// Create is part of lifecycle.Strategy.
func (s rules) Create(ctx context.Context, obj runtime.Object) ([]string, field.ErrorList) {
	warnings, errs := s.Strategy.Create(ctx, obj)
	return warnings, append(errs, validate(obj)...)
}

// Update is part of lifecycle.Strategy.
func (s rules) Update(ctx context.Context, obj, old runtime.Object) ([]string, field.ErrorList) {
	warnings, errs := s.Strategy.Update(ctx, obj, old)
	return warnings, append(errs, validate(obj)...)
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

// table is what `kubectl get retentionpolicies` shows.
var table = kind.Table[*unstructured.Unstructured]{Columns: []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The name in the API."},
	{Name: "State", Type: "string", Description: "Observing, or Started."},
	{Name: "Would Take", Type: "integer", Description: "How many tags it would take now, while it is observing."},
	{Name: "Taken", Type: "integer", Description: "How many tags it has taken."},
	{Name: "Age", Type: "string", Description: "Time since its creation."},
}, Cells: func(u *unstructured.Unstructured) []any {
	state, _, _ := unstructured.NestedString(u.Object, "status", "state")
	return []any{u.GetName(), state, figure(u, "wouldTake"), figure(u, "taken"), duration.HumanDuration(time.Since(u.GetCreationTimestamp().Time))}
}}

func figure(u *unstructured.Unstructured, name string) int64 {
	n, _, _ := unstructured.NestedInt64(u.Object, "status", name)
	return n
}
