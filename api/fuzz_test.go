package api

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/api/discovery"
	"github.com/exeunt/exeunt/store"
)

// seeds are requests that take different paths through the code: method, path with query,
// Accept, Content-Type, body.
var seeds = [][5]string{
	{"GET", "/", "", "", ""},
	{"GET", "/version", "", "", ""},
	{"GET", "/readyz?verbose", "", "", ""},
	{"GET", "/apis", discovery.AggregatedType + ",application/json", "", ""},
	{"GET", "/apis/apps/v1", "application/yaml", "", ""},
	{"GET", "/apis/apps", "application/vnd.kubernetes.protobuf", "", ""},
	{"GET", "/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "", ""},
	{"GET", "/openapi/v3/apis/test.dev/v1", "application/json", "", ""},
	{"GET", configMaps + "?limit=1&resourceVersion=0", "application/json", "", ""},
	{"GET", configMaps + "?continue=" + position{Revision: 3, Namespace: "shop", Name: "a"}.String(), "", "", ""},
	{"GET", configMaps + "?resourceVersion=9223372036854775807&resourceVersionMatch=Exact", "", "", ""},
	{"GET", configMaps + "?labelSelector=a%20in%20(b,c),!d&fieldSelector=metadata.name%21%3Dx", "application/json;as=Table;v=v1;g=meta.k8s.io", "", ""},
	{"GET", configMaps + "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "", "", ""},
	{"GET", configMaps + "?watch=1&timeoutSeconds=1", "application/vnd.kubernetes.protobuf;stream=watch", "", ""},
	{"GET", "/api/v1/watch/namespaces/shop/configmaps/a", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "", ""},
	{"GET", "/api/v1/namespaces/shop/namespaces/shop/status", "", "", ""},
	{"GET", "/api/v1/events?fieldSelector=involvedObject.name%3Da", "", "", ""},
	{"POST", configMaps, "application/json", "application/json", `{"metadata":{"generateName":"a-"},"data":{"k":"v"}}`},
	{"POST", configMaps + "?dryRun=All&fieldValidation=Strict&fieldManager=me", "", "application/yaml", "metadata: {name: y}\ndata: {a: b, a: c}"},
	{"POST", "/api/v1/namespaces/shop/pods", "", "application/json", `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"1e9999"}}}]}}`},
	{"POST", "/apis/apps/v1/namespaces/shop/deployments", "", "application/json", deployment},
	{"POST", widgets, "", "application/json", `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"b"},"spec":{"replicas":1e400}}`},
	{"POST", widgets, "", "application/vnd.kubernetes.protobuf", "k8s\x00\x0a\x00"},
	{"POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All", "", "application/json", widgetDefinition},
	{"POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "", "", `{"spec":{"versions":[{"selectableFields":[{"jsonPath":".0"}],"schema":{}}]}}`},
	{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "", "application/json", `{"spec":{"resourceAttributes":{}}}`},
	{"POST", "/apis/batch/v1/namespaces/shop/cronjobs", "", "application/json", `{"metadata":{"name":"c"},"spec":{"schedule":"* * * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}}`},
	{"PUT", configMaps + "/a", "", "application/json", `{"metadata":{"name":"a","resourceVersion":"1","finalizers":["x/y"]}}`},
	{"PUT", "/apis/coordination.k8s.io/v1/namespaces/shop/leases/l", "", "application/json", `{"metadata":{"name":"l"},"spec":{"renewTime":"2030-01-01T00:00:00.000000Z"}}`},
	{"PUT", "/api/v1/namespaces/shop/finalize", "", "application/json", `{"metadata":{"name":"shop"},"spec":{"finalizers":["a/b"]}}`},
	{"PATCH", configMaps + "/a", "", "application/json-patch+json", `[{"op":"copy","from":"/metadata","path":"/data"},{"op":"test","path":"","value":null}]`},
	{"PATCH", configMaps + "/a", "", "application/json-patch+json", `[{"op":"test","path":""}]`},
	{"PATCH", configMaps + "/a", "", "application/strategic-merge-patch+json", `{"$patch":"replace","metadata":{"$deleteFromPrimitiveList/finalizers":["a"]}}`},
	{"PATCH", widgets + "/a?fieldManager=m&force=true", "", "application/apply-patch+yaml", "apiVersion: test.dev/v1\nkind: Widget\nspec: {parts: [a, a]}"},
	{"PATCH", widgets + "/a/scale", "", "application/merge-patch+json", `{"spec":{"replicas":99999999999}}`},
	{"PATCH", "/apis/apps/v1/namespaces/shop/deployments/a/status", "", "application/merge-patch+json", `{"status":{"replicas":-1}}`},
	{"DELETE", configMaps + "?labelSelector=a&limit=1", "", "application/json", `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":-1}`},
	{"DELETE", configMaps + "/a?propagationPolicy=Foreground&orphanDependents=true", "", "", ""},
	{"DELETE", "/api/v1/namespaces/shop/pods/p?gracePeriodSeconds=0&dryRun=All", "application/vnd.kubernetes.protobuf", "", ""},
	{"HEAD", configMaps, "", "", ""},
}

// FuzzRequest sends any request through the whole handler: the answer is never a panic or an
// internal error. Every test run executes the seeds.
func FuzzRequest(f *testing.F) {
	for _, s := range seeds {
		f.Add(s[0], s[1], s[2], s[3], s[4])
	}
	w := newWorld(f, store.Options{})
	var log bytes.Buffer // has the reason of an internal error
	w.api.Logger = slog.New(slog.NewTextHandler(&log, nil))
	w.define()
	w.configMap("a", "")
	w.want(http.StatusCreated, "POST", widgets, `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"replicas":1}}`)
	w.want(http.StatusCreated, "POST", "/apis/apps/v1/namespaces/shop/deployments", deployment)
	f.Fuzz(func(t *testing.T, method, target, accept, contentType, body string) {
		req := fuzzRequest(method, target, body)
		if req == nil {
			return
		}
		req.Header.Set("Accept", accept)
		req.Header.Set("Content-Type", contentType)
		// Watches would never end.
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		recorder := httptest.NewRecorder()
		log.Reset()
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				t.Errorf("panic: %v", p)
			}
		}()
		w.api.ServeHTTP(recorder, req.WithContext(ctx))
		// For a resourceVersion that it refuses kube-apiserver answers 500 too.
		if recorder.Code == http.StatusInternalServerError && !strings.Contains(recorder.Body.String(), "esourceVersion") {
			t.Errorf("%s %s answered %s\n%s", method, target, recorder.Body, &log)
		}
	})
}

// fuzzRequest returns the request as a server would parse it, or nil if it would not.
// Profiles are left out: the client chooses their duration.
func fuzzRequest(method, target, body string) *http.Request {
	u, err := url.ParseRequestURI(target)
	if err != nil || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "/debug/") {
		return nil
	}
	req, err := http.NewRequest(method, "http://server/", strings.NewReader(body))
	if err != nil {
		return nil
	}
	req.URL, req.RequestURI = u, target
	return known(req)
}
