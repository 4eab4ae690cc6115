package api

import (
	"net/http"
	"testing"

	"github.com/exeunt/exeunt/store"
)

// TestStringDataIsData: whoever writes a Secret's stringData owns its data, as in Kubernetes, on the
// fast paths and on the library's. Only an apply owns the fields that its manifest has.
func TestStringDataIsData(t *testing.T) {
	const secrets = "/api/v1/namespaces/shop/secrets"
	writes := []struct{ method, path, contentType, body, owned string }{
		{"POST", secrets, "application/json", `{"metadata":{"name":"s"},"data":{"a":"eA==","b":"eA=="},"stringData":{"b":"y"}}`, `{".":{},"f:a":{},"f:b":{}}`},
		{"PUT", secrets + "/s", "application/json", `{"metadata":{"name":"s"},"data":{"a":"eA=="},"stringData":{"c":"y"}}`, `{".":{},"f:a":{},"f:c":{}}`},
		{"PATCH", secrets + "/s", "application/merge-patch+json", `{"stringData":{"d":"y"}}`, `{".":{},"f:a":{},"f:c":{},"f:d":{}}`},
		{"PATCH", secrets + "/s", "application/strategic-merge-patch+json", `{"stringData":{"e":"y"}}`, `{".":{},"f:a":{},"f:c":{},"f:d":{},"f:e":{}}`},
		{"PATCH", secrets + "/s", "application/json-patch+json", `[{"op":"add","path":"/stringData","value":{"f":"y"}}]`,
			`{".":{},"f:a":{},"f:c":{},"f:d":{},"f:e":{},"f:f":{}}`},
	}
	for _, library := range []bool{false, true} {
		w := newWorld(t, store.Options{})
		if library {
			w.eachEndpoint(func(e *endpoint) { e.json = nil })
		}
		for i, x := range writes {
			code := http.StatusOK
			if i == 0 {
				code = http.StatusCreated
			}
			r := w.want(code, x.method, x.path, x.body, "Content-Type: "+x.contentType)
			if got := r.get("metadata.managedFields.0.fieldsV1.f:data"); got != x.owned || r.get("metadata.managedFields.#") != "1" {
				t.Errorf("library %v: after %s of %s the owner has data %s of %s", library, x.method, x.contentType, got, r.get("metadata.managedFields"))
			}
			if fields := r.get("metadata.managedFields.0.fieldsV1"); r.get("stringData") != "" || r.get(`metadata.managedFields.0.fieldsV1.f\:stringData`) != "" {
				t.Errorf("library %v: after %s of %s stringData is there, owned as %s", library, x.method, x.contentType, fields)
			}
		}
	}
}
