package openapi

import (
	"fmt"
	"sort"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// options lists the query parameters of each verb: fields of the options types of
// Kubernetes, which also provide the descriptions.
var options = map[string]map[string][]string{
	"get":    {"GetOptions": {"resourceVersion"}},
	"list":   {"ListOptions": append([]string{"allowWatchBookmarks", "watch"}, listFields...)},
	"post":   {"CreateOptions": {"dryRun", "fieldManager", "fieldValidation"}},
	"put":    {"UpdateOptions": {"dryRun", "fieldManager", "fieldValidation"}},
	"patch":  {"PatchOptions": {"dryRun", "fieldManager", "fieldValidation", "force"}},
	"delete": {"DeleteOptions": deleteFields},
	"deletecollection": {
		"DeleteOptions": deleteFields,
		"ListOptions":   listFields,
	},
}

var (
	listFields = []string{
		"continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
		"resourceVersionMatch", "sendInitialEvents", "timeoutSeconds",
	}
	deleteFields = []string{"dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"}
)

// queryParameters builds the parameters of each verb, sorted by name.
func queryParameters(defs definitions) (map[string][]spec.Parameter, error) {
	all := map[string][]spec.Parameter{}
	for verb, types := range options {
		for name, fields := range types {
			definition, ok := defs[metaV1+name]
			if !ok {
				return nil, fmt.Errorf("definition %s does not exist", metaV1+name)
			}
			for _, field := range fields {
				s, ok := definition.Properties[field]
				if !ok || len(s.Type) != 1 {
					return nil, fmt.Errorf("definition %s has no simple field %s", metaV1+name, field)
				}
				all[verb] = append(all[verb], queryParameter(field, s))
			}
		}
		sort.Slice(all[verb], func(i, j int) bool { return all[verb][i].Name < all[verb][j].Name })
	}
	return all, nil
}

// queryParameter builds a parameter from a field. A list is published as a string, since
// the parameter can be repeated.
func queryParameter(name string, s spec.Schema) spec.Parameter {
	p := spec.Parameter{ParamProps: spec.ParamProps{Name: name, In: "query", Description: s.Description}}
	p.Type = s.Type[0]
	if p.Type == "array" {
		p.Type = "string"
	}
	p.UniqueItems = true
	return p
}

// pathParameters returns the parameters that all operations of a path share.
func pathParameters(kindName string, named, namespaced bool) []spec.Parameter {
	var list []spec.Parameter
	if named {
		list = append(list, pathParameter("name", "name of the "+kindName))
	}
	if namespaced {
		list = append(list, pathParameter("namespace", "namespace of the "+kindName))
	}
	pretty := spec.Schema{SchemaProps: spec.SchemaProps{
		Type: []string{"string"}, Description: "If 'true', the answer is indented for people to read.",
	}}
	return append(list, queryParameter("pretty", pretty))
}

func pathParameter(name, description string) spec.Parameter {
	p := spec.Parameter{ParamProps: spec.ParamProps{Name: name, In: "path", Description: description, Required: true}}
	p.Type, p.UniqueItems = "string", true
	return p
}

// bodyParameter returns the body of a request, in v2 form.
func bodyParameter(definition string, required bool) spec.Parameter {
	return spec.Parameter{ParamProps: spec.ParamProps{
		Name: "body", In: "body", Required: required, Schema: refTo(prefixV2, definition),
	}}
}
