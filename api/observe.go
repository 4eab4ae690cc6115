package api

import (
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Observer is called after every request.
type Observer func(Observation)

// Observation is a request and its result, in the words of Kubernetes' metrics. What a
// client can choose freely is left out: an unknown kind has no group, version and
// resource, an unknown subresource is empty, and an unknown method has the verb "other".
type Observation struct {
	Verb                                  string // GET, LIST, WATCH, POST, PUT, PATCH, APPLY, DELETE, CONNECT or other
	DryRun                                string // "", "All" or "invalid"
	Group, Version, Resource, Subresource string // empty outside the API
	Scope                                 string // "resource", "namespace", "cluster" or ""
	Code                                  int
	Took                                  time.Duration // a watch ends with its client
}

const otherVerb = "other"

// observation returns what is known of a request before it is routed.
func (a *API) observation(req *http.Request, info *genericrequest.RequestInfo) Observation {
	o := Observation{Scope: metrics.CleanScope(info), DryRun: dryRunOf(req)}
	o.Verb = metrics.CleanVerb(metrics.CanonicalVerb(req.Method, o.Scope), req, info)
	if !slices.Contains(verbs, o.Verb) {
		o.Verb = otherVerb
	}
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	if _, ok := a.kinds.Snapshot().Lookup(gvr); ok {
		o.Group, o.Version, o.Resource = gvr.Group, gvr.Version, gvr.Resource
	}
	return o
}

var verbs = []string{
	metrics.MethodGet, metrics.MethodList, metrics.MethodWatch, metrics.MethodPost, metrics.MethodPut,
	metrics.MethodPatch, metrics.MethodApply, metrics.MethodDelete, metrics.MethodConnect,
}

// dryRunOf returns the value of the parameter dryRun if it has the one that exists.
func dryRunOf(req *http.Request) string {
	if !strings.Contains(req.URL.RawQuery, "dryRun") {
		return ""
	}
	values, ok := req.URL.Query()["dryRun"]
	switch {
	case !ok:
		return ""
	case slices.Equal(values, []string{metav1.DryRunAll}):
		return metav1.DryRunAll
	}
	return "invalid"
}
