package gc

import (
	"context"
	"fmt"
	"slices"

	"github.com/exeunt/exeunt/sqldb"
)

// scanPage is how many references one statement reads, and how many reviews one
// transaction adds.
const scanPage = 500

// Scan enqueues what the triggers enqueue: owners that are referred to and do not
// exist, dependents whose reference does not match the object with that uid
// (another kind, name or namespace), and DELETING objects that wait for the
// collector. It is the safety net, at start and on demand, and it enqueues
// dependents whose owner's kind was not served until now. It returns how many
// reviews it added.
//
// It reads page by page, each page a statement of some milliseconds: no lock, no
// long snapshot that stops the database's vacuum, and no statement that outlives
// a killed process. A trigger enqueues what becomes reviewable behind the page,
// and uids are never reused.
func (c *Collector) Scan(ctx context.Context) (added int, err error) {
	for _, scan := range []func(context.Context, *cursor) ([]string, error){c.scanOwners, c.scanDeleting} {
		for at := (&cursor{}); !at.end; {
			found, err := scan(ctx, at)
			if err != nil {
				return added, fmt.Errorf("scan objects: %w", err)
			}
			n, err := c.enqueueFound(ctx, found)
			if err != nil {
				return added, fmt.Errorf("scan objects: %w", err)
			}
			added += n
		}
	}
	return added, nil
}

// cursor is where the next page of a scan begins.
type cursor struct {
	dependent int64
	uid       string
	end       bool
}

// scanOwners reads a page of references and returns the uids to review.
func (c *Collector) scanOwners(ctx context.Context, at *cursor) ([]string, error) {
	kinds := c.kinds.Snapshot()
	var found []string
	looked := 0
	err := c.scanRows(ctx, func(row sqldb.Row) error {
		var r Reference
		var o Owner
		var dependent, namespace string
		var deleting bool
		var deletion, finalizing int64
		if err := row.Scan(&at.dependent, &at.uid, &r.Group, &r.Kind, &r.Name, &dependent, &namespace, &deleting,
			&o.Exists, &o.Kind, &o.Namespace, &o.Name, &deletion, &finalizing); err != nil {
			return err
		}
		looked++
		o.Foreground, o.Leaving = waits(deletion, finalizing)
		switch standing := Classify(namespace, Identify(kinds, r, o), o); {
		case deleting, standing == Solid, standing == Waiting: // DELETING already, kept, or scanDeleting finds its owner
		case o.Exists && !o.Leaving:
			found = append(found, dependent)
		case !o.Exists:
			found = append(found, at.uid)
		}
		return nil
	}, scanOwners, at.dependent, at.uid, scanPage)
	at.end = looked < scanPage
	slices.Sort(found)
	return slices.Compact(found), err
}

// scanDeleting reads a page of objects that wait for the collector.
func (c *Collector) scanDeleting(ctx context.Context, at *cursor) (found []string, err error) {
	err = c.scanRows(ctx, func(row sqldb.Row) error {
		err := row.Scan(&at.uid)
		found = append(found, at.uid)
		return err
	}, scanDeleting, at.uid, scanPage)
	at.end = len(found) < scanPage
	return found, err
}

func (c *Collector) scanRows(ctx context.Context, row func(sqldb.Row) error, statement string, args ...any) error {
	rows, err := c.db.Query(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// enqueueFound adds the missing reviews in its own transaction and returns how
// many it added. The uids are sorted, so concurrent scans lock in the same order.
func (c *Collector) enqueueFound(ctx context.Context, found []string) (added int, err error) {
	if len(found) == 0 {
		return 0, nil
	}
	var b sqldb.Batch
	for _, uid := range found {
		b.Query(func(row sqldb.Row) error {
			added++
			return row.Scan(new(string))
		}, scanEnqueue, uid, c.opts.Now().UnixMilli())
	}
	if err := c.db.Transact(ctx, func(tx *sqldb.Tx) error { return tx.Send(ctx, &b) }); err != nil {
		return 0, err
	}
	if added > 0 {
		c.engine.Wake()
	}
	return added, nil
}
