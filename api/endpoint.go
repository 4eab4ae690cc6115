package api

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/exeunt/exeunt/api/bodycost"
	"github.com/exeunt/exeunt/api/fieldowner"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// endpoint serves one version of a kind. It has one handler per verb, for the
// object and for each subresource.
type endpoint struct {
	main  *resource
	json  *fastWrites                            // nil if the library serves all writes
	verbs map[string]map[string]http.HandlerFunc // by subresource, then verb
}

// handler finds the handler for a request. found is false if the subresource
// does not exist; h is nil if the subresource does not support the verb.
func (e *endpoint) handler(info *genericrequest.RequestInfo, method string) (h http.HandlerFunc, found bool) {
	verbs, found := e.verbs[info.Subresource]
	if !found || len(info.Parts) > 3 || len(info.Parts) == 3 && info.Subresource == "" {
		return nil, false
	}
	if method == http.MethodHead || !e.pathSuitsVerb(info) || info.Subresource == "" && !e.main.v.Kind.Allows(info.Verb) {
		return nil, true
	}
	return verbs[info.Verb], true
}

// pathSuitsVerb reports whether the path suits the verb. A create names no object and, for a
// namespaced kind, one namespace. An update or a patch names an object. A
// deletecollection is limited to one namespace.
func (e *endpoint) pathSuitsVerb(info *genericrequest.RequestInfo) bool {
	switch info.Verb {
	case "create":
		return info.Subresource != "" || info.Name == "" && e.oneNamespace(info)
	case "deletecollection":
		return e.oneNamespace(info)
	case "update", "patch":
		return info.Name != ""
	}
	return true
}

// oneNamespace reports whether the path has a namespace or the kind needs none.
func (e *endpoint) oneNamespace(info *genericrequest.RequestInfo) bool {
	return info.Namespace != "" || !e.main.v.Kind.Namespaced
}

// endpoint returns the endpoint of a version and builds it on first use.
func (a *API) endpoint(v *kind.Version) (*endpoint, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e, ok := a.endpoints[v]; ok {
		return e, nil
	}
	a.dropReplaced()
	e, err := a.newEndpoint(v)
	if err != nil {
		return nil, err
	}
	a.endpoints[v] = e
	return e, nil
}

// dropReplaced drops the endpoints of versions that a changed definition has
// replaced. The caller holds a.mu.
func (a *API) dropReplaced() {
	kinds := a.Kinds.Snapshot()
	for v := range a.endpoints {
		if current, ok := kinds.Lookup(v.Resource()); !ok || current != v {
			delete(a.endpoints, v)
		}
	}
}

func (a *API) newEndpoint(v *kind.Version) (*endpoint, error) {
	main := a.newResource(v, v.Strategy)
	e := &endpoint{main: main, verbs: map[string]map[string]http.HandlerFunc{}}
	scope, err := a.newScope(v, "", v.ResetFields)
	if err != nil {
		return nil, err
	}
	create := perRequest(func() http.HandlerFunc { return handlers.CreateResource(&review{main}, scope, nil) })
	if v.Kind.Ephemeral {
		e.verbs[""] = map[string]http.HandlerFunc{"create": create}
		return e, nil
	}
	if v.Kind.Source != nil {
		s := &sourced{main}
		e.verbs[""] = map[string]http.HandlerFunc{
			"get":    handlers.GetResource(s, scope),
			"list":   handlers.ListResource(s, nil, scope, false, minWatchTime),
			"delete": perRequest(func() http.HandlerFunc { return handlers.DeleteResource(s, true, scope, nil) }),
		}
		if v.Kind.Answer != nil {
			e.verbs[""]["create"] = create
		}
		return e, nil
	}
	e.verbs[""] = map[string]http.HandlerFunc{
		"get":              handlers.GetResource(main, scope),
		"list":             boundTimeout(handlers.ListResource(main, main, scope, false, minWatchTime)),
		"watch":            boundTimeout(handlers.ListResource(main, main, scope, true, minWatchTime)),
		"create":           perRequest(func() http.HandlerFunc { return handlers.CreateResource(main, scope, a.Admission) }),
		"update":           perRequest(func() http.HandlerFunc { return handlers.UpdateResource(main, scope, a.Admission) }),
		"patch":            perRequest(func() http.HandlerFunc { return handlers.PatchResource(main, scope, a.Admission, patchTypes(v)) }),
		"delete":           perRequest(func() http.HandlerFunc { return handlers.DeleteResource(main, true, scope, a.Admission) }),
		"deletecollection": perRequest(func() http.HandlerFunc { return handlers.DeleteCollection(main, true, scope, a.Admission) }),
	}
	e.json = newJSONWrites(main, fieldowner.New(v, scope.FieldManager))
	return e, a.addParts(e, v)
}

// addParts serves the subresources.
func (a *API) addParts(e *endpoint, v *kind.Version) error {
	if v.Status != nil {
		if err := a.addSubresource(e, v, "status", v.Status, v.StatusResetFields); err != nil {
			return err
		}
	}
	if v.Scale != nil {
		if err := a.addScale(e, v); err != nil {
			return err
		}
	}
	switch {
	case isServiceAccount(v):
		return a.addToken(e, v)
	case isPod(v):
		return a.addPodParts(e, v)
	case isSigningRequest(v):
		return a.addSubresource(e, v, "approval", builtin.CertificateApprovalStrategy(), builtin.CertificateApprovalResetFields())
	case v.Kind.IsNamespace():
		return a.addFinalize(e, v)
	}
	return nil
}

// addSubresource serves a subresource that has the same fields as the object and
// another strategy.
func (a *API) addSubresource(e *endpoint, v *kind.Version, name string, s lifecycle.Strategy, reset map[fieldpath.APIVersion]*fieldpath.Set) error {
	scope, err := a.newScope(v, name, reset)
	if err != nil {
		return err
	}
	r := &patchOnly{a.newResource(v, s)}
	e.verbs[name] = a.readWriteVerbs(r, scope, v)
	return nil
}

func (a *API) readWriteVerbs(r rest.Patcher, scope *handlers.RequestScope, v *kind.Version) map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"get":    handlers.GetResource(r, scope),
		"update": perRequest(func() http.HandlerFunc { return handlers.UpdateResource(r, scope, a.Admission) }),
		"patch":  perRequest(func() http.HandlerFunc { return handlers.PatchResource(r, scope, a.Admission, patchTypes(v)) }),
	}
}

// perRequest builds a handler for each request. The library's write handlers keep a
// variable between requests (the admission, which they wrap again each time), so
// a shared handler has a data race.
func perRequest(handler func() http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) { handler()(w, req) }
}

func (a *API) newResource(v *kind.Version, s lifecycle.Strategy) *resource {
	r := &resource{api: a, v: v, strategy: s, prefix: object.WirePrefix(v.GVK)}
	if r.item = object.ItemPrefix(); v.Wire.Custom {
		r.item = r.prefix
	}
	return r
}

func patchTypes(v *kind.Version) []string {
	supported := []string{string(types.JSONPatchType), string(types.MergePatchType)}
	if !v.Wire.Custom {
		supported = append(supported, string(types.StrategicMergePatchType))
	}
	return append(supported, string(types.ApplyYAMLPatchType))
}

// newScope describes a version to the library's handlers.
func (a *API) newScope(v *kind.Version, subresource string, reset map[fieldpath.APIVersion]*fieldpath.Set) (*handlers.RequestScope, error) {
	scope := a.baseScope(v, v.Wire)
	scope.Subresource = subresource
	scope.Kind = v.GVK
	scope.HubGroupVersion = v.GVK.GroupVersion()
	scope.TableConvertor = v.Table
	var err error
	scope.FieldManager, err = fieldowner.NewManager(v.Wire, v.GVK, subresource, reset)
	return scope, err
}

func (a *API) baseScope(v *kind.Version, wire *kind.Wire) *handlers.RequestScope {
	return &handlers.RequestScope{
		Namer:                    handlers.ContextBasedNaming{Namer: meta.NewAccessor(), ClusterScoped: !v.Kind.Namespaced},
		Serializer:               wire.Serializer,
		StandardSerializers:      wire.StandardSerializers,
		ParameterCodec:           wire.ParameterCodec,
		Creater:                  wire.Creater,
		Convertor:                wire.Convertor,
		UnsafeConvertor:          wire.UnsafeConvertor,
		Defaulter:                wire.Defaulter,
		Typer:                    wire.Typer,
		EquivalentResourceMapper: v.Equivalents(),
		Authorizer:               a.Access.Authorizer(),
		Resource:                 v.Resource(),
		MetaGroupVersion:         metav1.SchemeGroupVersion,
		MaxRequestBodyBytes:      bodycost.MaxBody,
	}
}

const (
	// requestTimeout limits every request except watch and deletecollection.
	requestTimeout = 60 * time.Second
	// writeTimeout limits a write; the library has the same limit.
	writeTimeout = 34 * time.Second
)
