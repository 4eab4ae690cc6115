package server

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// TestReserve: the reserve leaves when less than its size is free, and comes back with three times as much. In between the
// state stays.
func TestReserve(t *testing.T) {
	t.Parallel()
	var free int64
	var unknown error
	r := &reserve{path: filepath.Join(t.TempDir(), "reserve"), size: 3 << 20, log: slog.New(slog.DiscardHandler), disk: func(string) (int64, int64, error) {
		return 100 << 20, free, unknown
	}}
	for i, step := range []struct {
		free         int64
		start        bool
		unknown      error
		exists, full bool
	}{
		{free: 20 << 20, start: true}, // the start only gives space back
		{free: 20 << 20, exists: true},
		{free: 3 << 20, exists: true},
		{free: 1 << 20, unknown: errors.ErrUnsupported, exists: true},
		{free: 3<<20 - 1, full: true},
		{free: 0, full: true},
		{free: 9<<20 - 1, full: true}, // the space of the reserve itself is not enough
		{free: 9 << 20, exists: true},
		{free: 1 << 20, start: true, full: true}, // a start on a full disk
		{free: 9 << 20, exists: true},
	} {
		free, unknown = step.free, step.unknown
		r.look(!step.start)
		info, err := os.Stat(r.path)
		if (err == nil) != step.exists || r.Full() != step.full || err == nil && info.Size() != r.size {
			t.Errorf("step %d: the file is there: %t, full: %t, want %+v", i, err == nil, r.Full(), step)
		}
	}
	if (*reserve)(nil).Full() {
		t.Error("without a reserve the disk is full")
	}
	for name, c := range map[string]Config{"none": {Database: "x.db"}, "PostgreSQL": {Database: "postgres://x", DiskReserve: 1}} {
		if openReserve(c) != nil {
			t.Errorf("%s: there is a reserve", name)
		}
	}
}

// TestReserveWithoutSpace: a reserve that does not fit leaves nothing behind.
func TestReserveWithoutSpace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := &reserve{path: filepath.Join(dir, "missing", "reserve"), size: 1, log: slog.New(slog.DiscardHandler), disk: disk}
	r.full.Store(true)
	r.look(true)
	if !r.Full() {
		t.Error("the disk has space again, but no reserve")
	}
}
