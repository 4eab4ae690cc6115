package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const gcAnswer = `{"paused":true,"reason":"a test","depth":3,"overdue":2,"claimed":1,"failing":2,"asking":6,"refused":1,"oldest":"2020-01-01T00:00:00Z","found":7,
"failures":[{"uid":"u1","kind":"pods","namespace":"n","name":"p","event":"deleting","attempts":4,"next":"2020-01-01T00:00:00Z","error":"no luck"},
{"uid":"u2","event":"owner_removed","attempts":1,"next":"2020-01-01T00:00:00Z","error":"bad body"}]}`

func TestGC(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked = append(asked, req.Method+" "+req.URL.String())
		if strings.HasSuffix(req.URL.Path, "/resume") {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, gcAnswer)
	}))
	defer server.Close()
	kubeconfig := kubeconfigFor(t, server.URL)
	for _, tt := range []struct {
		args  []string
		asked string
		want  string // part of the output, or of the error
		fails bool
	}{
		{[]string{"status"}, "GET /exeunt/gc", "PAUSED: a test\n", false},
		{[]string{"status"}, "GET /exeunt/gc", "queue: 3, of them 2 due, 1 under review, 2 failing\n", false},
		{[]string{"status"}, "GET /exeunt/gc", "waiting for webhooks or policies: 6 deletes, of them 1 refused or without an answer\n", false},
		{[]string{"status"}, "GET /exeunt/gc", "failing: pods p in n, 4 times, next in 0s: no luck\n", false},
		{[]string{"status"}, "GET /exeunt/gc", "failing: uid u2 (gone), 1 time, ", false},
		{[]string{"status", "-o", "json"}, "GET /exeunt/gc", `"depth": 3`, false},
		{[]string{"status", "-o", "yaml"}, "GET /exeunt/gc", "depth: 3\n", false},
		{[]string{"status", "-o", "name"}, "", `-o "name": want json, yaml, or leave it out`, true},
		{[]string{"pause", "--reason", "a & b"}, "POST /exeunt/gc/pause?reason=a+%26+b", "resume with", false},
		{[]string{"scan"}, "POST /exeunt/gc/scan", "found: 7", false},
		{[]string{"resume"}, "POST /exeunt/gc/resume", "", true},
		{[]string{"status", "more"}, "", "unknown command", true},
	} {
		asked = nil
		var out bytes.Buffer
		cmd := newGC()
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetOut(&out)
		cmd.SetArgs(append(tt.args, "--kubeconfig", kubeconfig))
		err := cmd.ExecuteContext(t.Context())
		text := out.String()
		if err != nil {
			text += err.Error()
		}
		if (err != nil) != tt.fails || !strings.Contains(text, tt.want) || strings.Join(asked, " ") != tt.asked {
			t.Errorf("%v: asked %q, error %v, output:\n%s\nwant %q", tt.args, asked, err, out.String(), tt.want)
		}
	}
}

// kubeconfigFor returns a kubeconfig for a server without TLS client certificates.
func kubeconfigFor(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\n"+
		"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n", url)
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
