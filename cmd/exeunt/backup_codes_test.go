package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/backup"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestBackupCodes: cron can tell wrong flags from failures and from damage.
func TestBackupCodes(t *testing.T) {
	t.Parallel()
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for _, test := range []struct {
		args []string
		want int
	}{
		{[]string{"backup", "create"}, exitUsage},
		{[]string{"backup", "create", nowhere, "--unknown"}, exitUsage},
		{[]string{"backup", "prune", nowhere}, exitUsage},
		{[]string{"backup", "list", nowhere}, 1},
		{[]string{"backup", "verify", nowhere}, 1},
		{[]string{"backup", "restore", nowhere, "--data", t.TempDir()}, 1},
		{[]string{"backup", "restore"}, exitUsage},
	} {
		root := newRoot()
		root.SetArgs(test.args)
		if err := root.ExecuteContext(t.Context()); err == nil || exitCode(err) != test.want {
			t.Errorf("%v: %v, exit code %d, want %d", test.args, err, exitCode(err), test.want)
		}
	}
	if code := exitCode(errors.New("other")); code != 1 {
		t.Errorf("a failure has the exit code %d", code)
	}
}

// TestBackupDamaged: a backup that has lost bytes has its own exit code, from each command
// that reads them. A new backup beside it is whole: a warning and exit code 0.
func TestBackupDamaged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "data", "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	target, places := filepath.Join(dir, "target"), []string{"--data", filepath.Join(dir, "data"), "--database", dbtest.Migrated(t, sqldb.SQLite)}
	code := func(args ...string) int {
		root := newRoot()
		root.SetArgs(args)
		root.SetOut(io.Discard)
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Logf("%v: %v", args, err)
			return exitCode(err)
		}
		return 0
	}
	if got := code(append([]string{"backup", "create", target}, places...)...); got != 0 {
		t.Fatalf("backup create: exit code %d", got)
	}
	if got := code("backup", "verify", target); got != 0 {
		t.Errorf("backup verify of a whole backup: exit code %d", got)
	}
	opened, err := backup.OpenTarget(t.Context(), target, false)
	if err != nil {
		t.Fatal(err)
	}
	m, err := opened.Find(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Files {
		if err := os.Truncate(filepath.Join(target, f.Path), f.Size-1); err != nil {
			t.Fatal(err)
		}
	}
	var warned bytes.Buffer
	root := newRoot()
	root.SetArgs(append([]string{"backup", "create", target, "--keep", "2"}, places...))
	root.SetOut(io.Discard)
	root.SetErr(&warned)
	if err := root.ExecuteContext(t.Context()); err != nil || !strings.Contains(warned.String(), "this backup is whole, but another one is not") {
		t.Errorf("backup create beside a damaged backup: %v, %q", err, warned.String())
	}
	if got := code("backup", "restore", target, "--data", filepath.Join(dir, "newest")); got != 0 {
		t.Errorf("restore of the newest backup: exit code %d", got)
	}
	for _, args := range [][]string{
		{"backup", "verify", target},
		{"backup", "verify", target, "--quick"},
		{"backup", "restore", target, "--backup", m.ID, "--data", filepath.Join(dir, "restored")},
	} {
		if got := code(args...); got != exitDamaged {
			t.Errorf("%v of a damaged backup: exit code %d, want %d", args, got, exitDamaged)
		}
	}
}
