package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// lastNamespace sorts after every namespace.
const lastNamespace = "\U0010FFFF"

// ListRequest says which objects to list. Empty Namespace or Name: all.
type ListRequest struct {
	Kind, Namespace, Name string

	// Limit is how many objects that match to return. 0: all.
	Limit int
	// Revision is the revision to list the state of. 0: the newest.
	Revision int64
	// AfterNamespace and AfterName are where the page before ended.
	AfterNamespace, AfterName string
	// Match says whether an object is wanted. Nil: all are.
	Match func(*object.Object) bool
}

// runLength is how many heads are read at a time. The bodies that the cache
// does not have are then read together.
const runLength = 512

// Listing streams objects in order of (namespace, name). It holds a database
// snapshot until Close, unless a roll answers it. It is for one goroutine.
type Listing struct {
	store    *Store
	ctx      context.Context // of the request; a Listing does not outlive it
	tx       *sql.Tx
	request  ListRequest
	revision int64

	statement string
	args      []any // of the statement, without the limit; [1] and [2] are where to go on

	run    []object.Object // what was read and not yet returned
	at     int             // of run
	last   bool            // run is the last one
	object object.Object

	// From a roll, there is no transaction, and this is what is left of it.
	entries     []entry
	entryBodies [][]byte
	making      *roll // what is read, for the next time; nil: not wanted
	makingBytes int   // of bodies

	count int
	more  bool
	ended bool
	err   error
}

// List begins a listing. Errors: Expired when the revision has been compacted;
// TooLargeVersion when it has not happened yet.
func (s *Store) List(ctx context.Context, r ListRequest) (*Listing, error) {
	if r.Kind == "" || r.Revision < 0 || r.Limit < 0 {
		return nil, object.BadRequestf("list of kind %q at version %d with limit %d makes no sense", r.Kind, r.Revision, r.Limit)
	}
	l := &Listing{store: s, ctx: ctx, request: r}
	called, err := s.callRoll(ctx, l)
	if err == nil && !called {
		l.tx, err = s.db.Snapshot(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", r.Kind, err)
	}
	if called {
		return l, nil
	}
	if err := s.begin(ctx, l); err != nil {
		_ = l.Close() // the first error says more
		return nil, err
	}
	return l, nil
}

// begin finds the snapshot's revision and what to ask.
func (s *Store) begin(ctx context.Context, l *Listing) error {
	r := &l.request
	current, compacted, err := s.revisionsIn(ctx, l.tx)
	if err != nil {
		return fmt.Errorf("list %s: %w", r.Kind, err)
	}
	l.revision = current
	if r.Revision > 0 {
		l.revision = r.Revision
	}
	switch {
	case l.revision > current:
		return object.Errorf(object.TooLargeVersion, "Too large resource version: %d, current: %d", r.Revision, current)
	case l.revision < compacted:
		return expired(r.Revision, compacted)
	}
	afterNamespace, afterName, last := r.AfterNamespace, r.AfterName, lastNamespace
	if r.Namespace != "" {
		last = r.Namespace
		if afterNamespace < r.Namespace {
			afterNamespace, afterName = r.Namespace, ""
		}
	}
	if _, ok := r.rolled(); ok {
		l.making = &roll{}
	}
	l.args = []any{r.Kind, afterNamespace, afterName, last, r.Name}
	l.statement = listHeads
	switch {
	case l.revision < current:
		l.statement = listAt
		l.args = append(l.args, l.revision)
	case r.Namespace != "" && r.Name != "":
		l.statement = listHead
	}
	return nil
}

func (s *Store) revisionsIn(ctx context.Context, tx *sql.Tx) (current, compacted int64, err error) {
	rows, err := s.db.QueryTx(ctx, tx, readRevision)
	if err != nil {
		return 0, 0, fmt.Errorf("read revision: %w", err)
	}
	defer func() { _ = rows.Close() }()
	if rows.Next() {
		if err := rows.Scan(&current, &compacted); err != nil {
			return 0, 0, fmt.Errorf("read revision: %w", err)
		}
	}
	return current, compacted, rows.Err()
}

// Revision is the revision whose state is listed.
func (l *Listing) Revision() int64 { return l.revision }

// Next moves to the next object that matches. False: the end, the limit, or an
// error.
func (l *Listing) Next() bool {
	if l.ended || l.err != nil {
		return false
	}
	for {
		if l.at == len(l.run) {
			if l.last {
				l.ended = true
				return false
			}
			if l.err = l.read(); l.err != nil {
				return false
			}
			continue
		}
		l.object = l.run[l.at]
		l.at++
		if l.request.Match != nil && !l.request.Match(&l.object) {
			continue
		}
		if l.request.Limit > 0 && l.count == l.request.Limit {
			l.more, l.ended = true, true
			return false
		}
		l.count++
		return true
	}
}

// read reads the next run.
func (l *Listing) read() error {
	if l.tx == nil {
		l.readEntries()
		return nil
	}
	length := runLength
	if l.statement == listAt {
		length *= 16 // each run costs a look through all changes since
	}
	// One more than the rest of the limit tells whether there is more.
	if rest := l.request.Limit - l.count; l.request.Limit > 0 && l.request.Match == nil && rest < length {
		length = rest + 1
	}
	if err := l.readHeads(length); err != nil {
		return err
	}
	l.at, l.last = 0, len(l.run) < length
	if n := len(l.run); n > 0 {
		l.args[1], l.args[2] = l.run[n-1].Namespace, l.run[n-1].Name
	}
	if err := l.readBodies(); err != nil {
		return err
	}
	l.record()
	return nil
}

func (l *Listing) readHeads(length int) error {
	l.run = l.run[:0]
	rows, err := l.store.db.QueryTx(l.ctx, l.tx, l.statement, append(l.args[:len(l.args):len(l.args)], int64(length))...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		o := object.Object{Key: object.Key{Kind: l.request.Kind}}
		if err := rows.Scan(&o.Namespace, &o.Name, (*string)(&o.UID), &o.Revision); err != nil {
			return err
		}
		l.run = append(l.run, o)
	}
	return rows.Err()
}

// readBodies fills in the bodies of the run.
func (l *Listing) readBodies() error {
	var missing []int64
	for i := range l.run {
		if l.run[i].Body = l.store.bodies.get(l.run[i].Revision); l.run[i].Body == nil {
			missing = append(missing, l.run[i].Revision)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	found, err := l.store.readBodies(l.ctx, l.tx, missing)
	if err != nil {
		return err
	}
	for i := range l.run {
		if o := &l.run[i]; o.Body == nil {
			if o.Body = found[o.Revision]; o.Body == nil {
				return fmt.Errorf("%s has no body at revision %d", o.Key, o.Revision)
			}
			if err := l.store.Unseal(o); err != nil {
				return err
			}
			l.store.bodies.put(o.Revision, o.Body)
		}
	}
	return nil
}

func (s *Store) readBodies(ctx context.Context, tx *sql.Tx, revisions []int64) (map[int64][]byte, error) {
	statement, arg := readBodiesPostgres, any(revisions)
	if s.db.Engine() == sqldb.SQLite {
		list, err := json.Marshal(revisions)
		if err != nil {
			return nil, err
		}
		statement, arg = readBodiesSQLite, string(list)
	}
	rows, err := s.db.QueryTx(ctx, tx, statement, arg)
	if err != nil {
		return nil, fmt.Errorf("read bodies: %w", err)
	}
	defer func() { _ = rows.Close() }()
	found := make(map[int64][]byte, len(revisions))
	for rows.Next() {
		var revision int64
		var body []byte
		if err := rows.Scan(&revision, &body); err != nil {
			return nil, fmt.Errorf("read bodies: %w", err)
		}
		found[revision] = body
	}
	return found, rows.Err()
}

// Object is the object Next moved to. Its Body is shared and must not be
// changed.
func (l *Listing) Object() object.Object { return l.object }

// More says, after Next returned false, that the limit cut off at least one
// object that matches.
func (l *Listing) More() bool { return l.more }

// Err is the error that ended the listing, if one did.
func (l *Listing) Err() error {
	if l.err != nil {
		return fmt.Errorf("list %s: %w", l.request.Kind, l.err)
	}
	return nil
}

// Close gives the snapshot back. It may be called more than once.
func (l *Listing) Close() error {
	l.ended = true
	if l.tx == nil {
		return nil
	}
	var err error
	// Nothing was written: rolling back and committing are the same.
	if rollback := l.tx.Rollback(); !errors.Is(rollback, sql.ErrTxDone) {
		err = rollback
	}
	return err
}
