package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

const (
	expireStep         = 500     // rows per transaction
	defaultArchiveSize = 1 << 30 // bytes
)

// expire removes archive rows that are older than the window of their namespace,
// and then the oldest rows while the archive is larger than MaxBytes. It works in
// small steps, each a transaction between two batches of the writer.
func (s *Store) expire(ctx context.Context) error {
	overdue, err := s.overdue(ctx)
	if err != nil {
		return fmt.Errorf("expire archive: %w", err)
	}
	for _, o := range overdue {
		err := s.forgetSteps(ctx, func(*forgetting) (string, []any) {
			return overdueArchived, []any{o.namespace, o.before, int64(expireStep)}
		})
		if err != nil {
			return fmt.Errorf("expire archive of namespace %q: %w", o.namespace, err)
		}
	}
	limit := s.opts.Archive.MaxBytes
	if limit <= 0 {
		limit = defaultArchiveSize
	}
	var bytes int64
	if _, err := s.db.Row(ctx, readArchivedBytes, nil, &bytes); err != nil {
		return fmt.Errorf("expire archive: %w", err)
	}
	if bytes > limit {
		err = s.forgetSteps(ctx, func(f *forgetting) (string, []any) {
			f.downTo = limit
			return oldestArchived, []any{int64(expireStep)}
		})
	}
	if err != nil {
		return fmt.Errorf("expire archive above %d bytes: %w", limit, err)
	}
	return s.expireNotes(ctx)
}

// expireNotes removes rows that only archived objects needed which are gone now:
// dropped references and names of kinds. It looks for them before it begins a
// transaction, because usually there are none.
func (s *Store) expireNotes(ctx context.Context) error {
	var b sqldb.Batch
	var one int64
	found, err := s.db.Row(ctx, anyDropped, nil, &one)
	if err != nil {
		return fmt.Errorf("expire dropped references: %w", err)
	}
	if found {
		b.Exec(forgetDropped)
	}
	rows, err := s.db.Query(ctx, unusedKinds, s.now().Add(-s.archiveWindow("", nil)).UnixMilli())
	if err != nil {
		return fmt.Errorf("expire archived kinds: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var storage string
		var removedAt int64
		if err := rows.Scan(&storage, &removedAt); err != nil {
			return fmt.Errorf("expire archived kinds: %w", err)
		}
		b.Exec(forgetKind, storage, removedAt)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || b.Len() == 0 {
		return err
	}
	err = s.writer.do(ctx, func() error {
		tx, err := s.db.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := tx.Send(ctx, &b); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
	if err != nil {
		return fmt.Errorf("expire notes about archived objects: %w", err)
	}
	return nil
}

// overdue is a namespace with archive rows that are too old.
type overdue struct {
	namespace string
	before    int64 // Unix milliseconds
}

func (s *Store) overdue(ctx context.Context) ([]overdue, error) {
	rows, err := s.db.Query(ctx, archivedNamespaces)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []overdue
	for rows.Next() {
		var o overdue
		var oldest int64
		var body []byte
		if err := rows.Scan(&o.namespace, &oldest, &body); err != nil {
			return nil, err
		}
		o.before = s.now().Add(-s.archiveWindow(o.namespace, body)).UnixMilli()
		if oldest <= o.before {
			found = append(found, o)
		}
	}
	return found, errors.Join(rows.Err(), rows.Close())
}

// archiveWindow is how long the archive keeps objects of a namespace. An invalid
// annotation is ignored: a typing mistake must not empty the archive.
func (s *Store) archiveWindow(namespace string, body []byte) time.Duration {
	window := s.opts.Archive.For
	if window <= 0 {
		window = defaultArchiveFor
	}
	if len(body) == 0 {
		return window
	}
	m, err := object.ParseMeta(body)
	if err != nil {
		s.log.Warn("namespace cannot be read: its archive is kept for the default time", "namespace", namespace, "error", err)
		return window
	}
	if d, ok := lifecycle.ArchiveWindow(m.Annotations); ok {
		return d
	}
	return window
}

// ForgetArchived removes rows from the archive now and returns how many there
// were. Their bodies are deleted now, or by the compaction that they still wait
// for.
func (s *Store) ForgetArchived(ctx context.Context, ids []int64) (int, error) {
	forgotten := 0
	for len(ids) > 0 {
		step := ids[:min(len(ids), expireStep)]
		ids = ids[len(step):]
		err := s.forgetOnce(ctx, func(f *forgetting, b *sqldb.Batch) {
			for _, id := range step {
				b.Query(f.scan, archivedByID, id)
			}
		}, &forgotten)
		if err != nil {
			return forgotten, fmt.Errorf("purge archive: %w", err)
		}
	}
	return forgotten, nil
}

// forgetSteps removes the rows that a statement selects, step by step, until it
// selects no more.
func (s *Store) forgetSteps(ctx context.Context, choose func(*forgetting) (string, []any)) error {
	for {
		n := 0
		err := s.forgetOnce(ctx, func(f *forgetting, b *sqldb.Batch) {
			statement, args := choose(f)
			b.Query(f.scan, statement, args...)
		}, &n)
		if err != nil || n < expireStep {
			return err
		}
	}
}

// forgetting is one step of removing archive rows.
type forgetting struct {
	downTo                       int64 // stop when the archive has this many bytes left; 0: remove all rows
	current, compacted, archived int64
	rows                         []archivedRow
}

type archivedRow struct{ id, body, size, replaced int64 }

func (f *forgetting) scan(row sqldb.Row) error {
	var r archivedRow
	if err := row.Scan(&r.id, &r.body, &r.size, &r.replaced); err != nil {
		return err
	}
	f.rows = append(f.rows, r)
	return nil
}

// forgetOnce runs one step in a transaction. It adds the number of removed rows to n.
func (s *Store) forgetOnce(ctx context.Context, choose func(*forgetting, *sqldb.Batch), n *int) error {
	return s.writer.do(ctx, func() error {
		tx, err := s.db.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		var f forgetting
		var b sqldb.Batch
		lock(&b, s.db.Engine(), &f.current, &f.compacted)
		b.Query(func(row sqldb.Row) error { return row.Scan(&f.archived) }, readArchivedBytes)
		choose(&f, &b)
		if err := tx.Send(ctx, &b); err != nil {
			return err
		}
		b, removed := f.statements()
		if removed == 0 {
			return nil
		}
		if err := tx.Send(ctx, &b); err != nil {
			return err
		}
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		*n += removed
		return nil
	})
}

// statements returns the statements that remove the rows. archive.go says why a
// body is deleted only once the change that replaced it is compacted.
func (f *forgetting) statements() (b sqldb.Batch, removed int) {
	var bytes int64
	for _, r := range f.rows {
		if f.downTo > 0 && f.archived-bytes <= f.downTo {
			break
		}
		if r.body != 0 && r.replaced <= f.compacted {
			b.Exec(deleteArchivedBody, r.body)
		}
		b.Exec(deleteArchived, r.id)
		bytes += r.size
		removed++
	}
	if removed > 0 {
		b.Exec(dropArchivedBytes, bytes)
	}
	return b, removed
}
