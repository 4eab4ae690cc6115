package store

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/sqldb"
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
		e, err := s.scanEvent(rows)
		if err != nil {
			return nil, 0, fmt.Errorf("read log: %w", err)
		}
		events = append(events, e)
		size += e.size()
	}
	if err := rows.Err(); err != nil {
		return nil, 0, fmt.Errorf("read log: %w", err)
	}
	if len(events) == logEvents || size >= logBytes {
		to = events[len(events)-1].Object.Revision
	}
	return events, to, nil
}

// scanEvent reads an event. If a body cannot be unsealed, the watchers of that
// object get the error from the event; the feed continues for all others.
func (s *Store) scanEvent(rows *sqldb.Rows) (*Event, error) {
	e := &Event{}
	o := &e.Object
	var body, before []byte
	var uid string
	if err := rows.Scan(&o.Revision, &e.Type, &uid, &o.Kind, &o.Namespace, &o.Name, &body, &before); err != nil {
		return nil, err
	}
	o.UID = types.UID(uid)
	var errs [2]error
	body, errs[0] = s.open(o.Key, uid, body)
	before, errs[1] = s.open(o.Key, uid, before)
	e.unreadable = errors.Join(errs[:]...)
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

// Changes reads all changes in (from, to], in order, as the transaction sees them. A body
// that cannot be unsealed is missing.
func (r *Reader) Changes(ctx context.Context, from, to int64) (events []*Event, err error) {
	err = r.rows(ctx, func(row sqldb.Row) error {
		e := &Event{}
		o := &e.Object
		var body, before []byte
		if err := row.Scan(&o.Revision, &e.Type, (*string)(&o.UID), &o.Kind, &o.Namespace, &o.Name, &body, &before); err != nil {
			return err
		}
		body, _ = r.keys.Open(sealObject(o.Key, string(o.UID)), body)
		before, _ = r.keys.Open(sealObject(o.Key, string(o.UID)), before)
		o.Body, e.Previous = body, before
		if e.Type == Removed {
			o.Body = before
		}
		events = append(events, e)
		return nil
	}, readLog, from, to, to-from)
	return events, err
}
