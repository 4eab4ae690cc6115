package review

import (
	"context"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/sqldb"
)

// takeOverEvery is how often at most an engine that waits for the claims of other
// processes checks whether those processes are alive.
const takeOverEvery = time.Second

// TakeOver clears the claims of processes that have ended (sqldb.DB.Gone), so that
// engines do not wait for their leases. It returns the number of claims. If such a
// process is alive after all, its token is gone when it settles, as if its lease
// had ended.
func (e *Engine) TakeOver(ctx context.Context) (claims int, err error) {
	tokens, err := sqldb.Column[string](ctx, e.db, e.sql.tokens, e.options.Now().UnixMilli())
	if err != nil {
		return 0, fmt.Errorf("read claims of %s reviews: %w", e.queue.Name, err)
	}
	gone, err := e.db.Gone(ctx, tokens)
	if err != nil || len(gone) == 0 {
		return 0, err
	}
	err = e.withoutSync(ctx, func(tx Tx) error {
		claims = 0
		var b sqldb.Batch
		for _, token := range gone {
			b.Query(func(row sqldb.Row) error { claims++; return row.Scan(new(string)) }, e.sql.disown, token)
		}
		return tx.Send(ctx, &b)
	})
	if err != nil {
		return 0, fmt.Errorf("take %s reviews over: %w", e.queue.Name, err)
	}
	if claims == 0 {
		return 0, nil // another loop was first
	}
	e.options.Logger.Info("claims of a process that is gone were taken over", "claims", claims)
	return claims, nil
}

// takeOverAtStart takes over the claims of the previous process.
func (e *Engine) takeOverAtStart(ctx context.Context) {
	if _, err := e.TakeOver(ctx); err != nil && ctx.Err() == nil {
		e.options.Logger.Warn("claims of the process before are left until their lease ends", "error", err)
	}
}

// unblock takes over the due tasks of processes that have ended, and reports
// whether there are tasks to claim now. On SQLite no other process can hold
// claims.
func (e *Engine) unblock(ctx context.Context, now time.Time) (bool, error) {
	last := e.tookOver.Load()
	if e.db.Engine() != sqldb.Postgres || now.Sub(time.UnixMilli(last)) < takeOverEvery || !e.tookOver.CompareAndSwap(last, now.UnixMilli()) {
		return false, nil
	}
	claims, err := e.TakeOver(ctx)
	return claims > 0, err
}
