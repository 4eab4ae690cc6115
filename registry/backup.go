package registry

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/exeunt/exeunt/sqldb"
)

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
func StoredBlobs(ctx context.Context, q sqldb.Querier) (blobs []StoredBlob, id string, err error) {
	err = eachRow(ctx, q, listStored, func(rows *sql.Rows) error {
		var b StoredBlob
		err := rows.Scan(&b.Digest, &b.Path, &b.Size)
		blobs = append(blobs, b)
		return err
	})
	if err == nil {
		err = eachRow(ctx, q, findDataID, func(rows *sql.Rows) error {
			var stored bool
			return rows.Scan(&id, &stored)
		})
	}
	if err != nil {
		return nil, "", fmt.Errorf("list the blobs: %w", err)
	}
	return blobs, id, nil
}

func eachRow(ctx context.Context, q sqldb.Querier, statement string, fn func(*sql.Rows) error) (err error) {
	rows, err := q.QueryContext(ctx, statement)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// ForgetUploads removes the uploads of a restored database: a backup does not have
// their bytes, so clients begin them again.
func ForgetUploads(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, forgetUploads); err != nil {
		return fmt.Errorf("forget unfinished uploads: %w", err)
	}
	return nil
}
