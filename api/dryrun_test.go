package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/store"
)

// dryWrites are dry runs on every write path: the JSON path and the library's handlers,
// single objects, subresources and collections.
var dryWrites = []struct {
	name, method, path, body string
	headers                  []string
	code                     int
}{
	{"create", "POST", configMaps + "?dryRun=All", `{"metadata":{"name":"new"}}`, nil, 201},
	{"create, YAML", "POST", configMaps + "?dryRun=All", "metadata:\n  name: new\n", []string{"Content-Type: application/yaml"}, 201},
	{"create by apply", "PATCH", configMaps + "/new?dryRun=All&fieldManager=t", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"}}`, []string{"Content-Type: application/apply-patch+yaml"}, 201},
	{"update", "PUT", configMaps + "/plain?dryRun=All", `{"metadata":{"name":"plain"},"data":{"a":"2"}}`, nil, 200},
	{"update, YAML", "PUT", configMaps + "/plain?dryRun=All", "metadata:\n  name: plain\ndata:\n  a: \"2\"\n", []string{"Content-Type: application/yaml"}, 200},
	{"update of the status", "PUT", deployments + "/web/status?dryRun=All", `{"metadata":{"name":"web"},"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i"}]}}},"status":{"replicas":9}}`, nil, 200},
	{"update of the scale", "PUT", deployments + "/web/scale?dryRun=All", `{"metadata":{"name":"web","namespace":"shop"},"spec":{"replicas":9}}`, nil, 200},
	{"update that takes the last finalizer", "PUT", configMaps + "/leaving?dryRun=All", `{"metadata":{"name":"leaving"}}`, nil, 200},
	{"finalize", "PUT", "/api/v1/namespaces/other/finalize?dryRun=All", `{"metadata":{"name":"other"},"spec":{"finalizers":["x.example/y"]}}`, nil, 200},
	{"merge patch", "PATCH", configMaps + "/plain?dryRun=All", `{"data":{"a":"2"}}`, []string{"Content-Type: application/merge-patch+json"}, 200},
	{"JSON patch", "PATCH", configMaps + "/plain?dryRun=All", `[{"op":"add","path":"/data/b","value":"2"}]`, []string{"Content-Type: application/json-patch+json"}, 200},
	{"strategic patch", "PATCH", configMaps + "/plain?dryRun=All", `{"data":{"a":"2"}}`, []string{"Content-Type: application/strategic-merge-patch+json"}, 200},
	{"apply", "PATCH", configMaps + "/plain?dryRun=All&fieldManager=t&force=true", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"plain"},"data":{"a":"2"}}`, []string{"Content-Type: application/apply-patch+yaml"}, 200},
	{"patch that takes the last finalizer", "PATCH", configMaps + "/leaving?dryRun=All", `{"metadata":{"finalizers":null}}`, []string{"Content-Type: application/merge-patch+json"}, 200},
	{"patch of the scale", "PATCH", deployments + "/web/scale?dryRun=All", `{"spec":{"replicas":9}}`, []string{"Content-Type: application/merge-patch+json"}, 200},
	{"delete", "DELETE", configMaps + "/plain?dryRun=All", "", nil, 200},
	{"delete by a body", "DELETE", configMaps + "/plain", `{"dryRun":["All"]}`, nil, 200},
	{"delete, YAML", "DELETE", configMaps + "/plain", "dryRun: [All]\n", []string{"Content-Type: application/yaml"}, 200},
	{"delete of what has a finalizer", "DELETE", configMaps + "/held?dryRun=All", "", nil, 200},
	{"delete in the foreground", "DELETE", deployments + "/web?dryRun=All&propagationPolicy=Foreground", "", nil, 200},
	{"delete that orphans", "DELETE", deployments + "/web", `{"dryRun":["All"],"propagationPolicy":"Orphan"}`, nil, 200},
	{"delete with grace", "DELETE", pods + "/bound?dryRun=All", "", nil, 200},
	{"delete of a namespace", "DELETE", "/api/v1/namespaces/other?dryRun=All", "", nil, 200},
	{"delete a collection", "DELETE", configMaps + "?dryRun=All", "", nil, 200},
	{"delete a collection by a body", "DELETE", configMaps, `{"dryRun":["All"]}`, nil, 200},
	{"delete a collection, YAML", "DELETE", configMaps, "dryRun: [All]\n", []string{"Content-Type: application/yaml"}, 200},
	{"delete a collection with grace", "DELETE", pods + "?dryRun=All", "", nil, 200},
}

// TestDryRunWritesNothing: a dry run answers as the write would, and the revision stays: no
// object, tombstone or event is written. The same request without the dry run does write,
// so the row would detect it.
func TestDryRunWritesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range dryWrites {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, store.Options{})
			for _, r := range []request{
				post("/api/v1/namespaces", `{"metadata":{"name":"other"}}`),
				post(configMaps, `{"metadata":{"name":"plain"},"data":{"a":"1"}}`),
				post(configMaps, `{"metadata":{"name":"held","finalizers":["a.example/x"]}}`),
				post(configMaps, `{"metadata":{"name":"leaving","finalizers":["a.example/x"]}}`),
				aDeployment[0], aBoundPod[0],
				{"DELETE", configMaps + "/leaving", ""},
			} {
				body := strings.ReplaceAll(r.body, "NAME", map[bool]string{true: "web", false: "bound"}[r.url == deployments])
				if got := w.send(r.method, r.url, body); got.code >= 300 {
					t.Fatalf("%s %s: %d %s", r.method, r.url, got.code, got.body)
				}
			}
			state := func() map[string]string {
				all := map[string]string{}
				for _, path := range []string{"/api/v1/namespaces", configMaps, deployments, pods} {
					all[path] = w.want(http.StatusOK, "GET", path, "").body
				}
				return all
			}
			before, revision := state(), w.api.Store.Revision()
			w.want(c.code, c.method, c.path, c.body, c.headers...)
			if now := w.api.Store.Revision(); now != revision {
				t.Errorf("revision %d, was %d", now, revision)
			}
			if diff := cmp.Diff(before, state()); diff != "" {
				t.Errorf("a dry run changed what is stored (-before +after):\n%s", diff)
			}
			wet := strings.NewReplacer("?dryRun=All&", "?", "?dryRun=All", "")
			body := strings.NewReplacer(`"dryRun":["All"],`, "", `"dryRun":["All"]`, "", "dryRun: [All]\n", "{}").Replace(c.body)
			w.want(c.code, c.method, wet.Replace(c.path), body, c.headers...)
			if w.api.Store.Revision() == revision {
				t.Error("the same request without its dry run writes nothing either")
			}
		})
	}
}
