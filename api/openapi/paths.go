package openapi

import (
	"cmp"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/exeunt/exeunt/kind"
)

// The media types of requests and responses.
var (
	anyType       = []string{"*/*"}
	customTypes   = []string{"application/json", "application/yaml"}
	builtinTypes  = append(customTypes[:2:2], "application/vnd.kubernetes.protobuf")
	customPatches = []string{
		"application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json",
	}
	builtinPatches = append(customPatches[:3:3], "application/strategic-merge-patch+json")
)

// scaleGVK is the kind of /scale for every resource.
var scaleGVK = schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}

// endpoint holds what the operations of one path of a kind have in common.
type endpoint struct {
	b     *builder
	v     *kind.Version
	m     model
	gvk   schema.GroupVersionKind // kind of the endpoint's objects
	body  string                  // definition of that kind
	sub   string                  // subresource; empty means the object itself
	scope string                  // scope in operation ids, such as "Namespaced"
}

// addPaths adds all paths of a kind.
func (b *builder) addPaths(paths map[string]spec.PathItem, v *kind.Version, m model) {
	root := "/" + documentPath(v.GVK.GroupVersion())
	e := endpoint{b: b, v: v, m: m, gvk: v.GVK, body: m.object}
	collection := root + "/" + v.Kind.Plural
	if v.Kind.Namespaced {
		e.scope = "Namespaced"
		if !v.Kind.Ephemeral {
			paths[collection] = e.everywhere()
		}
		collection = root + "/namespaces/{namespace}/" + v.Kind.Plural
	}
	paths[collection] = e.collection()
	if v.Kind.Ephemeral {
		return
	}
	item := collection + "/{name}"
	paths[item] = e.item()
	if v.Status != nil {
		paths[item+"/status"] = e.subresource("status", v.GVK, m.object)
	}
	if v.Scale != nil {
		paths[item+"/scale"] = e.subresource("scale", scaleGVK, nameScale)
	}
	if v.GVK.Group == "" && v.GVK.Kind == "Pod" {
		paths[item+"/ephemeralcontainers"] = e.subresource("ephemeralcontainers", v.GVK, m.object)
		paths[item+"/resize"] = e.subresource("resize", v.GVK, m.object)
	}
	if v.Kind.Storage == "certificatesigningrequests.certificates.k8s.io" {
		paths[item+"/approval"] = e.subresource("approval", v.GVK, m.object)
	}
	if v.Kind.IsNamespace() {
		paths[item+"/finalize"] = e.subresource("finalize", v.GVK, m.object)
	}
}

// everywhere is the path that lists the objects of all namespaces.
func (e endpoint) everywhere() spec.PathItem {
	e.scope = ""
	op := e.operation("list", "list", e.m.list, http.StatusOK)
	op.ID += "ForAllNamespaces"
	return e.path(spec.PathItemProps{Get: op}, false, false)
}

func (e endpoint) collection() spec.PathItem {
	create := e.operation("create", "post", e.body, http.StatusOK, http.StatusCreated, http.StatusAccepted)
	if e.v.Kind.Ephemeral {
		return e.path(spec.PathItemProps{Post: create}, false, e.v.Kind.Namespaced)
	}
	list := e.operation("list", "list", e.m.list, http.StatusOK)
	if !e.v.Kind.Allows("create") {
		return e.path(spec.PathItemProps{Get: list}, false, e.v.Kind.Namespaced)
	}
	props := spec.PathItemProps{Get: list, Post: create}
	if e.v.Kind.Allows("deletecollection") {
		props.Delete = e.operation("delete", "deletecollection", nameStatus, http.StatusOK)
	}
	return e.path(props, false, e.v.Kind.Namespaced)
}

func (e endpoint) item() spec.PathItem {
	deleted := nameStatus
	if e.v.Kind.ReturnsDeleted {
		deleted = e.body
	}
	props := e.readAndWrite()
	if e.v.Kind.Source != nil || e.v.Kind.ReadOnly {
		props.Put, props.Patch = nil, nil
	}
	if e.v.Kind.ReadOnly {
		return e.path(props, true, e.v.Kind.Namespaced)
	}
	props.Delete = e.operation("delete", "delete", deleted, http.StatusOK, http.StatusAccepted)
	return e.path(props, true, e.v.Kind.Namespaced)
}

func (e endpoint) subresource(name string, gvk schema.GroupVersionKind, body string) spec.PathItem {
	e.sub, e.gvk, e.body = name, gvk, body
	return e.path(e.readAndWrite(), true, e.v.Kind.Namespaced)
}

// readAndWrite returns the operations that objects and subresources share.
func (e endpoint) readAndWrite() spec.PathItemProps {
	return spec.PathItemProps{
		Get:   e.operation("read", "get", e.body, http.StatusOK),
		Put:   e.operation("replace", "put", e.body, http.StatusOK, http.StatusCreated),
		Patch: e.operation("patch", "patch", e.body, http.StatusOK, http.StatusCreated),
	}
}

func (e endpoint) path(props spec.PathItemProps, named, namespaced bool) spec.PathItem {
	props.Parameters = pathParameters(e.v.Kind.Name, named, namespaced)
	return spec.PathItem{PathItemProps: props}
}

// operation builds one operation. Its id starts with the verb; action is the name in
// Kubernetes and selects the parameters.
func (e endpoint) operation(verb, action, answer string, codes ...int) *spec.Operation {
	op := &spec.Operation{OperationProps: spec.OperationProps{
		ID:          e.operationID(verb, action),
		Tags:        []string{e.tag()},
		Description: e.describe(verb, action),
		Consumes:    anyType,
		Produces:    builtinTypes,
		Parameters:  e.b.parameters[action],
		Responses:   responses(answer, codes),
	}}
	if e.m.custom {
		op.Consumes, op.Produces = customTypes, customTypes
	}
	switch action {
	case "post", "put":
		op.Parameters = withBody(op.Parameters, bodyParameter(e.body, true))
	case "patch":
		op.Parameters = withBody(op.Parameters, bodyParameter(namePatch, true))
		op.Consumes = builtinPatches
		if e.m.custom {
			op.Consumes = customPatches
		}
	case "delete", "deletecollection":
		op.Parameters = withBody(op.Parameters, bodyParameter(metaV1+"DeleteOptions", false))
	}
	op.AddExtension(extGVK, describeKind(e.gvk))
	op.AddExtension(extAction, action)
	return op
}

// withBody puts a body before shared parameters, without changing them.
func withBody(shared []spec.Parameter, body spec.Parameter) []spec.Parameter {
	return append([]spec.Parameter{body}, shared...)
}

func responses(definition string, codes []int) *spec.Responses {
	byCode := map[int]spec.Response{
		http.StatusUnauthorized: {ResponseProps: spec.ResponseProps{Description: "Unauthorized"}},
	}
	for _, code := range codes {
		byCode[code] = spec.Response{ResponseProps: spec.ResponseProps{
			Description: http.StatusText(code),
			Schema:      refTo(prefixV2, definition),
		}}
	}
	return &spec.Responses{ResponsesProps: spec.ResponsesProps{StatusCodeResponses: byCode}}
}

// operationID names an operation as Kubernetes does, since client generators use it:
// listCoreV1NamespacedPod, deleteAppsV1CollectionNamespacedDeployment.
func (e endpoint) operationID(verb, action string) string {
	id := verb + e.groupName(true) + camel(e.v.GVK.Version, true)
	if action == "deletecollection" {
		id += "Collection"
	}
	return id + e.scope + e.v.Kind.Name + camel(e.sub, true)
}

func (e endpoint) tag() string { return e.groupName(false) + "_" + camel(e.v.GVK.Version, false) }

// groupName returns the group as part of a name: RbacAuthorization for
// rbac.authorization.k8s.io.
func (e endpoint) groupName(capital bool) string {
	group := strings.TrimSuffix(e.v.GVK.Group, ".k8s.io")
	group = cmp.Or(group, "core")
	return camel(group, capital)
}

// describe returns the description of an operation.
func (e endpoint) describe(verb, action string) string {
	what := e.v.Kind.Name
	switch action {
	case "list":
		return "list or watch objects of kind " + what
	case "post":
		return "create an object of kind " + what
	case "deletecollection":
		return "delete a collection of " + what
	case "patch":
		verb = "partially update"
	}
	if e.sub != "" {
		return verb + " " + e.sub + " of the specified " + what
	}
	return verb + " the specified " + what
}

// camel joins the words of a name: a letter after a non-letter becomes a capital.
func camel(s string, capital bool) string {
	var out strings.Builder
	for i, r := range s {
		switch {
		case !unicode.IsLetter(r) && r != '_' && (i == 0 || !unicode.IsDigit(r)):
			capital = true
		case capital:
			out.WriteRune(unicode.ToUpper(r))
			capital = false
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

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
