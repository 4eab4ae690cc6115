package docs_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/harness"
)

// script is what is run of a page: one process of bash, so that variables and directories hold
// from block to block. A line that begins with border separates the output of its commands.
type script struct {
	commands []command
	text     string
}

const border = "@@ line "

var (
	refused     = regexp.MustCompile(`(?m)^(.*\S)\s+# refused.*$`)
	perhaps     = regexp.MustCompile(`(?m)^(.*\S)\s+# exit code (\d+) if .*$`)
	failure     = regexp.MustCompile(`^(exeunt: \S|Error)`)
	interrupted = regexp.MustCompile(`(?m)^(.*\S)\s+# Ctrl-C ends it$`)
)

func newScript(blocks []block) script {
	var s script
	var b strings.Builder
	b.WriteString("set -euo pipefail\n")
	for _, block := range blocks {
		if name := block.file(); name != "" {
			fmt.Fprintf(&b, "mkdir -p $(dirname %s)\ncat >%s <<'END OF FILE'\n%s\nEND OF FILE\n", name, name, strings.Join(block.lines, "\n"))
		}
		if block.why != "" || block.kind != "sh" && block.kind != "console" {
			continue
		}
		if block.first != "" {
			fmt.Fprintf(&b, "echo '%sfirst %s'\n. \"$TESTDATA/%s.sh\"\n", border, block.first, block.first)
		}
		for _, c := range block.commands() {
			s.commands = append(s.commands, c)
			fmt.Fprintf(&b, "echo '%s%d'\n%s\n", border, c.line, c.bash())
		}
	}
	fmt.Fprintf(&b, "echo '%send'\n", border)
	s.text = b.String()
	return s
}

// bash returns the command with the exit code that the page promises.
func (c command) bash() string {
	text := refused.ReplaceAllString(c.text, "if $1; then echo 'this should have been refused'; exit 1; fi")
	text = perhaps.ReplaceAllString(text, "code=0; $1 || code=$$?; test $$code = 0 -o $$code = $2")
	text = interrupted.ReplaceAllString(text, `code=0; timeout -s INT 2 $1 || code=$$?; test $$code = 124`)
	if len(c.want) > 0 && failure.MatchString(c.want[0]) {
		text = "if " + text + "\nthen echo 'this should have failed'; exit 1; fi"
	}
	return text
}

// site is what the pages run on: a server, and the values of the names and addresses in
// the pages.
type site struct {
	server *harness.Server
	values *strings.Replacer
	env    []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	kubectl, crane := harness.KubectlPath(t), harness.Program(t, "github.com/google/go-containerregistry/cmd/crane")
	plugin, err := harness.PluginDir()
	if err != nil {
		t.Fatal(err)
	}
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := harness.StartOn(t, harness.SQLite, "", "--audit-log-path", filepath.Join(dir, "audit.log"))
	data := filepath.Dir(s.Kubeconfig)
	return &site{
		server: s,
		values: strings.NewReplacer(
			"127.0.0.1:5000", s.Registry(),
			"127.0.0.1:6443", strings.TrimPrefix(s.Config().Host, "https://"),
			"/var/lib/exeunt", data,
			"--data DIR", "--data "+data,
			"/var/log/exeunt", dir,
			"v0.1.0", "dev",
			"/srv/backup", filepath.Join(dir, "backup"),
			"/etc/exeunt", filepath.Join(dir, "etc"),
			"--kubeconfig OLD", "--kubeconfig "+s.Kubeconfig,
			"--kubeconfig NEW", "--kubeconfig "+s.Kubeconfig,
			"OLD/shop/web", s.Registry()+"/shop/web",
			"NEW/shop/web", s.Registry()+"/moved/web",
		),
		env: append(os.Environ(), "TESTDATA="+testdata, "REGISTRY="+s.Registry(), "DATA="+data, "BACKUP="+filepath.Join(dir, "backup"),
			"PATH="+strings.Join([]string{plugin, filepath.Dir(kubectl), filepath.Dir(crane), os.Getenv("PATH")}, ":")),
	}
}

// page returns a directory that looks to the commands of a page like the repository with a
// server on ./data.
func (s *site) page(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	repository, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	plugin, err := harness.PluginDir()
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"bin": plugin, "data": filepath.Dir(s.server.Kubeconfig), "examples": filepath.Join(repository, "examples"),
		"LICENSE": filepath.Join(repository, "LICENSE"), "packaging": filepath.Join(repository, "packaging"),
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig, err := os.ReadFile(s.server.Kubeconfig)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "kubeconfig"), kubeconfig, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// run runs a page, and compares the output of each command with the page's.
func (s *site) run(t *testing.T, script script) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", s.values.Replace(script.text))
	cmd.Dir = s.page(t)
	cmd.WaitDelay = time.Second // what the commands started may hold the pipe
	cmd.Env = append(s.env, "KUBECONFIG="+filepath.Join(cmd.Dir, "kubeconfig"), "HOME="+cmd.Dir)
	out, err := cmd.CombinedOutput()
	outputs := map[string]string{}
	last := ""
	for part := range strings.SplitSeq("\n"+string(out), "\n"+border) {
		name, text, _ := strings.Cut(part, "\n")
		outputs[name], last = text, name
	}
	if err != nil {
		t.Fatalf("line %s: %v\n%s", last, err, outputs[last])
	}
	for _, c := range script.commands {
		got := outputs[fmt.Sprint(c.line)]
		want := strings.Split(s.values.Replace(strings.Join(c.want, "\n")), "\n")
		if line, yes := differs(want, got); yes {
			t.Errorf("line %d: %s\nthe page shows:\n%s\nwhich is not in the output, in this order:\n%s", c.line, c.text, line, got)
		}
	}
}
