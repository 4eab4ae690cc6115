package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	code, stdout, stderr := run(t, "--version")
	if want := "exeunt version " + version() + "\n"; code != 0 || stdout != want || stderr != "" {
		t.Errorf("exit %d, stdout %q, stderr %q; want %q", code, stdout, stderr, want)
	}
	if version() == "" {
		t.Error("no version")
	}
}

// TestVersionCommand: the command always prints the version of the program, and
// that of the server if one answers; a missing server is not an error.
func TestVersionCommand(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"major":"1","minor":"37","gitVersion":"v1.37.0+exeunt-test"}`)
	}))
	defer server.Close()
	step, err := schemaStep()
	if err != nil || step < 7 {
		t.Fatalf("schema step %d, %v", step, err)
	}
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"version"}, []string{"exeunt:  " + version() + "\n", fmt.Sprintf("schema:  step %d\n", step), "server:  unknown: $KUBECONFIG names /nowhere"}},
		{[]string{"version", "--kubeconfig", kubeconfigFor(t, "http://127.0.0.1:1")}, []string{"server:  unknown: the server http://127.0.0.1:1 (context "}},
		{[]string{"version", "--kubeconfig", kubeconfigFor(t, server.URL)}, []string{"server:  v1.37.0+exeunt-test\n"}},
		{[]string{"version", "-o", "yaml", "--kubeconfig", kubeconfigFor(t, server.URL)}, []string{"client:\n", "  gitVersion: v1.37.0+exeunt-test\n"}},
	} {
		code, stdout, stderr := run(t, test.args...)
		for _, want := range test.want {
			if code != 0 || stderr != "" || !strings.Contains(stdout, want) {
				t.Errorf("%v: exit %d, %q\n%s\nwant %q", test.args, code, stderr, stdout, want)
			}
		}
	}
	_, stdout, _ := run(t, "version", "-o", "json")
	var v versions
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || v.Client.Version != version() || v.Client.Schema != step || v.Server != nil {
		t.Errorf("read %+v, %v of %s", v, err, stdout)
	}
}

func TestReadBuild(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	info := &debug.BuildInfo{Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: commit}, {Key: "vcs.time", Value: "2024-05-06T07:08:09Z"}, {Key: "vcs.modified", Value: "true"},
	}}
	if b := readBuild(info); b.Version != "dev-0123456789ab" || b.Commit != commit || b.Committed != "2024-05-06T07:08:09Z" || !b.Modified {
		t.Errorf("of a checkout: %+v", b)
	}
	releaseVersion, releaseDate = "v0.1.0", "2024-05-06T07:08:09Z"
	defer func() { releaseVersion, releaseDate = "", "" }()
	var text strings.Builder
	b := readBuild(info)
	if (&versions{Client: b}).write(&printer{out: &text}, nil); b.Version != "v0.1.0" || b.Commit != commit || !strings.Contains(text.String(), "built:   2024-05-06T07:08:09Z\n") {
		t.Errorf("of a release: %+v\n%s", b, text.String())
	}
	releaseVersion = ""
	if b := readBuild(&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}); b.Version != "v1.2.3" || b.Commit != "" {
		t.Errorf("of a module: %+v", b)
	}
	if b := readBuild(&debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}); b.Version != "dev" {
		t.Errorf("of neither: %+v", b)
	}
}
