package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

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
		DB: db, Logger: c.Logger, Keys: keys, GiveUpKey: c.GiveUpKey, EventTTL: c.EventTTL, CompactEvery: c.compactEvery, RingEvents: c.ringEvents,
		Archive: store.ArchiveOptions{For: c.ArchiveFor, MaxBytes: c.ArchiveMaxBytes, DropSecrets: c.ArchiveNoSecrets},
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
