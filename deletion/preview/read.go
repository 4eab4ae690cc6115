package preview

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// head is an object in the snapshot.
type head struct {
	object.Key
	id         int64
	uid        types.UID
	deletion   int64 // Unix seconds; 0: not DELETING
	finalizing int64
	body       []byte
}

// dependent is a head with its reference to one owner.
type dependent struct {
	head
	owner    types.UID
	blocking bool         // the reference blocks, and names the owner's name
	named    gc.Reference // the group and kind in the reference
}

// reader reads one snapshot of the database, until close.
type reader struct {
	ctx  context.Context
	db   *sqldb.DB
	tx   *sql.Tx
	peak int // the most rows in memory at once, for tests

	unseal func(*object.Object) error // Options.Unseal
}

func (s *Service) open(ctx context.Context) (*reader, error) {
	tx, err := s.db.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin to read: %w", err)
	}
	return &reader{ctx: ctx, db: s.db, tx: tx, unseal: s.opts.Unseal}, nil
}

// close ends the snapshot. It ignores the error: nothing was written.
func (r *reader) close() { _ = r.tx.Rollback() }

// query calls row for each row. row must copy what it keeps.
func (r *reader) query(row func(*sql.Rows) error, statement string, args ...any) error {
	rows, err := r.db.QueryTx(r.ctx, r.tx, statement, args...)
	if err != nil {
		return fmt.Errorf("read objects: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows); err != nil {
			return fmt.Errorf("read objects: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read objects: %w", err)
	}
	return nil
}

// one reads a row that always exists.
func (r *reader) one(statement string, args []any, dest ...any) error {
	return r.query(func(rows *sql.Rows) error { return rows.Scan(dest...) }, statement, args...)
}

func (h *head) fields() []any {
	return []any{&h.id, (*string)(&h.uid), &h.Kind, &h.Namespace, &h.Name, &h.deletion, &h.finalizing, &h.body}
}

// open decrypts the body of a head.
func (r *reader) open(h *head) error {
	if r.unseal == nil {
		return nil
	}
	o := object.Object{Key: h.Key, UID: h.uid, Body: h.body}
	err := r.unseal(&o)
	h.body = o.Body
	return err
}

func (r *reader) heads(statement string, args ...any) ([]head, error) {
	var out []head
	err := r.query(func(rows *sql.Rows) error {
		var h head
		if err := rows.Scan(h.fields()...); err != nil {
			return err
		}
		err := r.open(&h)
		out = append(out, h)
		return err
	}, statement, args...)
	r.peak = max(r.peak, len(out))
	return out, err
}

func (r *reader) head(statement string, args ...any) (head, bool, error) {
	found, err := r.heads(statement, args...)
	if err != nil || len(found) == 0 {
		return head{}, false, err
	}
	return found[0], true, nil
}

func (r *reader) dependents(statement string, args ...any) ([]dependent, error) {
	var out []dependent
	err := r.query(func(rows *sql.Rows) error {
		var d dependent
		if err := rows.Scan(append([]any{(*string)(&d.owner), &d.blocking, &d.named.Group, &d.named.Kind}, d.fields()...)...); err != nil {
			return err
		}
		err := r.open(&d.head)
		out = append(out, d)
		return err
	}, statement, args...)
	r.peak = max(r.peak, len(out))
	return out, err
}

// dependentsOfMany reads the first dependents of some owners.
func (r *reader) dependentsOfMany(owners []types.UID, limit int) ([]dependent, error) {
	return r.dependents(r.pick(dependentsOfManySQLite, dependentsOfManyPostgres), sqldb.List(r.db.Engine(), owners), limit)
}

func (r *reader) headsByID(ids []int64) ([]head, error) {
	return r.heads(r.pick(headsByIDSQLite, headsByIDPostgres), sqldb.List(r.db.Engine(), ids))
}

// owners reads some owners. Those that the database has nothing about are not in
// the answer.
func (r *reader) owners(uids []types.UID) (map[types.UID]gc.Owner, error) {
	out := make(map[types.UID]gc.Owner, len(uids))
	if len(uids) == 0 {
		return out, nil
	}
	err := r.query(func(rows *sql.Rows) error {
		var uid types.UID
		var deletion, finalizing int64
		o := gc.Owner{Exists: true}
		err := rows.Scan((*string)(&uid), &o.Kind, &o.Namespace, &o.Name, &deletion, &finalizing)
		acts := deletion != 0 && finalizing&store.FinalizeConfirm == 0
		o.Foreground = acts && finalizing&store.FinalizeForeground != 0
		o.Leaving = acts && finalizing&store.FinalizeGrace != 0
		out[uid] = o
		return err
	}, r.pick(ownersByUIDSQLite, ownersByUIDPostgres), sqldb.List(r.db.Engine(), uids))
	if err != nil {
		return nil, err
	}
	return out, r.removedOwners(uids, out)
}

// removedOwners adds the owners that this server removed.
func (r *reader) removedOwners(uids []types.UID, into map[types.UID]gc.Owner) error {
	absent := slices.DeleteFunc(slices.Clone(uids), func(uid types.UID) bool { return into[uid].Exists })
	if len(absent) == 0 {
		return nil
	}
	return r.query(func(rows *sql.Rows) error {
		var uid types.UID
		o := gc.Owner{Removed: true}
		err := rows.Scan((*string)(&uid), &o.WasInside)
		into[uid] = o
		return err
	}, r.pick(removedOwnersSQLite, removedOwnersPostgres), sqldb.List(r.db.Engine(), absent))
}

// withDependents returns which of some objects have dependents.
func (r *reader) withDependents(uids []types.UID) (map[types.UID]bool, error) {
	out := map[types.UID]bool{}
	if len(uids) == 0 {
		return out, nil
	}
	err := r.query(func(rows *sql.Rows) error {
		var uid types.UID
		err := rows.Scan((*string)(&uid))
		out[uid] = true
		return err
	}, r.pick(withDependentsSQLite, withDependentsPostgres), sqldb.List(r.db.Engine(), uids))
	return out, err
}

// kinds returns the storage names of the kinds that have objects.
func (r *reader) kinds() ([]string, error) {
	var out []string
	err := r.query(func(rows *sql.Rows) error {
		var kind string
		err := rows.Scan(&kind)
		out = append(out, kind)
		return err
	}, kindsStored)
	return out, err
}

func (r *reader) pick(sqlite, postgres string) string {
	if r.db.Engine() == sqldb.Postgres {
		return postgres
	}
	return sqlite
}
