package server

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	"github.com/exeunt/exeunt/internal/lockfile"
)

// lockData creates the data directory, if needed, and locks it against a second
// server. The kernel releases the lock when the process ends.
func lockData(dir string, log *slog.Logger) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	if err := restrictDirectory(dir, log); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	locked, err := lockfile.TryLock(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock data directory: %w", err), f.Close())
	}
	if !locked {
		_ = f.Close()
		return nil, fmt.Errorf("another server uses the data directory %s; give this one its own with --data", dir)
	}
	return func() { _ = f.Close() }, nil
}

// LockData locks an existing data directory against servers, for a command that must be
// alone.
func LockData(dir string) (unlock func(), err error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	locked, err := lockfile.TryLock(f)
	if err == nil && !locked {
		err = fmt.Errorf("a server uses the data directory %s: stop it first", dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// restrictDirectory removes the permissions of other users from the data directory,
// which holds keys. It refuses a directory that belongs to another user.
func restrictDirectory(dir string, log *slog.Logger) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at data directory: %w", err)
	}
	if info.Mode().Perm()&0o077 == 0 || runtime.GOOS == "windows" { // Windows has no such bits
		return nil
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("the data directory is open to other users (mode %#o), and cannot be closed: %w; give a directory of your own with --data, for instance %s",
			info.Mode().Perm(), err, filepath.Join(dir, "exeunt"))
	}
	log.Warn("the data directory was open to other users and is closed now", "directory", dir, "mode", fmt.Sprintf("%#o", info.Mode().Perm()), "now", "0700")
	return nil
}
