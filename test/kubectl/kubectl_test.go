// Package kubectl_test runs the real kubectl against the real server. Each
// script in testdata is one scenario, run on a server of its own on each engine,
// or on one of them with -short.
//
// The scripts are in the testscript language: "exec kubectl ..." must succeed
// ("! exec" must fail), "stdout" and "stderr" match the last command's output
// against a regular expression. The binary under test is on the PATH as exeunt
// and as the plugin kubectl-exeunt. Two commands are ours:
//
//	until REGEXP COMMAND...   run the command again until it succeeds and its output matches
//	gone COMMAND...           run the command again until it fails with NotFound
package kubectl_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/exeunt/exeunt/test/harness"
)

func TestScripts(t *testing.T) {
	kubectl := harness.KubectlPath(t)
	scripts, err := filepath.Glob("testdata/*")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]string{}
	for _, script := range scripts {
		for _, engine := range harness.Engines(script) {
			files[engine] = append(files[engine], script)
		}
	}
	for engine, files := range files {
		t.Run(engine, func(t *testing.T) {
			testscript.Run(t, testscript.Params{
				Files:               files,
				RequireExplicitExec: true,
				Setup:               func(env *testscript.Env) error { return setup(env, engine, kubectl) },
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"until": until,
					"gone":  gone,
				},
			})
		})
	}
}

func setup(env *testscript.Env, engine, kubectl string) error {
	t, ok := env.T().(testing.TB)
	if !ok {
		return errors.New("the script's T is no testing.TB")
	}
	s := harness.Start(t, engine)
	env.Setenv("KUBECONFIG", s.Kubeconfig)
	env.Setenv("HOME", env.WorkDir)
	for _, variable := range harness.Brief() {
		name, value, _ := strings.Cut(variable, "=")
		env.Setenv(name, value)
	}
	plugin, err := harness.PluginDir()
	if err != nil {
		return err
	}
	path := []string{filepath.Dir(kubectl), plugin, env.Getenv("PATH")}
	env.Setenv("PATH", strings.Join(path, string(os.PathListSeparator)))
	return nil
}

func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP COMMAND [ARGUMENT...]")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	ts.Check(harness.Poll(func() error {
		if err := ts.Exec(args[1], args[2:]...); err != nil {
			return err
		}
		if out := ts.ReadFile("stdout"); !pattern.MatchString(out) {
			return fmt.Errorf("no match for %q in %q", args[0], out)
		}
		return nil
	}))
}

func gone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: gone COMMAND [ARGUMENT...]")
	}
	ts.Check(harness.Poll(func() error {
		if err := ts.Exec(args[0], args[1:]...); err == nil {
			return errors.New("still there")
		}
		if text := ts.ReadFile("stderr"); !strings.Contains(text, "(NotFound)") {
			return fmt.Errorf("not a NotFound: %q", text)
		}
		return nil
	}))
}
