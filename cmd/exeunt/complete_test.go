package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestCompleteValues: completion proposes the values of flags and arguments that
// have a fixed set, and the events that the server has.
func TestCompleteValues(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if req.URL.Path != "/exeunt/registry/gc" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprint(w, `{"reviewAfter":{"tag_delete":"24h0m0s","tag_switch":"36h0m0s","blob_upload":"24h0m0s"}}`)
	}))
	defer server.Close()
	kubeconfig := kubeconfigFor(t, server.URL)
	for _, test := range []struct{ args, want string }{
		{"serve --log-level ", "DEBUG\nINFO\nWARN\nERROR\n:4\n"},
		{"node join --log-level ", "DEBUG\nINFO\nWARN\nERROR\n:4\n"},
		{"serve -o ", "json\nyaml\n:4\n"},
		{"archive purge -o ", "json\nyaml\nname\n:4\n"},
		{"registry gc review-after --kubeconfig " + kubeconfig + " tag_", "tag_delete\treviewed after 24h0m0s\ntag_switch\treviewed after 36h0m0s\n:4\n"},
		{"registry gc review-after --kubeconfig " + kubeconfig + " tag_delete ", ":4\n"},
	} {
		var out bytes.Buffer
		root := newRoot()
		root.SetOut(&out)
		root.SetErr(&bytes.Buffer{})
		root.SetArgs(append([]string{"__complete"}, strings.Split(test.args, " ")...))
		if err := root.ExecuteContext(t.Context()); err != nil || out.String() != test.want {
			t.Errorf("%s: %v, proposed %q; want %q", test.args, err, out.String(), test.want)
		}
	}
}
