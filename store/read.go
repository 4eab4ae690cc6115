package store

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/graph"
	"github.com/exeunt/exeunt/store/seal"
)

// Reader reads what the store keeps, for the packages that ask more than Get and
// List: the collector, previews and reports, restores. It reads the database, and
// no cache. A Tx and a Snapshot are Readers whose reads see one state; those of
// Store.Reader see the newest one each.
//
// The methods are grouped by what they read: objects here, dependents, kinds and namespaces in
// read_owner.go, removed objects in read_archive.go. Questions that need no bodies are in the
// packages graph (owners and references) and cascades, which take a Reader as the Sender.
type Reader struct {
	send func(context.Context, *sqldb.Batch) error
	// row, if set, is a faster way to read one row.
	row    func(ctx context.Context, statement string, args []any, dest ...any) (bool, error)
	engine sqldb.Engine
	keys   *seal.Keys
}

// Snapshot is a Reader of one state of the database. It must be closed. It is safe for
// concurrent use: reads come one after the other.
type Snapshot struct {
	Reader
	tx *sqldb.Snapshot
}

// Snapshot begins to read one state.
func (s *Store) Snapshot(ctx context.Context) (*Snapshot, error) {
	tx, err := s.db.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin to read: %w", err)
	}
	return &Snapshot{Reader: Reader{send: tx.Send, engine: s.db.Engine(), keys: s.opts.Keys}, tx: tx}, nil
}

// Close ends the snapshot.
func (s *Snapshot) Close() { s.tx.Close() }

// Reader is a Reader whose reads see the newest state each.
func (s *Store) Reader() *Reader {
	return &Reader{send: s.db.Send, row: s.db.Row, engine: s.db.Engine(), keys: s.opts.Keys}
}

// Engine says which statements Send takes.
func (r *Reader) Engine() sqldb.Engine { return r.engine }

// Send runs statements on tables of other packages, in the same transaction.
func (r *Reader) Send(ctx context.Context, b *sqldb.Batch) error { return r.send(ctx, b) }

// Stored is an object as a transaction found it.
type Stored struct {
	object.Object
	ID         int64
	Deleting   bool
	Deletion   int64  // when, in Unix seconds; 0 if not DELETING
	Finalizing int64  // bits Finalize…: what the collector must do before it is removed
	Parent     bool   // had dependents when it was read
	stored     int    // bytes of the body in the database; 0 means as many as Body has
	own        string // see state
}

// The columns of a Stored: of the head, and behind them the body.
const (
	headColumns   = `d.id, d.uid, d.kind, d.namespace, d.name, d.revision, coalesce(d.deletion_time, 0), d.finalizing, coalesce(d.own_cascade, ''), ` + graph.IsOwner
	storedColumns = headColumns + `, c.body
FROM objects d JOIN changes c ON c.revision = d.revision`
)

// fields are the destinations of the columns of a Stored.
func (o *Stored) fields() []any {
	return []any{&o.ID, (*string)(&o.UID), &o.Kind, &o.Namespace, &o.Name, &o.Revision, &o.Deletion, &o.Finalizing, &o.own, &o.Parent, &o.Body}
}

// finish completes a Stored after its columns were read.
func (r *Reader) finish(o *Stored) (err error) {
	o.Deleting, o.stored = o.Deletion != 0, len(o.Body)
	return r.keys.Unseal(&o.Object)
}

// query reads objects.
func (r *Reader) query(ctx context.Context, statement string, args ...any) ([]*Stored, error) {
	var out []*Stored
	err := r.rows(ctx, r.scan(&out), statement, args...)
	return out, err
}

// scan adds the object of a row to those in into.
func (r *Reader) scan(into *[]*Stored) func(sqldb.Row) error {
	return func(row sqldb.Row) error {
		o := &Stored{}
		if err := row.Scan(o.fields()...); err != nil {
			return err
		}
		*into = append(*into, o)
		return r.finish(o)
	}
}

// rows calls row for each row of a statement.
func (r *Reader) rows(ctx context.Context, row func(sqldb.Row) error, statement string, args ...any) error {
	if err := sqldb.Each(ctx, r, row, statement, args...); err != nil {
		return fmt.Errorf("read objects: %w", err)
	}
	return nil
}

// one reads one row into dest, and reports whether there is one.
func (r *Reader) one(ctx context.Context, dest []any, statement string, args ...any) (found bool, err error) {
	if r.row != nil {
		if found, err = r.row(ctx, statement, args, dest...); err != nil {
			err = fmt.Errorf("read objects: %w", err)
		}
		return found, err
	}
	err = r.rows(ctx, func(row sqldb.Row) error {
		found = true
		return row.Scan(dest...)
	}, statement, args...)
	return found, err
}

func (r *Reader) count(ctx context.Context, statement string, args ...any) (n int64, err error) {
	_, err = r.one(ctx, []any{&n}, statement, args...)
	return n, err
}

// pick chooses the statement of the engine.
func (r *Reader) pick(sqlite, postgres string) string {
	if r.engine == sqldb.Postgres {
		return postgres
	}
	return sqlite
}

func first(found []*Stored, err error) (*Stored, error) {
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// Get reads an object by its key; nil if there is none.
func (r *Reader) Get(ctx context.Context, key object.Key) (*Stored, error) {
	return first(r.query(ctx, storedByKey, key.Kind, key.Namespace, key.Name))
}

// GetByUID reads an object by its uid; nil if there is none.
func (r *Reader) GetByUID(ctx context.Context, uid types.UID) (*Stored, error) {
	return first(r.query(ctx, storedByUID, string(uid)))
}

// GetByUIDs reads those objects that exist.
func (r *Reader) GetByUIDs(ctx context.Context, uids []types.UID) ([]*Stored, error) {
	return r.query(ctx, storedByUIDs[r.engine], sqldb.List(r.engine, uids))
}

// GetByIDs reads objects by their ids, in the order of the ids.
func (r *Reader) GetByIDs(ctx context.Context, ids []int64) ([]*Stored, error) {
	return r.query(ctx, storedByIDs[r.engine], sqldb.List(r.engine, ids))
}

// Revision is the revision of the state that is read.
func (r *Reader) Revision(ctx context.Context) (int64, error) {
	return r.count(ctx, `SELECT current FROM revision`)
}

// They use unique indexes.
const (
	storedByKey = `SELECT ` + storedColumns + ` WHERE d.kind = $1 AND d.namespace = $2 AND d.name = $3`
	storedByUID = `SELECT ` + storedColumns + ` WHERE d.uid = $1`
)

// Held says that the guard holds the object's deletion.
func (o *Stored) Held() bool { return Head{Deletion: o.Deletion, Finalizing: o.Finalizing}.Held() }

// Heads reads the heads of those objects that exist.
func (r *Reader) Heads(ctx context.Context, uids []types.UID) (map[types.UID]Head, error) {
	if len(uids) == 0 {
		return nil, nil
	}
	out := make(map[types.UID]Head, len(uids))
	err := r.rows(ctx, scanHead(out), headsOf[r.engine], sqldb.List(r.engine, uids))
	return out, err
}

// scanHead adds the head of a row to those in into.
func scanHead(into map[types.UID]Head) func(sqldb.Row) error {
	return func(row sqldb.Row) error {
		var h Head
		err := h.Scan(row)
		into[h.UID] = h
		return err
	}
}

// DeletingFor reads the heads of the objects that are being deleted in a cascade, or of the
// object with a uid if that is being deleted. One of the two is empty.
func (r *Reader) DeletingFor(ctx context.Context, uid types.UID, cascade string) ([]Head, error) {
	if cascade == "" {
		return graph.Heads(ctx, r, headDeleting, string(uid))
	}
	return graph.Heads(ctx, r, headsDeletingIn, cascade)
}

// AskedOf calls visit with objects that are being deleted, as they were when that was asked for.
func (r *Reader) AskedOf(ctx context.Context, uids []types.UID, visit func(object.Object)) error {
	return r.rows(ctx, func(row sqldb.Row) error {
		var o object.Object
		err := row.Scan((*string)(&o.UID), &o.Kind, &o.Namespace, &o.Name, &o.Body)
		if err == nil {
			err = r.keys.Unseal(&o)
		}
		visit(o)
		return err
	}, asked[r.engine], sqldb.List(r.engine, uids))
}

// Head reads the head of an object by its key, if it exists.
func (r *Reader) Head(ctx context.Context, key object.Key) (h Head, found bool, err error) {
	h.Key = key
	found, err = r.one(ctx, []any{(*string)(&h.UID), &h.Deletion, &h.Finalizing}, headByKey, key.Kind, key.Namespace, key.Name)
	return h, found, err
}

const (
	headDeleting    = `SELECT ` + graph.HeadColumns + ` FROM objects o WHERE o.uid = $1 AND o.deletion_time IS NOT NULL`
	headsDeletingIn = `SELECT ` + graph.HeadColumns + ` FROM objects o
WHERE coalesce(o.deletion_cascade, o.uid) = $1 AND o.deletion_time IS NOT NULL ORDER BY o.id`
	headByKey = `SELECT uid, coalesce(deletion_time, 0), finalizing FROM objects WHERE kind = $1 AND namespace = $2 AND name = $3`
)

var (
	headsOf = sqldb.WithLists(`SELECT ` + graph.HeadColumns + ` FROM objects o WHERE o.uid IN LIST($1, text)`)
	asked   = sqldb.WithLists(`
SELECT o.uid, o.kind, o.namespace, o.name, c.body FROM objects o JOIN changes c ON c.revision = o.asked_body WHERE o.uid IN LIST($1, text)`)
	storedByUIDs = sqldb.WithLists(`SELECT ` + storedColumns + ` WHERE d.uid IN LIST($1, text)`)
	storedByIDs  = sqldb.WithLists(`SELECT ` + storedColumns + ` WHERE d.id IN LIST($1, bigint) ORDER BY d.id`)
)
