package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/exeunt/exeunt/backup"
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
		{[]string{"restore-backup", nowhere, "--data", t.TempDir()}, 1},
		{[]string{"restore-backup"}, exitUsage},
	} {
		root := newRoot()
		root.SetArgs(test.args)
		if err := root.ExecuteContext(t.Context()); err == nil || exitCode(err) != test.want {
			t.Errorf("%v: %v, exit code %d, want %d", test.args, err, exitCode(err), test.want)
		}
	}
	if code := exitCode(fmt.Errorf("verify: %w", codedError{backup.ErrDamaged, exitDamaged})); code != exitDamaged {
		t.Errorf("damage has the exit code %d", code)
	}
	if code := exitCode(errors.New("other")); code != 1 {
		t.Errorf("a failure has the exit code %d", code)
	}
}
