package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/exeunt/exeunt/server"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestServeRegistrySwitches: each flag of the registry's collection takes effect, and
// "registry gc stats" shows what is off.
func TestServeRegistrySwitches(t *testing.T) {
	for _, test := range []struct{ flag, want string }{
		{"", "manifests: 0 queued"},
		{"--registry-collect-manifests=false", "manifests are not collected"},
		{"--registry-collect-blobs=false", "blobs are not collected"},
		{"--registry-collect-signatures=false", "tags that cosign made for an image stay"},
		{"--enable-garbage-collector=false", "this server does not collect by itself"},
		{"--enable-garbage-collector=false --registry-review-after=tag_switch=36h", "tag_switch             36h0m0s"},
		{"--registry-review-after=tag_switch=36h", "tag_switch             36h0m0s"},
	} {
		t.Run(test.flag, func(t *testing.T) {
			t.Parallel()
			stats := statsWith(t, test.flag)
			if !strings.Contains(stats, test.want) {
				t.Errorf("%s; want %q in it", stats, test.want)
			}
			if off := strings.Contains(stats, "not collected") || strings.Contains(stats, "cosign") || strings.Contains(stats, "does not collect"); off != strings.Contains(test.flag, "collect") {
				t.Errorf("the output says that something is off: %v\n%s", off, stats)
			}
		})
	}
}

// statsWith returns the output of "registry gc stats" for a server with a flag.
func statsWith(t *testing.T, flag string) string {
	t.Helper()
	data := t.TempDir()
	args := []string{"serve", "-o", "json", "--data", data, "--listen", "127.0.0.1:0", "--registry-listen", "127.0.0.1:0"}
	args = append(args, strings.Fields(flag)...)
	process := exec.CommandContext(t.Context(), os.Args[0], args...)
	process.Env = append(os.Environ(), asProgram+"=1")
	var log, printed strings.Builder
	process.Stdout, process.Stderr = &printed, &log
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = process.Process.Signal(syscall.SIGTERM) // it may have ended
		if err := process.Wait(); err != nil {
			t.Errorf("the server ended with %v:\n%s", err, log.String())
		}
		checkStarted(t, printed.String(), data)
	}()
	var answer string
	dbtest.Until(t, "the collector has begun", func() error {
		code, stdout, stderr := run(t, "registry", "gc", "stats", "--kubeconfig", filepath.Join(data, "kubeconfig"))
		// The delays are written when the collector begins.
		if code != 0 || strings.Contains(flag, "=tag_switch=") && !strings.Contains(stdout, "36h") {
			return fmt.Errorf("no answer: %s\n%s", stdout, stderr)
		}
		answer = stdout
		return nil
	})
	return answer
}

// checkStarted: with -o json the server prints one line, with its addresses.
func checkStarted(t *testing.T, printed, data string) {
	t.Helper()
	var a server.Addresses
	if err := json.Unmarshal([]byte(printed), &a); err != nil || strings.Count(printed, "\n") != 1 {
		t.Errorf("serve -o json printed %q (%v); want one line of JSON", printed, err)
	}
	if !strings.HasPrefix(a.API, "https://127.0.0.1:") || !strings.HasPrefix(a.Registry, "http://127.0.0.1:") || a.Kubeconfig != filepath.Join(data, "kubeconfig") || a.Version == "" {
		t.Errorf("serve -o json printed %s", printed)
	}
}
