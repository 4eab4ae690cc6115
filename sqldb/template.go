package sqldb

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/exeunt/exeunt/sqldb/schema"
)

// A server that never waits for the disk (Limits.NoSync) is started for each test, and takes a
// fifth of its start to make the schema: SQLite reads its table of the schema again for each
// statement. So the first such server keeps its new file, before anything else is written to it, in
// the user's cache, and the others copy it: the template. All that it has is the schema.

// templatePath returns the path of the template, which has the hash of what made it. It fails if there is no place
// that is the user's alone.
func templatePath() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	_, _ = io.WriteString(hash, schema.Fingerprint()) // a hash takes everything
	if info, ok := debug.ReadBuildInfo(); ok {
		_, _ = io.WriteString(hash, info.Main.Version) // is in the list of the steps
	}
	return filepath.Join(cache, "exeunt", fmt.Sprintf("schema-%.16x.db", hash.Sum(nil))), nil
}

// copyTemplate makes an empty file a copy of the template, if there is one.
func copyTemplate(path string) (copied bool) {
	info, err := os.Stat(path)
	if _, log := os.Stat(path + "-wal"); err != nil || info.Size() > 0 || !os.IsNotExist(log) {
		return false
	}
	from, err := templatePath()
	if err != nil {
		return false
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return false
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		_ = os.Truncate(path, 0) // SQLite reports what is wrong with the disk
		return false
	}
	return true
}

// templateFor is how long a template of other versions stays.
const templateFor = 30 * 24 * time.Hour

// keepTemplate makes the database, which has been made just now, the template. Without one the
// next start takes longer, so an error has no effect.
func (db *DB) keepTemplate(ctx context.Context) {
	path, err := templatePath()
	if err == nil {
		err = db.Checkpoint(ctx)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err != nil {
		return
	}
	if err := copyWhole(db.path, path); err != nil {
		return
	}
	others, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "schema-*")) // the pattern is good
	for _, other := range others {
		if info, err := os.Stat(other); err == nil && time.Since(info.ModTime()) > templateFor {
			_ = os.Remove(other)
		}
	}
}

// copyWhole copies a file. Other processes may do the same at once: each writes a file of its own, which gets its
// name when it is whole, also after a power cut.
func copyWhole(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(to), filepath.Base(to)+"-*")
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), to)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}
