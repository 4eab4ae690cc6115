package history

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/expiry"
)

const (
	leaveStep = 500 // rows per transaction
	// keptMarks is how many marks may be older than the history before they are deleted.
	keptMarks = 600
)

// Expire lets rows leave: those whose time is over, then the oldest ones of the namespaces that use more than
// their share of MaxBytes. A row leaves when its newest version is due.
func (h *History) Expire(ctx context.Context) error {
	used, err := h.used(ctx)
	if err != nil {
		return fmt.Errorf("expire history: %w", err)
	}
	longest := h.For
	for namespace := range used {
		window, err := h.window(ctx, namespace)
		if err == nil {
			longest = max(longest, window)
			err = h.leave(ctx, namespace, oldest, h.Now().Add(-window).UnixMilli(), math.MaxInt64)
		}
		if err != nil {
			return fmt.Errorf("expire history of namespace %q: %w", namespace, err)
		}
	}
	if used, err = h.used(ctx); err != nil {
		return fmt.Errorf("expire history: %w", err)
	}
	share := expiry.FairShare(h.MaxBytes, slices.Collect(maps.Values(used)))
	for namespace, bytes := range used {
		if bytes <= share {
			continue
		}
		if err := h.leave(ctx, namespace, oldestOfAll, math.MaxInt64, bytes-share); err != nil {
			return fmt.Errorf("expire history of namespace %q: %w", namespace, err)
		}
	}
	now := h.Now().UnixMilli() // or, if that is earlier, when the first object left that can be restored
	if _, err := h.DB.Row(ctx, firstRemoval, nil, &now); err != nil {
		return fmt.Errorf("expire history: %w", err)
	}
	return h.forgetTimes(ctx, time.UnixMilli(now).Add(-longest).Unix())
}

// used reads how many bytes the history of each namespace has.
func (h *History) used(ctx context.Context) (map[string]int64, error) {
	used, total := map[string]int64{}, int64(0)
	err := sqldb.Each(ctx, h.DB, func(row sqldb.Row) error {
		var namespace string
		var bytes int64
		err := row.Scan(&namespace, &bytes)
		used[namespace], total = bytes, total+bytes
		return err
	}, spaces)
	h.bytes.Store(total)
	return used, err
}

// window is how long versions in a namespace are kept. An annotation that cannot be read is ignored.
func (h *History) window(ctx context.Context, namespace string) (time.Duration, error) {
	var body []byte
	found, err := h.DB.Row(ctx, namespaceBody, []any{namespace}, &body)
	if err != nil || !found {
		return h.For, err
	}
	m, err := object.ParseMeta(body)
	if err != nil {
		h.Logger.Warn("namespace cannot be read: its history is kept for the default time", "namespace", namespace, "error", err)
		return h.For, nil
	}
	if d, ok := lifecycle.HistoryWindow(m.Annotations); ok {
		return d, nil
	}
	return h.For, nil
}

// leave deletes the oldest rows of a namespace that ended by a time, up to a number of bytes.
func (h *History) leave(ctx context.Context, namespace, statement string, endedBy, bytes int64) error {
	for more := true; more; {
		found, err := h.DB.Row(ctx, statement, []any{namespace, endedBy, int64(1)}, new(int64), new(int64), new(int64), new(int64))
		if err != nil || !found {
			return err
		}
		versions := int64(0)
		err = h.Transact(ctx, func(t *Tx) error {
			var ids []int64
			var until, size int64
			err := sqldb.Each(ctx, t, func(row sqldb.Row) error {
				var r struct{ id, until, versions, size int64 }
				err := row.Scan(&r.id, &r.until, &r.versions, &r.size)
				if size < bytes {
					ids, until, versions, size = append(ids, r.id), max(until, r.until), versions+r.versions, size+r.size
				}
				return err
			}, statement, namespace, endedBy, int64(leaveStep))
			if err != nil || len(ids) == 0 {
				return err
			}
			more, bytes = len(ids) == leaveStep, bytes-size
			var b sqldb.Batch
			b.Exec(deleteByID[t.Engine], sqldb.List(t.Engine, ids))
			b.Exec(addBound, "", namespace, until, -size)
			return t.Send(ctx, &b)
		})
		if err != nil {
			return err
		}
		if endedBy == math.MaxInt64 {
			h.tooLarge.Add(versions)
			h.Logger.Warn("versions left the history before their time: the namespace uses more than its share of --history-max-bytes",
				"namespace", namespace, "versions", versions)
		} else {
			h.tooOld.Add(versions)
		}
	}
	return nil
}

// forgetTimes deletes the marks from before a second, and the bounds that lie before the first one left.
func (h *History) forgetTimes(ctx context.Context, before int64) error {
	var n int64
	if _, err := h.DB.Row(ctx, countMarks, []any{before, int64(keptMarks)}, &n); err != nil || n < keptMarks {
		return err
	}
	return h.Transact(ctx, func(t *Tx) error {
		var first int64
		if found, err := sqldb.First(ctx, t, []any{&first}, markAt, before); err != nil || !found {
			return err
		}
		var b sqldb.Batch
		b.Exec(deleteMarks, before)
		b.Exec(addBound, "", allNamespaces, first, int64(0))
		b.Exec(deleteBounds, first)
		return t.Send(ctx, &b)
	})
}
