package store

import (
	"context"
	"database/sql"
	"fmt"
)

// restoredGap is how far the revisions of a restored database jump. The server that
// the backup was taken from has issued revisions after it, which clients still hold:
// fewer than this, or they could meet the same number with another content. At 30,000
// writes a second the gap lasts for a year.
const restoredGap = 1_000_000_000_000

// Restored prepares a database that was copied earlier, before a server opens it. The
// log is compacted to its end and the revision jumps by restoredGap, so a list or watch
// from any revision that was issued before gets Expired, and no revision is issued
// twice. It returns the new revision.
func Restored(ctx context.Context, tx *sql.Tx) (int64, error) {
	var current, compacted int64
	if err := tx.QueryRowContext(ctx, readRevision).Scan(&current, &compacted); err != nil {
		return 0, fmt.Errorf("raise the revision: %w", err)
	}
	for _, statement := range []string{compactBodies, compactTombstones} {
		if _, err := tx.ExecContext(ctx, statement, compacted, current); err != nil {
			return 0, fmt.Errorf("compact the restored log: %w", err)
		}
	}
	next := current + restoredGap
	if _, err := tx.ExecContext(ctx, raiseRevision, next); err != nil {
		return 0, fmt.Errorf("raise the revision: %w", err)
	}
	return next, nil
}

const raiseRevision = `UPDATE revision SET current = $1, compacted = $1`
