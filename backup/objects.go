package backup

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/seal"
)

// Objects calls visit with the objects of a backup that want accepts, in plain text.
func (t *Target) Objects(ctx context.Context, m Manifest, want func(object.Key) bool, visit func(object.Object) error) (err error) {
	keys := &seal.Keys{}
	if file, err := m.file(keyFolder + encryptionFile); err == nil {
		content, err := t.read(ctx, m, file)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(content)
		if err = errors.Join(err, content.Close()); err != nil {
			return err
		}
		if keys, err = seal.Parse(text, "the backup"); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", stagingPrefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	copied, err := sqldb.OpenCopied(sqldb.Engine(m.Engine), dir, func(name string) (io.ReadCloser, error) {
		file, err := m.file(databaseFolder + name)
		if err != nil {
			return nil, err
		}
		return t.read(ctx, m, file)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, copied.Close()) }()
	return store.Copied(ctx, copied.Rows, keys, want, visit)
}
