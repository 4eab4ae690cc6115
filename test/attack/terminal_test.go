package attack_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/exeunt/exeunt/test/harness"
)

const (
	roleBindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
	forged       = "to resolve: rm -rf ~"
)

// hostileNames are names that a terminal, a reader or a shell would interpret.
var hostileNames = []string{
	"a\x1b]0;pwned\ab\r\x1b[2Kfine\u009b31mred\tc\u202egnp.exe\x7f\n" + forged, "--all", "$(touch pwned)`touch pwned`;touch pwned * !! g h'i\"j" + `\033[31m`, "*",
}

// terminal is the world of TestTerminal.
type terminal struct {
	*testing.T
	*harness.Server
	h       *harness.HTTP
	formats []string
	turn    int // of everyReport's commands
}

// request sends a request and returns the answer, which must have the code.
func (w *terminal) request(code int, r harness.Request) harness.Answer {
	w.Helper()
	a := w.h.Do(w.T, r)
	if a.Code != code {
		w.Fatalf("%s %s: %d %s", r.Method, r.Path, a.Code, a.Body)
	}
	return a
}

// exeunt runs a command and checks what it prints.
func (w *terminal) exeunt(args ...string) string {
	w.Helper()
	r := w.Server.Exeunt(w.T, args...)
	w.check(fmt.Sprintf("exeunt %q", args), r.Stdout+r.Stderr)
	return r.Stdout + r.Stderr
}

func (w *terminal) check(what, out string) {
	w.Helper()
	if i := strings.IndexFunc(out, func(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\t' }); i >= 0 {
		w.Errorf("%s prints a control character: %q", what, out[max(0, i-80):min(len(out), i+40)])
	}
	for line := range strings.Lines(out) {
		if strings.Contains(out, "\nObject:\n") { // in YAML the value of a field has lines, which are indented
			line = strings.ReplaceAll(line, "  ", "..")
		}
		if strings.HasPrefix(strings.TrimLeft(line, "│├└─ "), forged) {
			w.Errorf("%s prints a line of a client as its own: %q", what, out)
		}
	}
}

// bind creates a RoleBinding and returns its uid.
func (w *terminal) bind(name, more string) string {
	w.Helper()
	body := fmt.Sprintf(`{"metadata":{"name":%s,"annotations":{"note":%[1]s}%s},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%[1]s},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":%[1]s}]}`, quoted(w.T, name), more)
	return strings.Trim(w.request(201, harness.Request{Method: "POST", Path: roleBindings, Body: body}).Field("metadata.uid"), `"`)
}

func quoted(t *testing.T, text string) string {
	t.Helper()
	out, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func bindingPath(name string) string { return roleBindings + "/" + url.PathEscape(name) }

// TestTerminal: whatever clients call their objects, no command prints a control character or a
// line that is not its own, and a shell reads from the commands that it suggests exactly that
// object.
func TestTerminal(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.SQLite) // the engine does not matter: the commands print
	w := &terminal{T: t, Server: s, h: s.HTTP(), formats: []string{"", "-o json", "-o yaml", "-o name"}}
	for i, name := range hostileNames {
		w.request(201, harness.Request{Method: "POST", Path: "/apis/access.exeunt.dev/v1/users", Body: fmt.Sprintf(
			`{"apiVersion":"access.exeunt.dev/v1","kind":"User","metadata":{"name":"user-%d"},"spec":{"groups":[%s]}}`, i, quoted(t, name))})
		owner := w.bind(name, "")
		dependent := fmt.Sprintf(`,"finalizers":["test.dev/hold"],"ownerReferences":[{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","name":%s,"uid":%q,"blockOwnerDeletion":true}]`, quoted(t, name), owner)
		w.bind("of "+name, dependent)
		w.everyReport("rolebinding/" + name)

		// A foreground deletion that waits for the dependent.
		w.request(200, harness.Request{Method: "DELETE", Path: bindingPath(name), Body: `{"propagationPolicy":"Foreground"}`})
		harness.Until(t, "the dependent is being deleted", func() error {
			if a := w.h.Do(t, harness.Request{Method: "GET", Path: bindingPath("of " + name)}); a.Field("metadata.deletionTimestamp") == "" {
				return fmt.Errorf("%d %s", a.Code, a.Body)
			}
			return nil
		})
		w.everyReport("rolebinding/" + name)
		why := w.exeunt("why", "rolebinding/"+name)
		w.shell(command(t, why, `to stop waiting for them: (kubectl delete .*)$`) + " --wait=false")
		harness.Until(t, "the owner is gone", func() error { return w.gone(name) })

		// The dependent is held by a finalizer.
		why = w.exeunt("why", "rolebinding/of "+name)
		force := command(t, why, `(exeunt finalizer remove .*)$`)
		w.shell(strings.Replace(force, `--reason "..."`, "--reason "+shellQuote(name), 1))
		harness.Until(t, "the dependent is gone", func() error { return w.gone("of " + name) })

		// Both are in the archive.
		w.everyReport("rolebinding/" + name)
		why = w.exeunt("why", "rolebinding/"+name)
		w.shell(command(t, why, `(exeunt restore .*)$`))
		w.request(200, harness.Request{Method: "GET", Path: bindingPath(name)})
		w.exeunt("restore", "rolebinding/"+name) // its name is taken
		w.exeunt("restore", "--cascade", owner)
		w.exeunt("gc", "pause", "--reason", name)
		for _, command := range []string{"gc status", "status", "user list", "node token list", "registry gc stats", "archive list"} {
			for _, format := range w.formats {
				w.exeunt(strings.Fields(command + " " + format)...)
			}
		}
		w.exeunt("gc", "resume")
		if i == 0 {
			w.formats = []string{""} // the rest is alike
		}
	}
	w.check("the server's log", s.Said())
}

// everyReport runs the commands about one object.
func (w *terminal) everyReport(object string) {
	w.Helper()
	for _, command := range []string{"why", "preview", "preview --cascade=foreground", "archive show", "archive show --request", "archive list", "restore --dry-run --with-cascade"} {
		w.turn++
		if testing.Short() && len(w.formats) == 1 && w.turn%3 != 0 { // after the first name, the commands take turns
			continue
		}
		for _, format := range w.formats {
			args := strings.Fields(command + " " + format)
			w.exeunt(append(args, object)...)
		}
	}
}

func (w *terminal) gone(name string) error {
	if a := w.h.Do(w.T, harness.Request{Method: "GET", Path: bindingPath(name)}); a.Code != 404 {
		return fmt.Errorf("%d %s", a.Code, a.Body)
	}
	return nil
}

// command finds the command that an output suggests.
func command(t *testing.T, output, pattern string) string {
	t.Helper()
	found := regexp.MustCompile("(?m)" + pattern).FindStringSubmatch(output)
	if found == nil {
		t.Fatalf("no line has %s:\n%s", pattern, output)
	}
	return found[1]
}

func shellQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// shell runs a command as a person would who copies it.
func (w *terminal) shell(line string) {
	w.Helper()
	programs, err := harness.PluginDir()
	if err != nil {
		w.Fatal(err)
	}
	dir := w.TempDir()
	cmd := exec.Command("bash", "-c", `kubectl() { "$KUBECTL" "$@"; }; `+line)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig, "HOME="+dir, "KUBECTL="+harness.KubectlPath(w), "PATH="+programs+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		w.Fatalf("%s: %v\n%s", line, err, out)
	}
	if _, err := os.Stat(dir + "/pwned"); err == nil {
		w.Fatalf("the shell ran a part of the name: %s", line)
	}
}
