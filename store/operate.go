package store

import (
	"context"
	"fmt"

	"github.com/exeunt/exeunt/sqldb"
)

// createAndRun creates the objects that belong to an operation, and runs it, in one
// transaction of their own. It returns the revision of the operation; 0: it changed
// nothing.
func (s *Store) createAndRun(ctx context.Context, op *operation, with []CreateRequest, dryRun bool) (revision int64, err error) {
	err = s.Transact(ctx, func(t *Tx) (err error) {
		revision, err = t.run(ctx, op, with, dryRun)
		return err
	})
	return revision, err
}

// run decides an operation in this transaction, after the objects that belong to it, and
// flushes. It returns the operation's revision; 0: it changed nothing.
func (t *Tx) run(ctx context.Context, op *operation, with []CreateRequest, dryRun bool) (int64, error) {
	for _, w := range with {
		w.DryRun = dryRun
		if err := checkNew(w); err != nil {
			return 0, err
		}
		if _, err := t.run(ctx, &operation{key: w.Key, needs: w.needs(), decide: w.decide, grows: true}, w.With, dryRun); err != nil {
			return 0, err
		}
	}
	v := newView([]*operation{op}, t.Now)
	var b sqldb.Batch
	v.queueLoads(&b, t.engine, t.keys)
	if err := t.sendAll(ctx, &b); err != nil {
		return 0, fmt.Errorf("load objects: %w", err)
	}
	if err := t.limit(ctx, v, op); err != nil {
		return 0, err
	}
	f, err := op.decide(v)
	if err != nil || f.Type == 0 {
		return 0, err
	}
	t.add(&f)
	if err := t.Flush(); err != nil {
		return 0, err
	}
	if f.restores.Row != 0 { // its statements say whether it is refused
		if err := t.sendAll(ctx, &sqldb.Batch{}); err != nil {
			return 0, fmt.Errorf("restore %s: %w", f.key, err)
		}
	}
	return f.revision, f.refused()
}
