package server

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
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
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("another server uses the data directory %s; give this one its own with --data", dir)
		}
		return nil, fmt.Errorf("lock data directory: %w", err)
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
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("the data directory is open to other users (mode %#o), and cannot be closed: %w; give a directory of your own with --data, for instance %s",
			info.Mode().Perm(), err, filepath.Join(dir, "exeunt"))
	}
	log.Warn("the data directory was open to other users and is closed now", "directory", dir, "mode", fmt.Sprintf("%#o", info.Mode().Perm()), "now", "0700")
	return nil
}
