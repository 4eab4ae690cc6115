package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/sqldb"
)

// gcBatch bounds what one transaction of the collector's own steps changes.
const gcBatch = 200

// RemoveAbandoned removes the uploads that have given no sign of life for too
// long, and returns how many. Their bytes are left to the unlinker by a
// trigger. The index on the last sign of life is their queue: a queue of its
// own would cost every upload two more writes.
func (c *Collector) RemoveAbandoned(ctx context.Context) (removed int, err error) {
	for {
		now := c.options.Now()
		cutoff := now.Add(-c.options.UploadExpiry).UnixMilli()
		var one int64
		found, err := c.db.Row(ctx, isAbandoned, []any{cutoff, now.UnixMilli()}, &one)
		if err != nil || !found {
			return removed, wrap("look for abandoned uploads", err)
		}
		n := 0
		var b sqldb.Batch
		b.Query(func(row sqldb.Row) error { n++; return row.Scan(new(string)) },
			c.sql.removeAbandoned, cutoff, now.UnixMilli(), gcBatch)
		if err := c.transact(ctx, func(tx *countingTx) error { n = 0; return tx.Send(ctx, &b) }); err != nil {
			return removed, wrap("remove abandoned uploads", err)
		}
		removed += n
		c.metrics.uploads.Add(float64(n))
		if n < gcBatch {
			return removed, nil
		}
	}
}

// removeSome runs a statement that removes some rows and returns a number for
// each, and says how many they were.
func (c *Collector) removeSome(ctx context.Context, statement string, args ...any) (n int, err error) {
	err = c.transact(ctx, func(tx *countingTx) error {
		n = 0
		var b sqldb.Batch
		b.Query(func(row sqldb.Row) error { n++; return row.Scan(new(int64)) }, statement, args...)
		return tx.Send(ctx, &b)
	})
	return n, err
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Sweep leaves to the unlinker what the blob store holds and no row names, if
// it was last written before uploads expire, and returns how many paths that
// were. There should be none: a row is written before the first byte. It is
// the safety net, for a database that was restored from a backup and for
// whatever nobody has thought of.
func (c *Collector) Sweep(ctx context.Context) (found int, err error) {
	walker, ok := c.blobs.(blobstore.Walker)
	if !ok {
		return 0, errors.New("sweep the blob store: it cannot be walked")
	}
	cutoff := c.options.Now().Add(-c.options.UploadExpiry)
	var batch []sweptPath
	err = walker.Walk(ctx, func(path string, size int64, written time.Time) error {
		if written.After(cutoff) {
			return nil
		}
		if batch = append(batch, sweptPath{path, size}); len(batch) < gcBatch {
			return nil
		}
		n, err := c.enqueueUnknown(ctx, batch)
		found += n
		batch = batch[:0]
		return err
	})
	if err == nil {
		var n int
		n, err = c.enqueueUnknown(ctx, batch)
		found += n
	}
	return found, wrap("sweep the blob store", err)
}

type sweptPath struct {
	path string
	size int64
}

// enqueueUnknown queues those of some paths that no row names.
func (c *Collector) enqueueUnknown(ctx context.Context, batch []sweptPath) (n int, err error) {
	unknown := batch[:0:0]
	for _, p := range batch { // mostly there is none, and then nothing is written
		var known bool
		var size int64
		if _, err := c.db.Row(ctx, pathKnown, []any{p.path}, &known, &size); err != nil {
			return 0, err
		}
		if !known {
			unknown = append(unknown, p)
		}
	}
	if len(unknown) == 0 {
		return 0, nil
	}
	now := c.options.Now().UnixMilli()
	err = c.transact(ctx, func(tx *countingTx) error {
		n = 0
		var b sqldb.Batch
		for _, p := range unknown {
			b.Query(func(row sqldb.Row) error { n++; return row.Scan(new(string)) }, enqueueUnknown, p.path, p.size, now)
		}
		return tx.Send(ctx, &b)
	})
	return n, err
}
