package sqldb

import (
	"context"
	"database/sql"
)

// Send is Read without a transaction. It implements Sender.
func (db *DB) Send(ctx context.Context, b *Batch) error { return db.Read(ctx, nil, b) }

// Read runs the queries of a batch, one after the other, in a transaction of
// Snapshot. With a nil tx each sees the newest state of the database.
func (db *DB) Read(ctx context.Context, tx *sql.Tx, b *Batch) error {
	for i := range b.items {
		if err := db.readOne(ctx, tx, &b.items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (db *DB) readOne(ctx context.Context, tx *sql.Tx, it *item) error {
	var rows *Rows
	var err error
	if tx == nil {
		rows, err = db.Query(ctx, it.statement, it.args...)
	} else {
		rows, err = db.QueryTx(ctx, tx, it.statement, it.args...)
	}
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // the error is in rows.Err
	for rows.Next() {
		if err := it.row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
