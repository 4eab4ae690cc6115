package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/exeunt/exeunt/internal/task"
)

// reserve keeps space on the disk of a SQLite database for deletions, which write before they
// give space back. It is a file that is removed when less than its size is free. From then on what grows is
// refused (Full), and what shrinks works. It comes back when three times its size is free.
//
// Nothing of this is stored: after a crash at any point the free space tells the state again. A disk that
// fills up within one round refuses all writes for that long. docs/spec/disk.md has the cases.
type reserve struct {
	path string
	size int64
	log  *slog.Logger
	disk func(dir string) (size, free int64, err error)
	full atomic.Bool
}

// reserveRound is how often the free space is read.
const reserveRound = time.Second

// openReserve gives up the reserve if the disk is full, so that the database can be opened.
// It returns nil if there is nothing to keep: PostgreSQL has its own disk, and ephemeral data needs none.
func openReserve(c Config) *reserve {
	if c.Ephemeral || strings.Contains(c.Database, "://") {
		return nil
	}
	r := &reserve{path: c.Database + ".reserve", size: c.DiskReserve, log: c.Logger, disk: disk}
	if r.size <= 0 {
		_ = os.Remove(r.path) // of an earlier setting
		return nil
	}
	if size, _, err := disk(filepath.Dir(r.path)); err == nil {
		r.size = min(r.size, size/16)
	}
	r.look(false)
	return r
}

// Full reports whether the disk has no space for what grows.
func (r *reserve) Full() bool { return r != nil && r.full.Load() }

// advise says what to do about the error of a server whose disk has not even the reserve left.
func (r *reserve) advise(err error) error {
	if err == nil || !r.Full() {
		return err
	}
	return fmt.Errorf("%w: the disk of %s is full, and other files have taken the space that is kept for deletions: free %d MiB there (old logs, other programs; nothing in this directory), and start again",
		err, filepath.Dir(r.path), r.size>>20+1)
}

func (r *reserve) run(ctx context.Context) {
	for r.look(true); task.Sleep(ctx, reserveRound); {
		r.look(true)
	}
}

// look compares the free space with the size of the reserve. The first look, at the start, only frees space.
func (r *reserve) look(fill bool) {
	_, free, err := r.disk(filepath.Dir(r.path))
	if err != nil {
		return // the system does not tell; writes fail by themselves on a full disk
	}
	switch {
	case free < r.size:
		if err := os.Remove(r.path); err == nil {
			r.log.Warn("the disk is full: gave up the reserve for deletions", "bytes", r.size)
		}
		if !r.full.Swap(true) {
			r.log.Error("the disk is full: refusing what needs more space, until three times the reserve is free. Delete what is not needed, then run exeunt archive purge", "free", free, "reserve", r.size)
		}
	case fill && free >= 3*r.size:
		if info, err := os.Stat(r.path); err != nil || info.Size() < r.size {
			if err := r.make(); err != nil {
				r.log.Warn("cannot keep space for deletions on the disk", "file", r.path, "error", err)
				return
			}
		}
		if r.full.Swap(false) {
			r.log.Info("the disk has space again", "free", free)
		}
	}
}

// make writes the file. It writes bytes, and not a hole, which would reserve nothing.
func (r *reserve) make() error {
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	block := make([]byte, 1<<20)
	for left := r.size; left > 0 && err == nil; left -= int64(len(block)) {
		_, err = f.Write(block[:min(left, int64(len(block)))])
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(r.path))
	}
	return nil
}
