package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/access/serviceaccount"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/object"
)

// KubernetesMinor is the Kubernetes release that this API behaves like.
const KubernetesMinor = "37"

// route calls the handler of a request. The filters have put the client and the
// parsed request into its context.
func (a *API) route(w http.ResponseWriter, req *http.Request) {
	info, _ := genericrequest.RequestInfoFrom(req.Context())
	if info.IsResourceRequest {
		a.routeResource(w, req, info)
		return
	}
	path := strings.TrimSuffix(req.URL.Path, "/")
	_, inPast := past(req.Context())
	switch {
	case inPast && !discoversPast(path):
		http.NotFound(w, req)
	case path == "/api", path == "/apis", strings.HasPrefix(path, "/api/"), strings.HasPrefix(path, "/apis/"):
		a.limitInFlight(w, req, a.serveDiscovery)
	case inPast && strings.HasPrefix(path, "/openapi"):
		a.fail(w, req, pastRefused("the OpenAPI documents are those of today: read them without /at/"))
	case strings.HasPrefix(path, "/openapi/"):
		a.limitInFlight(w, req, a.OpenAPI.ServeHTTP)
	case path == "/metrics":
		a.Metrics.ServeHTTP(w, req)
	case (strings.HasPrefix(path, "/exeunt/") || path == SettingsPath || path == "/statusz" || path == "/flagz") && a.Extra != nil:
		a.serveExtra(w, req, a.Extra)
	case path == serviceaccount.DiscoveryPath, path == serviceaccount.JWKSPath:
		a.serveIssuer(w, req)
	case path == "/version":
		a.serveVersion(w, req)
	case strings.HasPrefix(path, "/debug/pprof"):
		serveProfile(w, req, path)
	case isProbe(path):
		a.serveProbe(w, req, path)
	case path == "":
		a.servePaths(w)
	default:
		http.NotFound(w, req)
	}
}

// SettingsPath is where administrators read the settings in force. Extra serves it.
const SettingsPath = "/debug/config"

func (a *API) serveVersion(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		a.fail(w, req, methodNotAllowed())
		return
	}
	commit, state, date := builtFrom()
	writeJSON(w, http.StatusOK, version.Info{
		Major: "1", Minor: KubernetesMinor, GitCommit: commit, GitTreeState: state, BuildDate: date,
		GitVersion: "v1." + KubernetesMinor + ".0+exeunt-" + a.Version,
		GoVersion:  runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	})
}

// builtFrom returns what the program was built from. A build outside of a repository
// does not know.
func builtFrom() (commit, state, date string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", "", ""
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value
		case "vcs.time":
			date = s.Value
		case "vcs.modified":
			state = map[string]string{"true": "dirty", "false": "clean"}[s.Value]
		}
	}
	return commit, state, date
}

// serveProfile serves the profiles of this process. Only administrators reach it.
func serveProfile(w http.ResponseWriter, req *http.Request, path string) {
	switch path {
	case "/debug/pprof/profile":
		pprof.Profile(w, req)
	case "/debug/pprof/trace":
		pprof.Trace(w, req)
	default:
		pprof.Index(w, req)
	}
}

func (a *API) servePaths(w http.ResponseWriter) {
	paths := []string{"/api", "/api/v1", "/apis", "/metrics", "/openapi/v2", "/openapi/v3", "/version"}
	if a.Extra != nil {
		paths = append(paths, "/flagz", "/statusz")
	}
	for _, probe := range probes {
		paths = append(paths, probe)
		for _, check := range a.checksOf(probe[1:]) {
			paths = append(paths, probe+"/"+check.Name)
		}
	}
	kinds := a.Kinds.Snapshot()
	for _, group := range kinds.Groups() {
		if group == "" {
			continue
		}
		paths = append(paths, "/apis/"+group)
		for _, version := range kinds.GroupVersions(group) {
			paths = append(paths, "/apis/"+group+"/"+version)
		}
	}
	if a.Access.ServiceAccounts() != nil {
		paths = append(paths, serviceaccount.DiscoveryPath, serviceaccount.JWKSPath)
	}
	slices.Sort(paths)
	writeJSON(w, http.StatusOK, metav1.RootPaths{Paths: paths})
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "encode answer", http.StatusInternalServerError)
		return
	}
	w.Header()["Content-Type"] = jsonContentType
	w.WriteHeader(code)
	_, _ = w.Write(append(data, '\n'))
}

// routeResource finds the kind, then the endpoint, then the verb.
func (a *API) routeResource(w http.ResponseWriter, req *http.Request, info *genericrequest.RequestInfo) {
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	v, _ := a.Kinds.Snapshot().Lookup(gvr)
	when, inPast := past(req.Context())
	if inPast {
		then, of, err := a.inPast(req, info, gvr)
		if err != nil {
			a.fail(w, req, err)
			return
		}
		req, v = then, of
	}
	if v == nil {
		a.failNoKind(w, req, !hasBuiltIn(a.Kinds.Snapshot(), info.APIGroup))
		return
	}
	if !suitsScope(v.Kind, info) {
		a.failNoKind(w, req, v.Kind.Definition != "")
		return
	}
	if v.Warning != "" {
		w.Header().Add("Warning", `299 - "`+v.Warning+`"`)
	}
	e, err := a.endpoint(v)
	if err != nil {
		a.Logger.Error("kind cannot be served", "resource", gvr.String(), "error", err)
		a.fail(w, req, apierrors.NewInternalError(err))
		return
	}
	if when == allVersions {
		a.limitInFlight(w, req, func(w http.ResponseWriter, req *http.Request) { e.main.serveVersions(w, req, info) })
		return
	}
	handler, found := e.handler(info, req.Method)
	if seen := seenIn(req.Context()); found && seen != nil {
		seen.request.Subresource = info.Subresource
	}
	switch {
	case !found:
		a.fail(w, req, noSubresource(info))
	case handler == nil:
		a.fail(w, req, methodNotAllowed())
	default:
		a.serveResource(w, req, info, e, handler)
	}
}

// serveResource receives the body. Then a fast path answers, or the library's
// handler.
func (a *API) serveResource(w http.ResponseWriter, req *http.Request, info *genericrequest.RequestInfo, e *endpoint, handler http.HandlerFunc) {
	if err := a.checkHeaders(req, info, e.main.v); err != nil {
		a.fail(w, req, err)
		return
	}
	r, err := a.receive(req, info)
	if err != nil {
		a.fail(w, req, documentStatus(err))
		return
	}
	defer a.release(r)
	if r.body != nil {
		mark(req.Context(), stepReceived)
	}
	a.limitInFlight(w, r.Request, func(w http.ResponseWriter, req *http.Request) {
		mark(req.Context(), stepAdmitted)
		r.Request = req
		if info.Subresource != "" || !a.serveFast(w, r, info, e) {
			handler(w, req)
		}
	})
}

// suitsScope reports whether a path with or without a namespace exists for a kind. As in Kubernetes, a kind with
// namespaces has no other path without one than its collection, and that of a custom kind only for list and watch:
// controllers take a 404 for "nothing to delete", and a 405 for an error.
func suitsScope(k *kind.Kind, info *genericrequest.RequestInfo) bool {
	if info.Namespace != "" {
		return k.Namespaced || namesNamespace(info)
	}
	return !k.Namespaced || info.Verb == "list" || info.Verb == "watch" || k.Definition == "" && len(info.Parts) < 2
}

// namesNamespace reports whether the path is /namespaces/NAME, which the library
// parses as a resource inside the namespace NAME. Namespaces are never namespaced:
// a DELETE of /namespaces/NAME/namespaces must not delete all namespaces.
func namesNamespace(info *genericrequest.RequestInfo) bool {
	return info.Resource == "namespaces" && info.Name == info.Namespace
}

// sendsProtobuf reports whether the body is protobuf, which custom kinds do not
// support.
func sendsProtobuf(req *http.Request) bool {
	return strings.HasPrefix(req.Header.Get("Content-Type"), "application/vnd.kubernetes.protobuf")
}

// methodNotAllowed is the Status for a method that a path does not support, in the words
// of Kubernetes.
func methodNotAllowed() *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
		Message: "the server does not allow this method on the requested resource", Details: &metav1.StatusDetails{},
	}}
}

// notFoundRoute is the Status for a path that no kind serves.
func notFoundRoute() *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{},
	}}
}

// pathProblem returns what is wrong with the path of a resource, or "". The library drops
// empty segments, which would turn the delete of an object with an empty name into a
// deletecollection.
func pathProblem(req *http.Request) string {
	if strings.Contains(strings.ToLower(req.URL.EscapedPath()), "%2f") {
		return "a name in the path must not have a slash"
	}
	segment, rest, more := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
	for ; segment != "" || more || req.Method == http.MethodDelete; segment, rest, more = strings.Cut(rest, "/") {
		if problem := object.NameProblem(segment); problem != "" {
			return "a name in the path " + problem
		}
		if !more {
			break
		}
	}
	return ""
}

func noSuchPath(problem string) error {
	err := notFoundRoute()
	err.ErrStatus.Message += ": " + problem
	return err
}

// noSubresource names the missing subresource, because kubectl shows only the
// message (logs, exec and debug need a node that runs containers).
func noSubresource(info *genericrequest.RequestInfo) error {
	err := notFoundRoute()
	if info.Subresource != "" {
		err.ErrStatus.Message += fmt.Sprintf(": this server has no %q of %s", info.Subresource, info.Resource)
	}
	return err
}

// hasBuiltIn reports whether a group has a kind that no definition declares.
func hasBuiltIn(kinds *kind.Snapshot, group string) bool {
	return slices.ContainsFunc(kinds.Kinds, func(k *kind.Kind) bool { return k.Group == group && k.Definition == "" })
}

// failNoKind answers about a path that no kind serves. As in Kubernetes, the answer is a
// text if the group is unknown or has custom kinds only.
func (a *API) failNoKind(w http.ResponseWriter, req *http.Request, text bool) {
	if text {
		http.NotFound(w, req)
		return
	}
	a.fail(w, req, notFoundRoute())
}

// fail answers with a Status.
func (a *API) fail(w http.ResponseWriter, req *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, builtin.Codecs(), schema.GroupVersion{Version: "v1"}, w, req)
}

func (r *resource) fail(w http.ResponseWriter, req *http.Request, err error) {
	r.api.fail(w, req, err)
}

// serveFast answers plain JSON reads, and writes in JSON and in protobuf. It returns false, and has written
// nothing, if the request needs the library: another format, a Table, pretty
// printing, options that it cannot read, or bodies for the audit log.
func (a *API) serveFast(w http.ResponseWriter, r received, info *genericrequest.RequestInfo, e *endpoint) bool {
	req := r.Request
	if !e.main.v.Raw || e.main.v.Kind.Ephemeral || len(info.Parts) > 2 || a.audit.NeedsBodies(req.Context(), info) {
		return false
	}
	if req.Method != http.MethodGet {
		return e.json != nil && e.json.writes(req) && e.json.serve(w, req, info, r.body)
	}
	if !wantsJSON(req) {
		return false
	}
	if info.Namespace != "" {
		req = req.WithContext(genericrequest.WithNamespace(req.Context(), info.Namespace))
	}
	switch info.Verb {
	case "get":
		e.main.serveGet(w, req, info.Name)
	case "list":
		options, ok := readListOptions(req, info, e)
		if !ok || options.Watch {
			return false
		}
		e.main.serveList(w, req, options)
	case "watch":
		options, ok := readListOptions(req, info, e)
		if !ok || req.Header.Get("Upgrade") != "" {
			return false
		}
		e.main.serveWatch(w, req, options)
	default:
		return false
	}
	return true
}

// readListOptions reads the query. It returns false for invalid options: the
// library's handler reports the error.
func readListOptions(req *http.Request, info *genericrequest.RequestInfo, e *endpoint) (*metainternal.ListOptions, bool) {
	options := &metainternal.ListOptions{}
	if req.URL.RawQuery != "" {
		if err := metainternalscheme.ParameterCodec.DecodeParameters(req.URL.Query(), metav1.SchemeGroupVersion, options); err != nil {
			return nil, false
		}
	}
	metainternal.SetListOptionsDefaults(options, true)
	if errs := validation.ValidateListOptions(options, true); len(errs) > 0 {
		return nil, false
	}
	if options.FieldSelector != nil {
		var err error
		options.FieldSelector, err = options.FieldSelector.Transform(func(label, value string) (string, string, error) {
			return e.main.v.Wire.Convertor.ConvertFieldLabel(e.main.v.GVK, label, value)
		})
		if err != nil {
			return nil, false
		}
	}
	if info.Name != "" && (options.FieldSelector == nil || options.FieldSelector.Empty()) {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", info.Name)
	}
	return options, true
}

// wantsJSON reports whether the client's first choice is plain JSON.
func wantsJSON(req *http.Request) bool {
	accept, _, _ := strings.Cut(req.Header.Get("Accept"), ",")
	switch strings.TrimSpace(accept) {
	case "", "*/*", "application/*", "application/json":
	default:
		return false
	}
	if strings.Contains(req.URL.RawQuery, "pretty") {
		return false
	}
	// These agents are used by people, who get indented JSON from the library.
	agent := req.UserAgent()
	return !strings.HasPrefix(agent, "curl") && !strings.HasPrefix(agent, "Wget") && !strings.HasPrefix(agent, "Mozilla/5.0")
}
