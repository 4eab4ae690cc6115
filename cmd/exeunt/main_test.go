package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// asProgram is the environment variable that makes the test binary run main.
const asProgram = "EXEUNT_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	dbtest.Main(m)
}

// run runs the program in a directory of its own.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "KUBECONFIG=/nowhere")
	cmd.Dir = t.TempDir()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("exeunt %v: %v", args, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}

// each visits every command that the help shows.
func each(root *cobra.Command, visit func(*cobra.Command)) {
	visit(root)
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			each(c, visit)
		}
	}
}

// TestHelp: each command's help says what it is for and names every flag, and
// each flag says what it does.
func TestHelp(t *testing.T) {
	each(newRoot(), func(c *cobra.Command) {
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		t.Run(c.CommandPath(), func(t *testing.T) {
			var out bytes.Buffer
			root := newRoot()
			root.SetOut(&out)
			root.SetArgs(args)
			if err := root.Execute(); err != nil {
				t.Fatal(err)
			}
			if c.Short == "" || strings.HasSuffix(c.Short, ".") {
				t.Errorf("short description is %q", c.Short)
			}
			for _, sub := range c.Commands() {
				if sub.IsAvailableCommand() && !strings.Contains(out.String(), sub.Short) {
					t.Errorf("help does not list %s", sub.Name())
				}
			}
			for _, line := range strings.FieldsFunc(c.LocalFlags().FlagUsages(), func(r rune) bool { return r == '\n' }) {
				// Name and text are columns, with two blanks or more between.
				columns := strings.SplitN(strings.TrimSpace(line), "   ", 2)
				if !strings.Contains(out.String(), strings.TrimSpace(line)) || len(columns) < 2 || strings.TrimSpace(columns[1]) == "" {
					t.Errorf("help does not explain %q", line)
				}
			}
		})
	})
}

// TestMistakes: each wrong command line exits with 1, prints nothing to the standard
// output, and one line to the standard error that names the mistake.
func TestMistakes(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"nonsense"}, `unknown command "nonsense"`},
		{[]string{"registry", "nonsense"}, `unknown command "nonsense" for "exeunt registry"`},
		{[]string{"registry", "gc", "stat"}, `unknown command "stat" for "exeunt registry gc"`},
		{[]string{"finalizer", "list"}, `unknown command "list" for "exeunt finalizer"`},
		{[]string{"--nonsense"}, "unknown flag: --nonsense"},
		{[]string{"serve", "--nonsense"}, "unknown flag: --nonsense"},
		{[]string{"serve", "argument"}, `"argument"`},
		{[]string{"serve", "--log-level", "loud"}, "--log-level"},
		{[]string{"serve", "--enable-garbage-collector=perhaps"}, "enable-garbage-collector"},
		{[]string{"serve", "--log-level", "ERROR", "--registry-listen=", "--listen", "nonsense"}, `--listen "nonsense": want HOST:PORT`},
		{[]string{"serve", "--data"}, "--data"},
		{[]string{"serve", "--registry-review-after", "tag_delete=soon"}, `tag_delete="soon" is not a duration`},
		{[]string{"serve", "--log-level", "ERROR", "--registry-listen", "127.0.0.1:0", "--registry-review-after", "nonsense=1h"}, `unknown event "nonsense"`},
		{[]string{"finalizer", "remove", "cm/a"}, "name the object and its finalizer: KIND/NAME FINALIZER"},
		{[]string{"finalizer", "remove", "cm", "a", "--reason", "x"}, "name the object and its finalizer: KIND/NAME FINALIZER"},
		{[]string{"finalizer", "remove", "cm/a", "cm/b", "f", "--reason", "x"}, "cm/a and cm/b: name one object"},
		{[]string{"why"}, "name an object: KIND/NAME"},
		{[]string{"preview", "web"}, `"web" is not KIND/NAME: say deployment/web, or deployment web`},
		{[]string{"preview", "cm", "cm/web"}, `"cm/web" is not the name of a cm`},
		{[]string{"why", "cm/a"}, `$KUBECONFIG names /nowhere, which does not exist; "exeunt serve" writes one to data/kubeconfig`},
		{[]string{"gc", "status"}, "$KUBECONFIG names /nowhere"},
		{[]string{"registry", "gc", "stats"}, "$KUBECONFIG names /nowhere"},
		{[]string{"node", "token", "list"}, "$KUBECONFIG names /nowhere"},
		{[]string{"archive", "list"}, "$KUBECONFIG names /nowhere"},
		{[]string{"archive", "list", "cm/a", "--kind", "cm"}, "one of them is enough"},
		{[]string{"restore", "cm", "a"}, "$KUBECONFIG names /nowhere"},
		{[]string{"bench", "get"}, "$KUBECONFIG names /nowhere"},
		{[]string{"finalizer", "remove", "cm/a", "f"}, "--reason: say why"},
		{[]string{"serve", "-o", "name"}, `-o "name": want json, yaml, or leave it out for text`},
		{[]string{"node", "join", "-o", "wide"}, `-o "wide": want json, yaml, name`},
		{[]string{"registry", "import", "/nowhere", "-o", "wide"}, `-o "wide": want json, yaml, name`},
		{[]string{"archive", "purge", "--all", "-o", "wide"}, `-o "wide": want json, yaml, name`},
		{[]string{"bench", "registry", "http://127.0.0.1:1"}, "would leave the empty repository bench/images behind"},
		{[]string{"bench", "nonsense"}, `no workload "nonsense"`},
		{[]string{"bench", "--clients", "many"}, "--clients"},
		{[]string{"bench", "get", "--kubeconfig", "/nowhere/kubeconfig"}, "--kubeconfig names /nowhere/kubeconfig, which does not exist"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			code, stdout, stderr := run(t, test.args...)
			if code != 1 || stdout != "" || !strings.HasPrefix(stderr, "exeunt: ") || !strings.Contains(stderr, test.want) {
				t.Errorf("exit %d, stdout %q, stderr %q; want 1 and %q", code, stdout, stderr, test.want)
			}
			if lines := strings.Count(stderr, "\n"); lines != 1 {
				t.Errorf("%d lines: %s", lines, stderr)
			}
		})
	}
}

// TestHelpIsNoMistake: without a subcommand, a group prints its help and exits with 0.
func TestHelpIsNoMistake(t *testing.T) {
	for want, args := range map[string][]string{"serve": nil, "verify": {"registry"}, "dry-run": {"registry", "gc"}} {
		code, stdout, _ := run(t, args...)
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%v: exit %d: %s", args, code, stdout)
		}
	}
}
