//go:build diff

package diff

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestWire runs every script of requests, watches and commands on both servers.
func TestWire(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	ours, theirs := startBoth(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) { runBoth(t, name, readScript(t, file), ours, theirs) })
	}
}

// runBoth runs the steps on both servers at once, and compares.
func runBoth(t *testing.T, name string, steps []step, ours, theirs *server) (a, b []any) {
	t.Helper()
	var wait sync.WaitGroup
	var errOurs, errTheirs error
	wait.Go(func() { a, errOurs = ours.run(t.Context(), steps) })
	wait.Go(func() { b, errTheirs = theirs.run(t.Context(), steps) })
	wait.Wait()
	if errOurs != nil || errTheirs != nil {
		t.Fatalf("ours: %v\ntheirs: %v", errOurs, errTheirs)
	}
	judge(t, name, steps, a, b)
	return a, b
}
