//go:build clients

package clients

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/exeunt/exeunt/test/harness"
)

// TestCharts runs the scripts in testdata/charts with helm 3 and with helm 4.
func TestCharts(t *testing.T) {
	kubectl := filepath.Dir(harness.KubectlPath(t))
	for _, program := range []string{"helm", "helm4"} {
		helm, err := exec.LookPath(program)
		if err != nil {
			t.Fatalf("%v: run make long RUN=clients", err)
		}
		for _, engine := range []string{harness.SQLite, harness.Postgres} {
			t.Run(program+"/"+engine, func(t *testing.T) {
				testscript.Run(t, testscript.Params{
					Dir:                 "testdata/charts",
					RequireExplicitExec: true,
					Setup: func(env *testscript.Env) error {
						t, ok := env.T().(testing.TB)
						if !ok {
							return errors.New("the script's T is no testing.TB")
						}
						env.Setenv("KUBECONFIG", harness.Start(t, engine).Kubeconfig)
						env.Setenv("HOME", env.WorkDir)
						env.Setenv("HELM", helm)
						env.Setenv("PATH", kubectl+string(os.PathListSeparator)+env.Getenv("PATH"))
						return nil
					},
				})
			})
		}
	}
}
