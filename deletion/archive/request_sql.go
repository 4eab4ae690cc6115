package archive

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
)

// The table restores, and the statements on it.

func noRestore(name string) error {
	return object.Errorf(object.NotFound, "restores.lifecycle.exeunt.dev %q not found", name)
}

// insert stores a Restore and its task, and removes old Restores.
func (a *Archive) insert(ctx context.Context, s *request) error {
	state, err := json.Marshal(s)
	if err != nil {
		return err
	}
	tx, err := a.db.Begin(ctx)
	if err != nil {
		return fmt.Errorf("store the restore: %w", err)
	}
	defer tx.Rollback() // does nothing after a commit
	taken, running := false, 0
	var b sqldb.Batch
	b.Found(&taken, `SELECT 1 FROM restores WHERE name = $1`, s.name)
	b.Query(func(row sqldb.Row) error { return row.Scan(&running) }, countRunning, s.User.Username)
	b.Exec(forgetOld, s.createdAt-keepFor.Milliseconds())
	b.Exec(forgetMany, s.User.Username, mostRestores)
	if err := tx.Send(ctx, &b); err != nil {
		return fmt.Errorf("store the restore: %w", err)
	}
	switch {
	case taken:
		return object.Errorf(object.AlreadyExists, "restores.lifecycle.exeunt.dev %q already exists", s.name)
	case running >= mostRestores:
		return apierrors.NewTooManyRequests(fmt.Sprintf("%d restores of %s go on: wait for them, or delete some", running, s.User.Username), 10)
	}
	b = sqldb.Batch{}
	b.Exec(insertRestore, s.name, s.User.Username, s.createdAt, string(state))
	a.engine.Enqueue(&b, s.name, "created", a.opts.Now())
	if err := tx.Send(ctx, &b); err != nil {
		return fmt.Errorf("store the restore: %w", err)
	}
	return tx.Commit(ctx)
}

// save stores the results. A Restore that was deleted stays deleted.
func (a *Archive) save(ctx context.Context, s *request) error {
	state, err := json.Marshal(s)
	if err != nil {
		return err
	}
	var ended any
	if s.Status.Phase.Ended() {
		ended = a.opts.Now().UnixMilli()
	}
	return a.exec(ctx, "store the results of a restore", func(b *sqldb.Batch) { b.Exec(updateRestore, s.name, ended, string(state)) })
}

// exec runs statements in a transaction.
func (a *Archive) exec(ctx context.Context, what string, fill func(*sqldb.Batch)) error {
	var b sqldb.Batch
	fill(&b)
	err := review.Transactions(a.db)(ctx, func(tx review.Tx) error { return tx.Send(ctx, &b) })
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// load reads a Restore; nil if there is none.
func (a *Archive) load(ctx context.Context, name string) (s *request, err error) {
	err = a.restores(ctx, func(r *request) { s = r }, readRestore, name)
	return s, err
}

// restores calls visit with the Restores that a statement selects.
func (a *Archive) restores(ctx context.Context, visit func(*request), statement string, args ...any) error {
	err := sqldb.Each(ctx, a.db, func(row sqldb.Row) error {
		s := &request{}
		var state []byte
		if err := row.Scan(&s.name, &s.createdAt, &state); err != nil {
			return err
		}
		if err := json.Unmarshal(state, s); err != nil {
			return fmt.Errorf("restore %s: %w", s.name, err)
		}
		visit(s)
		return nil
	}, statement, args...)
	if err != nil {
		return fmt.Errorf("read restores: %w", err)
	}
	return nil
}

const (
	readRestore   = `SELECT name, created_at, state FROM restores WHERE name = $1`
	listRestores  = `SELECT name, created_at, state FROM restores ORDER BY requester = $1 DESC, created_at DESC, name LIMIT 500`
	insertRestore = `INSERT INTO restores (name, requester, created_at, state) VALUES ($1, $2, $3, $4)`
	updateRestore = `UPDATE restores SET ended_at = $2, state = $3 WHERE name = $1`
	countRunning  = `SELECT count(*) FROM restores WHERE requester = $1 AND ended_at IS NULL`
	forgetOld     = `DELETE FROM restores WHERE ended_at < $1`
	forgetMany    = `
DELETE FROM restores WHERE name IN (
    SELECT name FROM restores WHERE requester = $1 AND ended_at IS NOT NULL ORDER BY created_at DESC LIMIT 1000000 OFFSET $2)`
	deleteRestore = `DELETE FROM restores WHERE name = $1`
)
