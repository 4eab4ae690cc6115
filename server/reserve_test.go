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
	r := &reserve{path: filepath.Join(t.TempDir(), "exeunt.db.reserve"), size: 3 << 20, log: slog.New(slog.DiscardHandler), disk: func(string) (int64, int64, error) {
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
	if openReserve(Config{Database: "postgres://x", DiskReserve: 1}) != nil {
		t.Error("there is a reserve for PostgreSQL")
	}
}

// TestReserveIsOfOneDatabase: the servers of two databases in one directory keep two reserves, files of others
// stay, and a server that shall keep none removes its own.
func TestReserveIsOfOneDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	others := filepath.Join(dir, "reserve")
	if err := os.WriteFile(others, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	configs := []Config{{Database: filepath.Join(dir, "a.db"), DiskReserve: 1 << 20}, {Database: filepath.Join(dir, "b.db"), DiskReserve: 2 << 20}}
	for _, c := range configs {
		c.Logger = slog.New(slog.DiscardHandler)
		openReserve(c).look(true)
	}
	for _, c := range configs {
		if info, err := os.Stat(c.Database + ".reserve"); err != nil || info.Size() != c.DiskReserve {
			t.Errorf("%s has another reserve: %v", c.Database, err)
		}
		if c.DiskReserve = 0; openReserve(c) != nil {
			t.Error("there is a reserve without size")
		}
		if _, err := os.Stat(c.Database + ".reserve"); err == nil {
			t.Errorf("the reserve of %s stays, and is not kept", c.Database)
		}
	}
	if text, err := os.ReadFile(others); string(text) != "theirs" {
		t.Errorf("the file of another program has %q, %v", text, err)
	}
}

// TestReserveWithoutSpace: a reserve that does not fit leaves nothing behind.
func TestReserveWithoutSpace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	device := filepath.Join(dir, "device")
	if err := os.Symlink("/dev/full", device); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "missing", "reserve"), device} {
		r := &reserve{path: path, size: 1, log: slog.New(slog.DiscardHandler), disk: disk}
		r.full.Store(true)
		r.look(true)
		if _, err := os.Lstat(path); !r.Full() || err == nil {
			t.Errorf("%s: full: %t, and the file: %v", path, r.Full(), err)
		}
	}
}
