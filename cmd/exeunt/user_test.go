package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestUserToken: a token gets the end that it was given; what says nothing changes nothing.
func TestUserToken(t *testing.T) {
	tokens := `[{"name":"first","sha256":"aa"},{"name":"ended","sha256":"bb","expires":"2020-01-01T00:00:00Z"},{"name":"later","sha256":"cc","expires":"2099-01-01T00:00:00Z"}]`
	var changed string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body, _ := io.ReadAll(req.Body)
		if req.Method != http.MethodGet {
			changed += req.Method + " " + req.URL.Path + " " + string(body)
		}
		fmt.Fprintf(w, `{"apiVersion":"access.exeunt.dev/v1","kind":"User","metadata":{"name":"ci","resourceVersion":"7"},"spec":{"tokens":%s}}`, tokens)
	}))
	defer server.Close()
	kubeconfig := kubeconfigFor(t, server.URL)
	for _, test := range []struct {
		args    []string
		fails   string   // part of the error
		changes []string // parts of what is sent
		without []string
	}{
		{args: []string{"token", "ci"}, changes: []string{"PUT /apis/access.exeunt.dev/v1/users/ci ", `"resourceVersion":"7"`, `"first"`, `"later"`, `"at-`}, without: []string{`"ended"`}},
		{args: []string{"token", "ci", "--ttl", "720h"}, changes: []string{`"expires":`}},
		{args: []string{"token", "ci", "--revoke", "first"}, changes: []string{`"ended"`, `"later"`}, without: []string{`"first"`, `"at-`}},
		{args: []string{"token", "ci", "--revoke", "other"}, fails: `user ci has no token "other"`},
		{args: []string{"token", "ci", "--revoke", ""}, fails: "--revoke needs the name of a token"},
		{args: []string{"token", "ci", "--ttl", "-876000h"}, changes: []string{`"expires":"19`}}, // and not a token without end
		{args: []string{"add", "ci", "--ttl", "-876000h"}, changes: []string{`"expires":"19`}},
		{args: []string{"add", "ci", "--ttl", "1h"}, changes: []string{"POST /apis/access.exeunt.dev/v1/users ", `"expires":`}},
		{args: []string{"add", "ci"}, changes: []string{`"first"`}, without: []string{`"expires":`}},
		{args: []string{"remove", "ci"}, changes: []string{"DELETE /apis/access.exeunt.dev/v1/users/ci"}},
		{args: []string{"remove", ""}, fails: "not the name of an object"},
		{args: []string{"remove", "."}, fails: "not the name of an object"},
		{args: []string{"remove", "../../../../api/v1/namespaces/shop"}, fails: "not the name of an object"},
		{args: []string{"token", ""}, fails: "not the name of an object"},
		{args: []string{"remove", "ci/"}, fails: "not the name of an object"},
	} {
		changed = ""
		code, _, stderr := run(t, append(append([]string{"user"}, test.args...), "--kubeconfig", kubeconfig)...)
		if (code != 0) != (test.fails != "") || !strings.Contains(stderr, test.fails) || test.fails != "" && changed != "" {
			t.Errorf("%q: exit %d, sent %q: %s", test.args, code, changed, stderr)
		}
		for _, want := range test.changes {
			if !strings.Contains(changed, want) {
				t.Errorf("%q: sent %s, want %s", test.args, changed, want)
			}
		}
		for _, other := range test.without {
			if strings.Contains(changed, other) {
				t.Errorf("%q: sent %s", test.args, changed)
			}
		}
	}
}
