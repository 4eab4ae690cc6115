package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServeRegistrySwitches: each flag of the registry's collection reaches it,
// and people are told what is switched off.
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
				t.Errorf("told what is switched off: %v\n%s", off, stats)
			}
		})
	}
}

// statsWith is what "registry gc stats" says of a server with a flag.
func statsWith(t *testing.T, flag string) string {
	t.Helper()
	data := t.TempDir()
	args := []string{"serve", "--data", data, "--listen", "127.0.0.1:0", "--registry-listen", "127.0.0.1:0"}
	args = append(args, strings.Fields(flag)...)
	server := exec.CommandContext(t.Context(), os.Args[0], args...)
	server.Env = append(os.Environ(), asProgram+"=1")
	var log strings.Builder
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Signal(syscall.SIGTERM) // it may have ended
		if err := server.Wait(); err != nil {
			t.Errorf("the server ended with %v:\n%s", err, log.String())
		}
	}()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		code, stdout, stderr := run(t, "registry", "gc", "stats", "--kubeconfig", filepath.Join(data, "kubeconfig"))
		// The delays are written when the collector begins.
		if code == 0 && (!strings.Contains(flag, "=tag_switch=") || strings.Contains(stdout, "36h")) {
			return stdout
		}
		if time.Now().After(end) {
			t.Fatalf("no answer: %s\n%s", stdout, stderr)
		}
	}
}
