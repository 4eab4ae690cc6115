package review

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/exeunt/exeunt/sqldb"
)

// maxError bounds last_error, in bytes.
const maxError = 1000

// settle writes the verdicts of the rows that still carry the token, in one round
// trip, and returns their keys. Rows that wait for an effect stay, with a new
// lease.
func (e *Engine) settle(ctx context.Context, tx Tx, token string, now time.Time, items []reviewed) (map[string]bool, error) {
	settled := make(map[string]bool, len(items))
	row := collect(settled)
	var b sqldb.Batch
	e.lock(&b, token, items)
	var removed, waiting []string
	postponed := map[int64][]string{} // by the new review_after
	for _, item := range items {
		key, v := item.task.Key, item.verdict
		switch {
		case v.effect != nil:
			waiting = append(waiting, key)
		case v.outcome == done:
			removed = append(removed, key)
		case v.outcome == again:
			at := now.Add(v.after).UnixMilli()
			postponed[at] = append(postponed[at], key)
		default:
			delay := e.queue.Backoff.Delay(item.task.Count+1, e.options.Random())
			b.Query(row, e.sql.fail, key, token, now.Add(delay).UnixMilli(), errorText(v.reason()))
		}
	}
	if len(removed) > 0 {
		b.Query(row, e.sql.remove, sqldb.List(e.db.Engine(), removed), token)
	}
	if len(waiting) > 0 {
		b.Query(row, e.sql.extend, sqldb.List(e.db.Engine(), waiting), token, now.Add(e.queue.Lease).UnixMilli())
	}
	for _, at := range slices.Sorted(maps.Keys(postponed)) {
		b.Query(row, e.sql.postpone, sqldb.List(e.db.Engine(), postponed[at]), token, at)
	}
	if err := tx.Send(ctx, &b); err != nil {
		return nil, fmt.Errorf("settle %s reviews: %w", e.queue.Name, err)
	}
	return settled, nil
}

// lock locks the rows in key order, because the statements of settle lock them in
// other orders.
func (e *Engine) lock(b *sqldb.Batch, token string, items []reviewed) {
	if e.sql.lock == "" {
		return
	}
	keys := make([]string, len(items))
	for i := range items {
		keys[i] = items[i].task.Key
	}
	slices.Sort(keys)
	b.Exec(e.sql.lock, keys, token)
}

// settleAlone settles in a transaction of its own.
func (e *Engine) settleAlone(ctx context.Context, token string, items []reviewed, r *Result) error {
	if len(items) == 0 {
		return nil
	}
	var settled map[string]bool
	err := e.withoutSync(ctx, func(tx Tx) (err error) {
		settled, err = e.settle(ctx, tx, token, e.options.Now(), items)
		return err
	})
	if err != nil {
		return err
	}
	e.tally(items, settled, r)
	return nil
}

// errorText is the text for last_error: valid on both engines, at most maxError
// bytes, cut between two characters.
func errorText(err error) string {
	text := strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", ""), "\uFFFD")
	if len(text) <= maxError {
		return text
	}
	end := maxError - len("…")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
