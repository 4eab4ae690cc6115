package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/sqldb"
)

// The statements of Belong.
const (
	insertDataID = `INSERT INTO data_id (one, id) VALUES (1, $1) ON CONFLICT (one) DO NOTHING`
	findDataID   = `SELECT id, stored FROM data_id WHERE one = 1`
	markDataID   = `UPDATE data_id SET stored = $2 WHERE id = $1`

	// sampleBlobs are blobs whose bytes must be in the blob store: the newest,
	// which a store from an older backup lacks, and the oldest.
	sampleBlobs = `
SELECT path FROM (SELECT path FROM blobs WHERE NOT small AND NOT damaged ORDER BY id DESC LIMIT 8) n
UNION
SELECT path FROM (SELECT path FROM blobs WHERE NOT small AND NOT damaged ORDER BY id LIMIT 8) o`

	// pathsInDoubt says whether the blob store may have bytes that belong to no
	// blob: of uploads, and of what is to be removed.
	pathsInDoubt = `SELECT EXISTS (SELECT 1 FROM blob_uploads) OR EXISTS (SELECT 1 FROM gc_unlink_queue)`
)

// Belong makes sure that a blob store belongs to a database, and refuses one
// that does not: a server would answer for blobs that it cannot hand out.
//
// Both have the same id. The database makes one up first and notes that the
// store has yet to get it; then the store gets it; then the database notes that
// it has. So of a store without an id it is always known whether it is new, or
// not the right one. docs/spec/registry-tracking.md lists the crashes.
//
// accept takes the store as it is, and gives it the id. What it lacks is then
// for Verify to find.
func Belong(ctx context.Context, db *sqldb.DB, blobs blobstore.Marked, accept bool, log *slog.Logger) error {
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
	case mark == id: // a crash came before the note
		return noteStored(ctx, db, id)
	case accept:
		log.Warn("the blob store was accepted as this database's own; look for lost bytes with exeunt registry verify", "id", id, "before", mark)
	case mark != "":
		return fmt.Errorf("it has the id %s and the database has %s: %w", mark, id, errForeign)
	case stored:
		return fmt.Errorf("it has no id, and once had %s: %w", id, errForeign)
	default:
		if err := plausible(ctx, db, blobs); err != nil {
			return err
		}
	}
	if err := blobs.SetMark(ctx, id, accept); err != nil && !errors.Is(err, blobstore.ErrMarked) {
		return err
	}
	// Another replica, or another database, may have been first: look who was.
	if mark, err = blobs.Mark(ctx); err != nil {
		return err
	}
	if mark != id {
		return fmt.Errorf("it has the id %s and the database has %s: %w", mark, id, errForeign)
	}
	return noteStored(ctx, db, id)
}

// SameData refuses a blob store that is known to belong to another database. It
// writes nothing.
func SameData(ctx context.Context, db *sqldb.DB, blobs blobstore.Marked) error {
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

// dataID is the database's id. The first start makes it; of two replicas that
// start at once, one does.
func dataID(ctx context.Context, db *sqldb.DB) (id string, stored bool, err error) {
	found, err := db.Row(ctx, findDataID, nil, &id, &stored)
	if err != nil || found {
		return id, stored, err
	}
	if err := db.Transact(ctx, func(tx *sqldb.Tx) error { return exec(ctx, tx, insertDataID, uuid.NewString()) }); err != nil {
		return "", false, err
	}
	if found, err = db.Row(ctx, findDataID, nil, &id, &stored); err == nil && !found {
		err = errors.New("it is not there after the insert")
	}
	return id, stored, err
}

func noteStored(ctx context.Context, db *sqldb.DB, id string) error {
	err := db.Transact(ctx, func(tx *sqldb.Tx) error { return exec(ctx, tx, markDataID, id, true) })
	if err != nil {
		return fmt.Errorf("note the blob store's id: %w", err)
	}
	return nil
}

// plausible decides about a store without an id, and a database whose id no store
// has: both are new, or of a version that had no ids. They belong together if
// the store has bytes of the database, or if neither has any.
func plausible(ctx context.Context, db *sqldb.DB, blobs blobstore.Marked) error {
	paths, err := samplePaths(ctx, db)
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

func samplePaths(ctx context.Context, db *sqldb.DB) (paths []string, err error) {
	rows, err := db.Query(ctx, sampleBlobs)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var path string
		if err := rows.Scan(&path); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, rows.Err()
}
