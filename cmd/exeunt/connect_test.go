package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestConnectErrors: the error of a command that reaches no Exeunt server is one line
// with the server, the file, the context and the remedy.
func TestConnectErrors(t *testing.T) {
	foreign := httptest.NewTLSServer(http.NotFoundHandler())
	defer foreign.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	strict := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer strict.Close()
	empty, nonsense, undecided := filepath.Join(t.TempDir(), "empty"), filepath.Join(t.TempDir(), "nonsense"), filepath.Join(t.TempDir(), "undecided")
	for path, text := range map[string]string{empty: "", nonsense: "{", undecided: "contexts: [{name: b, context: {}}, {name: a, context: {}}]"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	closed := kubeconfigFor(t, "https://127.0.0.1:1")
	for _, test := range []struct {
		kubeconfig string
		want       []string
	}{
		{closed, []string{`the server https://127.0.0.1:1 (context "c" of ` + closed + " (--kubeconfig)) cannot be reached", "connection refused", `start one with "exeunt serve"`, "--context"}},
		{kubeconfigFor(t, foreign.URL), []string{"has a certificate that this kubeconfig does not trust", "data directory"}},
		{kubeconfigFor(t, other.URL), []string{"does not know /exeunt/gc: it is no Exeunt server, or an older one"}},
		{kubeconfigFor(t, strict.URL), []string{"does not accept the credentials of that context"}},
		{"missing", []string{"--kubeconfig names missing, which does not exist", `"exeunt serve" writes one`}},
		{empty, []string{"kubeconfig " + empty + " (--kubeconfig) has no contexts"}},
		{nonsense, []string{"read kubeconfig " + nonsense + " (--kubeconfig): "}},
		{undecided, []string{"has no current-context: choose one with --context: a, b"}},
	} {
		code, stdout, stderr := run(t, "gc", "status", "--kubeconfig", test.kubeconfig)
		for _, want := range test.want {
			if code != 1 || stdout != "" || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("%s: exit %d, %s; want %q", test.kubeconfig, code, stderr, want)
			}
		}
	}
}

// TestServerFlags: every command that talks to a server finds it in the same way.
func TestServerFlags(t *testing.T) {
	local := map[string]string{
		"exeunt serve":            "is the server",
		"exeunt envtest":          "links programs",
		"exeunt config check":     "reads a file",
		"exeunt node join":        "has a token instead",
		"exeunt registry verify":  "reads the database",
		"exeunt backup create":    "reads the database",
		"exeunt backup list":      "reads backups",
		"exeunt backup verify":    "reads backups",
		"exeunt backup prune":     "removes backups",
		"exeunt backup restore":   "writes a new database",
		"exeunt keys create":      "writes new files",
		"exeunt keys rotate":      "writes new files",
		"exeunt migrate status":   "reads the database",
		"exeunt migrate up":       "changes the database",
		"exeunt migrate down":     "changes the database",
		"exeunt migrate database": "moves a database",
	}
	each(newRoot(), func(c *cobra.Command) {
		_, excused := local[c.CommandPath()]
		switch {
		case !c.Runnable() || c.HasSubCommands() && c.Name() != "bench" || c.Name() == "help" || c.HasParent() && c.Parent().Name() == "completion":
		case excused:
			if c.Flags().Lookup("kubeconfig") != nil {
				t.Errorf("%s has --kubeconfig: take it off this list", c.CommandPath())
			}
		case c.Flags().Lookup("kubeconfig") == nil || c.Flags().Lookup("context") == nil:
			t.Errorf("%s has no --kubeconfig or no --context", c.CommandPath())
		}
	})
}

// TestContextOfEveryFamily: --context selects the server in every group of commands.
func TestContextOfEveryFamily(t *testing.T) {
	asked := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked = req.URL.Path
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, "{}")
	}))
	defer server.Close()
	dir := t.TempDir()
	path := filepath.Join(dir, "config")
	config := fmt.Sprintf("clusters: [{name: c, cluster: {server: %q}}, {name: closed, cluster: {server: 'http://127.0.0.1:1'}}]\n"+
		"contexts: [{name: c, context: {cluster: c}}, {name: closed, context: {cluster: closed}}]\ncurrent-context: closed\n", server.URL)
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"gc status":         "/exeunt/gc",
		"registry gc stats": "/exeunt/registry/gc",
		"node token list":   "/exeunt/mesh/tokens",
		"archive list":      "/apis/lifecycle.exeunt.dev/v1/archivedobjects",
		"version":           "/version",
	} {
		asked = ""
		if code, _, stderr := run(t, append(strings.Fields(args), "--kubeconfig", path, "--context", "c")...); code != 0 || asked != want {
			t.Errorf("%s: exit %d, asked %q, %s", args, code, asked, stderr)
		}
	}
}

func TestParseSubjects(t *testing.T) {
	for args, want := range map[string]string{
		"deployment/web":       "[deployment/web]",
		"deployment web":       "[deployment/web]",
		"deploy.apps/web cm/a": "[deploy.apps/web cm/a]",
		"cm a b":               "[cm/a cm/b]",
		"":                     "name an object",
		"web":                  `"web" is not KIND/NAME`,
		"deploy/":              `"deploy/" is not KIND/NAME`,
		"/web":                 `"/web" is not KIND/NAME`,
		"a/b/c":                `"a/b/c" is not KIND/NAME`,
		"deploy/web other":     `"other" is not KIND/NAME`,
		"deploy web/other":     `"web/other" is not the name of a deploy`,
	} {
		got, err := parseSubjects(strings.Fields(args))
		text := fmt.Sprint(got)
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, want) {
			t.Errorf("%q: got %s, want %s", args, text, want)
		}
	}
}

func TestGroupKind(t *testing.T) {
	for typed, want := range map[string][2]string{
		"deploy":                  {"deploy", ""},
		"deployment.apps":         {"deployment", "apps/v1"},
		"deployment.v1.apps":      {"deployment", "apps/v1"},
		"widget.example.dev":      {"widget", "example.dev/v1"},
		"widget.v1beta1.ex.dev":   {"widget", "ex.dev/v1beta1"},
		"widget.v1beta.ex.dev":    {"widget", "v1beta.ex.dev/v1"},
		"Deployment.v2alpha3.a.b": {"Deployment", "a.b/v2alpha3"},
	} {
		if kind, apiVersion := (subject{kind: typed}).groupKind(); kind != want[0] || apiVersion != want[1] {
			t.Errorf("%s: got %s of %s", typed, kind, apiVersion)
		}
	}
}
