package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/exeunt/exeunt/backup"
	"github.com/exeunt/exeunt/deletion/expiry"
	"github.com/exeunt/exeunt/internal/lockfile"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/seal"
)

// openStore opens the store with the keys for its Secrets.
func openStore(ctx context.Context, c Config, db *sqldb.DB) (*store.Store, error) {
	keys, created, err := openKeys(ctx, c, db)
	if err != nil {
		return nil, err
	}
	st, err := store.Open(ctx, store.Options{
		DB: db, Logger: c.Logger, Keys: keys, GiveUpKey: c.GiveUpKey, EventTTL: c.EventTTL, Expiry: &expiry.Policies{}, CompactEvery: c.compactEvery, RingEvents: c.ringEvents,
		Archive: store.ArchiveOptions{For: c.ArchiveFor, MaxBytes: c.ArchiveMaxBytes, DropSecrets: c.ArchiveNoSecrets},
		History: store.HistoryOptions{For: c.HistoryFor, MaxBytes: c.HistoryMaxBytes, Exclude: c.HistoryExclude},
	})
	if wrong := (*seal.WrongKeysError)(nil); created && errors.As(err, &wrong) {
		// Another replica created its key first. This one has encrypted nothing, and its
		// file would block the right one.
		err = errors.Join(err, os.Remove(keys.Source()))
	}
	return st, err
}

// openKeys reads the keys. The first start on a database creates one. On a database
// with encrypted Secrets a missing key is never replaced.
func openKeys(ctx context.Context, c Config, db *sqldb.DB) (keys *seal.Keys, created bool, err error) {
	path := c.EncryptionConfig
	path = cmp.Or(path, filepath.Join(c.Data, "encryption.yaml"))
	keys, err = seal.Load(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return keys, false, err
	}
	if c.EncryptionConfig != "" {
		return nil, false, fmt.Errorf("%w: --encryption-provider-config names a file that is not there", err)
	}
	sealed, err := seal.Registered(ctx, db)
	if err != nil {
		return nil, false, err
	}
	sealed = slices.DeleteFunc(sealed, func(name string) bool { return name == c.GiveUpKey })
	if len(sealed) > 0 {
		return nil, false, fmt.Errorf("%s is missing, and this database is sealed with key %q. Nothing is lost: copy the file from the backup, "+
			"or from the data directory of another replica, to %s, and start again. If the key is lost for good: docs/keys.md, \"The key is lost\"", path, sealed[0], path)
	}
	keys, err = seal.Create(path)
	if err == nil {
		c.Logger.Info("made the key that seals Secrets: keep a copy, apart from the database", "file", path, "key", keys.Names()[0])
	}
	return keys, true, err
}

// restoreNoted is how long after a restore each start mentions it.
const restoreNoted = 24 * time.Hour

// checkRestored refuses a data directory in which a restore has not ended.
func checkRestored(data string) error {
	mark := filepath.Join(data, backup.RestoringFile)
	if _, err := os.Stat(mark); err != nil {
		return nil
	}
	return fmt.Errorf("%s exists: a restore into this directory has not ended. Run exeunt backup restore again, with the same flags", mark)
}

// noteRestore says that the database was restored from a backup: what clients know may be
// newer.
func noteRestore(ctx context.Context, db *sqldb.DB, revision int64, log *slog.Logger) {
	from, found, err := backup.RestoredFrom(ctx, db)
	if err != nil {
		log.Warn("it is not known whether the database was restored from a backup", "error", err)
	}
	if found && time.Since(from.At) < restoreNoted {
		log.Warn("the database was restored from a backup: objects may have gone back, and clients with a resource version from before get 410 and list again",
			"backup", from.ID, "restored", from.At.Format(time.RFC3339), "revision", revision)
	}
}

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
	return func() { _ = lockfile.Unlock(f) }, nil
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
	return func() { _ = lockfile.Unlock(f) }, nil
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
