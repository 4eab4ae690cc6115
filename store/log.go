package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/seal"
)

// Limits of one read of the log, in events and bytes. They bound the memory of a
// watcher that is far behind, also while its client does not read.
const (
	logEvents = 256
	logBytes  = 1 << 20
)

// readChanges reads changes in (from, to], in order. It stops early at logEvents
// or logBytes; upTo is the revision that it reached. r selects the changes of one
// watch; nil: all.
func (s *Store) readChanges(ctx context.Context, r *WatchRequest, from, to int64) (events []*Event, upTo int64, err error) {
	var rows *sqldb.Rows
	if r == nil {
		rows, err = s.db.Query(ctx, readLog, from, to, logEvents)
	} else {
		rows, err = s.db.Query(ctx, readLogOf, from, to, logEvents, r.Kind, r.Namespace, r.Name)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read log: %w", err)
	}
	defer func() { _ = rows.Close() }()
	size := 0
	for size < logBytes && rows.Next() {
		e, err := scanEvent(rows, s.opts.Keys)
		if err != nil {
			return nil, 0, fmt.Errorf("read log: %w", err)
		}
		events = append(events, e)
		size += e.Size()
	}
	if err := rows.Err(); err != nil {
		return nil, 0, fmt.Errorf("read log: %w", err)
	}
	if len(events) == logEvents || size >= logBytes {
		to = events[len(events)-1].Object.Revision
	}
	return events, to, nil
}

// scanEvent reads an event. A body that cannot be unsealed is missing, and the watchers of that
// object get the error from the event; the feed continues for all others.
func scanEvent(row sqldb.Row, keys *seal.Keys) (*Event, error) {
	e := &Event{}
	o := &e.Object
	var body, before []byte
	if err := row.Scan(&o.Revision, &e.Type, &o.UID, &o.Kind, &o.Namespace, &o.Name, &body, &before); err != nil {
		return nil, err
	}
	var errs [2]error
	sealed := seal.Of(o)
	body, errs[0] = keys.Open(sealed, body)
	before, errs[1] = keys.Open(sealed, before)
	e.Unreadable = errors.Join(errs[:]...)
	switch e.Type {
	case Removed:
		o.Body = before
	case Updated:
		o.Body, e.Previous = body, before
	default:
		o.Body = body
	}
	return e, nil
}

// Changes calls visit with all changes in (from, to], in order, as the transaction sees them.
func (r *Reader) Changes(ctx context.Context, from, to int64, visit func(*Event)) error {
	return r.rows(ctx, func(row sqldb.Row) error {
		e, err := scanEvent(row, r.keys)
		if err == nil {
			visit(e)
		}
		return err
	}, readLog, from, to, to-from)
}
