package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
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
	// Match says whether an object is wanted. Nil: all are. The object's Body
	// is only valid during the call.
	Match func(*object.Object) bool
}

// Listing streams objects in order of (namespace, name). It holds a database
// snapshot until Close. It is for one goroutine.
type Listing struct {
	tx       *sql.Tx
	rows     *sql.Rows
	request  ListRequest
	revision int64
	dest     []any // pointers into the fields below, for Scan

	object object.Object
	uid    string
	body   sql.RawBytes

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
	tx, err := s.db.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", r.Kind, err)
	}
	l := &Listing{tx: tx, request: r}
	l.object.Kind = r.Kind
	l.dest = []any{&l.object.Namespace, &l.object.Name, &l.uid, &l.object.Revision, &l.body}
	if err := s.begin(ctx, l); err != nil {
		_ = l.Close() // the first error says more
		return nil, err
	}
	return l, nil
}

// begin finds the snapshot's revision and starts the query.
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
	args := []any{r.Kind, afterNamespace, afterName, last, r.Name}
	statement := listNow
	switch {
	case l.revision < current:
		statement = listAt
		args = append(args, l.revision)
	case r.Namespace != "" && r.Name != "":
		statement = listOne
	}
	if l.rows, err = s.db.QueryTx(ctx, l.tx, statement, args...); err != nil {
		return fmt.Errorf("list %s: %w", r.Kind, err)
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
	for l.rows.Next() {
		if l.err = l.rows.Scan(l.dest...); l.err != nil {
			return false
		}
		l.object.UID, l.object.Body = types.UID(l.uid), l.body
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
	l.ended, l.err = true, l.rows.Err()
	return false
}

// Object is the object Next moved to. Its Body is valid until the next Next or
// Close.
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
	var err error
	if l.rows != nil {
		err = l.rows.Close()
	}
	// Nothing was written: rolling back and committing are the same.
	if rollback := l.tx.Rollback(); !errors.Is(rollback, sql.ErrTxDone) {
		err = errors.Join(err, rollback)
	}
	return err
}
