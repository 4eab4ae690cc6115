package api

import (
	"strings"
	"testing"
)

// TestObservations: requests are reported in the words of Kubernetes' metrics, with an
// audit log too, and nothing that a client can choose freely is part of them.
func TestObservations(t *testing.T) {
	w := newAudited(t, "- level: Metadata\n")
	var got Observation
	w.api.Observer = func(o Observation) { o.Took = 0; got = o }
	const deployments = "/apis/apps/v1/namespaces/shop/deployments"
	w.send("POST", configMaps, `{"metadata":{"name":"a"}}`)
	for _, test := range []struct {
		method, path, body, header string
		want                       Observation
	}{
		{"GET", configMaps + "/a", "", "", Observation{Verb: "GET", Version: "v1", Resource: "configmaps", Scope: "resource", Code: 200}},
		{"HEAD", configMaps + "/a", "", "", Observation{Verb: "GET", Version: "v1", Resource: "configmaps", Scope: "resource", Code: 405}},
		{"GET", configMaps, "", "", Observation{Verb: "LIST", Version: "v1", Resource: "configmaps", Scope: "namespace", Code: 200}},
		{"GET", "/api/v1/configmaps", "", "", Observation{Verb: "LIST", Version: "v1", Resource: "configmaps", Scope: "cluster", Code: 200}},
		{"GET", configMaps + "?watch=1&timeoutSeconds=1&resourceVersion=999999999", "", "", Observation{Verb: "WATCH", Version: "v1", Resource: "configmaps", Scope: "namespace"}},
		{"POST", configMaps + "?dryRun=All", `{"metadata":{"name":"b"}}`, "", Observation{Verb: "POST", DryRun: "All", Version: "v1", Resource: "configmaps", Scope: "resource", Code: 201}},
		{"POST", configMaps + "?dryRun=x", `{"metadata":{"name":"b"}}`, "", Observation{Verb: "POST", DryRun: "invalid", Version: "v1", Resource: "configmaps", Scope: "resource"}},
		{"PATCH", configMaps + "/a", `{}`, "Content-Type: application/merge-patch+json", Observation{Verb: "PATCH", Version: "v1", Resource: "configmaps", Scope: "resource", Code: 200}},
		{"PATCH", configMaps + "/a?fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`, "Content-Type: application/apply-patch+yaml", Observation{Verb: "APPLY", Version: "v1", Resource: "configmaps", Scope: "resource", Code: 200}},
		{"GET", deployments + "/none/scale", "", "", Observation{Verb: "GET", Group: "apps", Version: "v1", Resource: "deployments", Subresource: "scale", Scope: "resource", Code: 404}},
		{"GET", deployments + "/none/invented", "", "", Observation{Verb: "GET", Group: "apps", Version: "v1", Resource: "deployments", Scope: "resource", Code: 404}},
		{"DELETE", configMaps, "", "", Observation{Verb: "DELETE", Version: "v1", Resource: "configmaps", Scope: "namespace", Code: 200}},
		{"GET", "/apis/invented/v1/namespaces/shop/things/x/y", "", "", Observation{Verb: "GET", Scope: "resource", Code: 404}},
		{"BREW", configMaps, "", "", Observation{Verb: "other", Version: "v1", Resource: "configmaps", Scope: "namespace", Code: 405}},
		{"GET", "/version", "", "", Observation{Verb: "GET", Code: 200}},
		{"GET", "/invented/" + strings.Repeat("x", 20), "", "", Observation{Verb: "GET", Code: 404}},
	} {
		var headers []string
		if test.header != "" {
			headers = append(headers, test.header)
		}
		got = Observation{}
		w.send(test.method, test.path, test.body, headers...)
		if test.want.Code == 0 { // up to the handler
			test.want.Code = got.Code
		}
		if got != test.want {
			t.Errorf("%s %s: observed %+v, want %+v", test.method, test.path, got, test.want)
		}
	}
}
