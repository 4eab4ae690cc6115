package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// registryAnswers has the answers of the server, by method and path.
var registryAnswers = map[string]string{
	"GET /exeunt/registry/gc": `{"paused":true,"collectManifests":true,"manifests":{"depth":3,"overdue":2,"claimed":1,"failing":1},
"blobs":{"depth":1,"due":"2020-01-01T00:00:00Z"},"unlinks":{},"unlinkBytes":31457280,"givenBackBytes":1048576,"uploads":2,"abandonedUploads":1,"reviewAfter":{"tag_delete":"24h0m0s"}}`,
	"GET /exeunt/registry/retention?days=0&namespace=shop&policy=": `{"repositories":[{"repository":"shop/web",
"taken":[{"tag":"pr-1","policy":"pr","why":"older"}],"held":[{"tag":"v1","why":"immutable"}]}]}`,
	"GET /exeunt/registry/holds?image=shop%2Fweb%3Av1": `{"repository":"shop/web","digest":"sha256:1","holds":[{"what":"tag","name":"v1"},{"what":"tag","name":"v2"}]}`,
	"GET /exeunt/registry/gc/dry-run": `{"manifests":[{"repository":"r","digest":"sha256:1"},{"repository":"@5d7b","digest":"sha256:1"}],"tags":[{"repository":"r","name":"s.sig"}],
"blobs":[{"digest":"sha256:2","size":7}],"uploads":1,"bytes":7}`,
	"GET /exeunt/registry/deleted?repository=shop%2Fweb":                          `[{"repository":"shop/web","tag":"v1","digest":"sha256:1","event":"tag_delete","deletedAt":"2020-01-01T00:00:00Z","until":"2020-01-02T00:00:00Z"}]`,
	"GET /exeunt/registry/deleted?repository=":                                    `[]`,
	"GET /exeunt/registry/gc/dry-run?repository=shop%2Fweb&tag=v1":                `{"manifests":[{"repository":"shop/web","digest":"sha256:1"}],"blobs":[{"digest":"sha256:2","size":9}],"bytes":9}`,
	"POST /exeunt/registry/undelete?digest=&repository=shop%2Fweb&tag=v1":         `[{"repository":"shop/web","tag":"v1","digest":"sha256:1"}]`,
	"POST /exeunt/registry/undelete?digest=sha256%3A1&repository=shop%2Fweb&tag=": `[{"repository":"shop/web","digest":"sha256:1"}]`,
	"POST /exeunt/registry/gc/run":                                                `{"complete":false,"manifests":1,"blobs":2,"paths":3,"uploads":4}`,
	"POST /exeunt/registry/gc/review-after?after=1h&event=tag_delete":             `{"tag_delete":"1h0m0s"}`,
	"POST /exeunt/registry/gc/review-after?after=1m&event=tag_delete":             `{"tag_delete":"1m0s","blob_delete":"1m0s","tag_switch":"2h0m0s","existence_check":"1h0m0s"}`,
}

func TestRegistry(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		text, known := registryAnswers[req.Method+" "+req.URL.String()]
		if !known {
			w.WriteHeader(400)
			text = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not like this","code":400}`
		}
		fmt.Fprint(w, text)
	}))
	defer server.Close()
	kubeconfig := kubeconfigFor(t, server.URL)
	for _, tt := range []struct {
		args []string
		want string // part of the output, or of the error
		fail bool
	}{
		{[]string{"gc", "stats"}, "PAUSED", false},
		{[]string{"gc", "stats"}, "manifests: 3 queued, of them 2 due, 1 under review, 1 failing\n", false},
		{[]string{"gc", "stats"}, "cosign made for an image stay", false},
		{[]string{"gc", "stats"}, "30MiB wait to be removed", false},
		{[]string{"gc", "stats"}, "1MiB were given back today (UTC)", false},
		{[]string{"gc", "stats"}, "tag_delete             24h0m0s", false},
		{[]string{"gc", "stats", "-o", "json"}, `"unlinkBytes": 31457280`, false},
		{[]string{"gc", "stats", "-o", "yaml"}, "unlinkBytes: 31457280\n", false},
		{[]string{"gc", "stats", "-o", "name"}, "want json, yaml, or", true},
		{[]string{"gc", "dry-run"}, "manifest  r@sha256:1\nmanifest  (deleted Repository 5d7b)@sha256:1\ntag       r:s.sig\nblob      sha256:2  7B\n2 manifests, 1 tag, 1 blob and 1 abandoned upload would go: 7B\n", false},
		{[]string{"gc", "dry-run", "shop/web:v1"}, "1 manifest, 0 tags, 1 blob and 0 abandoned uploads would go: 9B\n", false},
		{[]string{"gc", "dry-run", "shop/web"}, `"shop/web" has no tag: use, for instance, shop/web:v1`, true},
		{[]string{"retention", "shop"}, "shop/web:pr-1 would go: policy pr, older\nshop/web:v1 stays: immutable\n1 tags would go\n", false},
		{[]string{"why", "shop/web:v1"}, "  tag v1\n  tag v2\n", false},
		{[]string{"gc", "run"}, "removed: 1 manifest, 2 blobs, the bytes of 3, 4 abandoned uploads\nmore is due", false},
		{[]string{"gc", "review-after", "tag_delete", "1h"}, "tag_delete             1h0m0s", false},
		{[]string{"gc", "review-after", "tag_delete", "1m"}, "  blob_delete            1m0s\n  existence_check        1h0m0s\n" +
			"  tag_delete             1m0s (but not before existence_check: 1h0m0s)\n  tag_switch             2h0m0s\n", false},
		{[]string{"gc", "review-after", "tag_delete", "soon"}, "not like this", true},
		{[]string{"undelete", "--list", "shop/web"}, "shop/web:v1@sha256:1  deleted ", false},
		{[]string{"undelete", "--list", "shop/web"}, " ago, reviewed in 0s\n", false},
		{[]string{"undelete", "--list", "shop/web", "-o", "name"}, "shop/web:v1@sha256:1\n", false},
		{[]string{"undelete", "shop/web:v1", "-o", "yaml"}, "  tag: v1\n", false},
		{[]string{"undelete", "--list"}, "nothing can be brought back", false},
		{[]string{"undelete", "shop/web:v1"}, "shop/web:v1@sha256:1 is back\n", false},
		{[]string{"undelete", "shop/web@sha256:1"}, "shop/web@sha256:1 is back\n", false},
		{[]string{"undelete", "shop/web"}, "say what to bring back", true},
		{[]string{"undelete"}, "say what to bring back", true},
		{[]string{"undelete", "shop/web:gone"}, "not like this", true},
		{[]string{"gc", "review-after", "tag_delete"}, "takes 2 arguments, not 1 argument: EVENT DURATION", true},
	} {
		var out bytes.Buffer
		cmd := newRegistry()
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetOut(&out)
		cmd.SetArgs(append(tt.args, "--kubeconfig", kubeconfig))
		err := cmd.ExecuteContext(t.Context())
		text := out.String()
		if err != nil {
			text += err.Error()
		}
		if (err != nil) != tt.fail || !strings.Contains(text, tt.want) {
			t.Errorf("%v: error %v, output:\n%s\nwant %q", tt.args, err, out.String(), tt.want)
		}
	}
}
