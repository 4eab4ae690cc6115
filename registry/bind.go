package registry

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/sqldb"
)

// The statements of BindBlobStore.
const (
	insertDataID = `INSERT INTO data_id (one, id) VALUES (1, $1) ON CONFLICT (one) DO NOTHING`
	findDataID   = `SELECT id, stored FROM data_id WHERE one = 1`
	markDataID   = `UPDATE data_id SET stored = $2 WHERE id = $1`

	// sampleBlobs are blobs whose bytes must be in the blob store: the newest,
	// which are missing from a store restored from an older backup, and the
	// oldest.
	sampleBlobs = `
SELECT path FROM (SELECT path FROM blobs WHERE NOT small AND NOT damaged ORDER BY id DESC LIMIT 8) n
UNION
SELECT path FROM (SELECT path FROM blobs WHERE NOT small AND NOT damaged ORDER BY id LIMIT 8) o`

	// pathsInDoubt reports whether the blob store may hold bytes without a blob: of
	// uploads, or waiting to be unlinked.
	pathsInDoubt = `SELECT EXISTS (SELECT 1 FROM blob_uploads) OR EXISTS (SELECT 1 FROM gc_unlink_queue)`
)

// BindBlobStore checks that a blob store belongs to a database, and refuses one that
// does not: the server would list blobs whose bytes it does not have.
//
// Both hold the same id. The database creates it and records that the store does
// not have it yet; the store gets the id; the database records that. So a store
// without an id is known to be either new or the wrong one.
// docs/spec/registry-tracking.md lists the crashes.
//
// accept takes the store as it is and writes the id to it. Verify then finds the
// missing bytes.
func BindBlobStore(ctx context.Context, db *sqldb.DB, blobs blobstore.Marked, accept bool, log *slog.Logger) error {
	id, stored, err := dataID(ctx, db)
	if err != nil {
		return fmt.Errorf("read the database's id: %w", err)
	}
	mark, err := blobs.Mark(ctx)
	if err != nil {
		return err
	}
	switch {
	case mark == id && stored:
		return nil
	case mark == id: // a crash came before noteStored
		return noteStored(ctx, db, id)
	case mark == blobstore.MovingMark+id && !accept:
		return errors.New("its bytes are being moved to another place, or have been: name both, as s3://…,from=DIRECTORY, until the server says that all are there; then name the new one")
	case accept:
		log.Warn("the blob store was accepted as this database's own; look for lost bytes with exeunt registry verify", "id", id, "before", mark)
	case mark != "":
		return fmt.Errorf("it has the id %s and the database has %s: %w", mark, id, errForeign)
	case stored:
		return fmt.Errorf("it has no id, and once had %s: %w", id, errForeign)
	default:
		if err := checkUnmarked(ctx, db, blobs); err != nil {
			return err
		}
	}
	if err := blobs.SetMark(ctx, id, accept); err != nil && !errors.Is(err, blobstore.ErrMarked) {
		return err
	}
	// Another replica, or another database, may have written its id first: read
	// it again.
	if mark, err = blobs.Mark(ctx); err != nil {
		return err
	}
	if mark != id {
		return fmt.Errorf("it has the id %s and the database has %s: %w", mark, id, errForeign)
	}
	return noteStored(ctx, db, id)
}

// CheckBlobStore refuses a blob store with the id of another database. It writes
// nothing.
func CheckBlobStore(ctx context.Context, db *sqldb.DB, blobs blobstore.Marked) error {
	var id string
	var stored bool
	if found, err := db.Row(ctx, findDataID, nil, &id, &stored); err != nil || !found {
		return err
	}
	mark, err := blobs.Mark(ctx)
	if err == nil && mark != "" && mark != id {
		err = fmt.Errorf("the blob store has the id %s and the database has %s: %w", mark, id, errForeign)
	}
	return err
}

var errForeign = errors.New("this blob store is not the one of this database")

// dataID returns the database's id. The first start creates it; if two replicas
// start at once, one of them does.
func dataID(ctx context.Context, db *sqldb.DB) (id string, stored bool, err error) {
	found, err := db.Row(ctx, findDataID, nil, &id, &stored)
	if err != nil || found {
		return id, stored, err
	}
	if err := db.Transact(ctx, func(tx *sqldb.Tx) error { return tx.Exec(ctx, insertDataID, uuid.NewString()) }); err != nil {
		return "", false, err
	}
	if found, err = db.Row(ctx, findDataID, nil, &id, &stored); err == nil && !found {
		err = errors.New("the row is missing after the insert")
	}
	return id, stored, err
}

func noteStored(ctx context.Context, db *sqldb.DB, id string) error {
	err := db.Transact(ctx, func(tx *sqldb.Tx) error { return tx.Exec(ctx, markDataID, id, true) })
	if err != nil {
		return fmt.Errorf("note the blob store's id: %w", err)
	}
	return nil
}

// checkUnmarked checks a store without an id against a database that has not given
// its id to a store: both are new, or older than the ids. They belong together
// if the store has bytes of the database, or if both are empty.
func checkUnmarked(ctx context.Context, db *sqldb.DB, blobs blobstore.Marked) error {
	paths, err := sqldb.Column[string](ctx, db, sampleBlobs)
	if err != nil {
		return fmt.Errorf("look for blobs in the database: %w", err)
	}
	for _, path := range paths {
		_, err := blobs.Stat(ctx, path)
		if err == nil {
			return nil
		}
		if !errors.Is(err, blobstore.ErrNotFound) {
			return err
		}
	}
	if len(paths) > 0 {
		return fmt.Errorf("it has none of the blobs that were looked for (%d, for instance %s): %w", len(paths), paths[0], errForeign)
	}
	used, err := blobs.Used(ctx)
	if err != nil || !used {
		return err
	}
	var doubt bool
	if _, err := db.Row(ctx, pathsInDoubt, nil, &doubt); err != nil {
		return fmt.Errorf("look for uploads in the database: %w", err)
	}
	if doubt {
		return nil
	}
	return fmt.Errorf("it has bytes, and the database has no blobs: %w", errForeign)
}

// StoredBlob is a blob whose bytes are in the blob store.
type StoredBlob struct {
	Digest string `json:"digest"`
	Path   string `json:"path"` // in the blob store
	Size   int64  `json:"size"`
}

// The statements of backups. The bytes of small blobs are in the database. Bytes of
// damaged blobs are not served, so a backup need not have them.
const (
	listStored    = `SELECT digest, path, size FROM blobs WHERE NOT small AND NOT damaged ORDER BY id`
	forgetUploads = `DELETE FROM blob_uploads`
)

// StoredBlobs lists the blobs whose bytes a backup must have, and the id of the blob
// store; empty means that the database has never had one.
func StoredBlobs(ctx context.Context, from sqldb.Sender) (blobs []StoredBlob, id string, err error) {
	err = sqldb.Each(ctx, from, sqldb.Into(&blobs, func(b *StoredBlob) []any { return []any{&b.Digest, &b.Path, &b.Size} }), listStored)
	if err == nil {
		_, err = sqldb.First(ctx, from, []any{&id, new(bool)}, findDataID)
	}
	if err != nil {
		return nil, "", fmt.Errorf("list the blobs: %w", err)
	}
	return blobs, id, nil
}

// ForgetUploads removes the uploads of a restored database: a backup does not have
// their bytes, so clients begin them again.
func ForgetUploads(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, forgetUploads); err != nil {
		return fmt.Errorf("forget unfinished uploads: %w", err)
	}
	return nil
}
