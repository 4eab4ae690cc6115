package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestPluginTexts: every command line in the help of the plugin begins with kubectl.
func TestPluginTexts(t *testing.T) {
	bare := regexp.MustCompile(`(?m)(^|[^l]) *"?exeunt [a-z]`)
	eachCommand(newProgram([]string{"/somewhere/kubectl-exeunt"}), func(c *cobra.Command) {
		for _, text := range []string{c.Long, c.Example, c.UsageString()} {
			for _, line := range strings.Split(text, "\n") {
				if bare.MatchString(strings.ReplaceAll(line, "kubectl exeunt", "")) {
					t.Errorf("%s: %s", c.CommandPath(), line)
				}
			}
		}
	})
	if got := newProgram([]string{"exeunt"}).UsageString(); strings.Contains(got, "kubectl") {
		t.Errorf("the program's own help mentions kubectl: %s", got)
	}
}

// TestPluginNames runs the program under the names by which kubectl finds it.
func TestPluginNames(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"exeunt", []string{"why", "--help"}, "  exeunt why KIND/NAME... [flags]"},
		{"kubectl-exeunt", []string{"why", "--help"}, "  kubectl exeunt why KIND/NAME... [flags]"},
		{"kubectl-exeunt", []string{"--help"}, `Use "kubectl exeunt [command] --help"`},
		{"kubectl_complete-exeunt", []string{"fin"}, "finalizer\tOverride a finalizer"},
		{"kubectl_complete-exeunt", []string{"why", "--wa"}, "--watch\t"},
	} {
		link := filepath.Join(t.TempDir(), test.name)
		program, err := filepath.Abs(os.Args[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(program, link); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(link, test.args...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Run(); err != nil || !strings.Contains(out.String(), test.want) {
			t.Errorf("%s %v: %v\n%s", test.name, test.args, err, out.String())
		}
	}
}

// TestConfig: the order in which kubeconfig files are chosen, and the context.
func TestConfig(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	t.Setenv("KUBECONFIG", "")
	write := func(name string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		config := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://" + strings.ReplaceAll(name, "/", ".") + "'}}, {name: d, cluster: {server: 'https://d'}}]\n" +
			"contexts: [{name: c, context: {cluster: c, namespace: shop}}, {name: d, context: {cluster: d}}]\ncurrent-context: c\n"
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	given, env := write("given"), write("env")
	host := func(tt target) string {
		t.Helper()
		config, err := tt.restConfig()
		if err != nil {
			return err.Error()
		}
		return config.Host
	}
	want := func(tt target, part string) {
		t.Helper()
		if got := host(tt); !strings.Contains(got, part) {
			t.Errorf("%+v: got %q, want %q", tt, got, part)
		}
	}
	want(target{}, "no kubeconfig")
	write(".kube/config")
	want(target{}, "https://.kube.config")
	write("data/kubeconfig")
	want(target{}, "https://data.kubeconfig")
	want(target{plugin: true}, "https://.kube.config")
	t.Setenv("KUBECONFIG", env)
	want(target{}, "https://env")
	want(target{plugin: true}, "https://env")
	want(target{kubeconfig: given}, "https://given")
	want(target{kubeconfig: given, context: "d"}, "https://d")
	want(target{context: "unknown"}, `"unknown" does not exist`)
	if namespace, err := (&target{}).currentNamespace(); err != nil || namespace != "shop" {
		t.Errorf("got %q, %v", namespace, err)
	}
	if namespace, err := (&target{context: "d"}).currentNamespace(); err != nil || namespace != "default" {
		t.Errorf("got %q, %v", namespace, err)
	}
}
