package seal

import (
	"context"
	"fmt"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// resealStep is how many bodies one transaction seals again.
const resealStep = 64

// Reseal seals with the current sealing key all bodies that are in plain text
// or under an older key, and unseals bodies of kinds that are no longer sealed.
// One pass is enough: after this process has registered its key, nothing is
// sealed with another key until a server with another first key starts, and that
// server makes its own pass. Two passes at once have the same result. between runs a step between two
// writes of the store.
func (d *Database) Reseal(ctx context.Context, between func(context.Context, func() error) error) error {
	if d.Keys == nil {
		return nil
	}
	r := resealing{Database: d, between: between}
	return r.run(ctx)
}

// resealing is one pass. Owned by one goroutine.
type resealing struct {
	*Database
	between func(context.Context, func() error) error

	changed, failed int
	plain           int // of changed: those that were in plain text
}

func (r *resealing) run(ctx context.Context) error {
	kinds, err := sealedKinds(ctx, r.DB)
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		if err := r.kind(ctx, kind); err != nil {
			return fmt.Errorf("seal %s again: %w", kind, err)
		}
	}
	r.report()
	return nil
}

// report logs the result of the pass.
func (r *resealing) report() {
	if r.plain > 0 {
		r.Logger.Warn("bodies that were in plain text are sealed now; their old text is in unused pages of the database until it is vacuumed: see docs/keys.md",
			"bodies", r.plain)
	}
	switch {
	case r.failed > 0:
		r.Logger.Error("some bodies do not open: keep all keys; the lines above name the objects", "bodies", r.failed)
	case r.changed > 0 || len(r.Keys.Names()) > 1:
		r.Logger.Info("every sealed body is under the first key: other keys may leave the configuration",
			"key", r.Keys.Names()[0], "sealed again", r.changed)
	}
}

func (r *resealing) kind(ctx context.Context, kind string) error {
	for after, more := int64(0), true; more; {
		err := r.between(ctx, func() (err error) {
			after, more, err = r.step(ctx, kind, after)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sealedRow is a row of changes.
type sealedRow struct {
	Object
	revision int64
	body     []byte
}

// step is one transaction. It returns the revision after which the next begins.
func (r *resealing) step(ctx context.Context, kind string, after int64) (last int64, more bool, err error) {
	tx, err := r.DB.Begin(ctx)
	if err != nil {
		return 0, false, err
	}
	defer tx.Rollback()
	with, rows, err := r.read(ctx, tx, kind, after)
	if err != nil {
		return 0, false, err
	}
	var b sqldb.Batch
	for _, row := range rows {
		body, err := r.again(row, with)
		if err != nil {
			r.failed++
			r.Logger.Error("a body does not open", "object", row.Key.String(), "uid", row.UID, "revision", row.revision, "error", err)
			continue
		}
		r.changed++
		if _, sealed := SealedBy(row.body); !sealed {
			r.plain++
		}
		b.Exec(replaceBody, row.revision, body)
	}
	more = len(rows) == resealStep
	if !more && !r.Keys.Seals(kind) && r.failed == 0 {
		b.Exec(deleteSealedKind, kind)
	}
	if b.Len() == 0 {
		return lastOf(rows, after), more, nil
	}
	if err := tx.Send(ctx, &b); err != nil {
		return 0, false, err
	}
	return lastOf(rows, after), more, tx.Commit(ctx)
}

func lastOf(rows []sealedRow, after int64) int64 {
	if len(rows) == 0 {
		return after
	}
	return rows[len(rows)-1].revision
}

// read returns the sealing key and the next bodies that must be sealed again.
func (r *resealing) read(ctx context.Context, tx *sqldb.Tx, kind string, after int64) (with string, rows []sealedRow, err error) {
	var first sqldb.Batch
	r.lock(&first)
	QueryKey(&first, &with)
	if err := tx.Send(ctx, &first); err != nil {
		return "", nil, err
	}
	if !r.Keys.Has(with) { // another replica has changed it since
		return "", nil, &MissingKeyError{Name: with, Source: r.Keys.Source()}
	}
	statement, prefix := readUnsealed, Prefix(with)
	if !r.Keys.Seals(kind) {
		statement, prefix = readSealed, Mark()
	}
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		found := sealedRow{Object: Object{Key: object.Key{Kind: kind}}}
		if err := row.Scan(&found.revision, &found.UID, &found.Namespace, &found.Name, &found.body); err != nil {
			return err
		}
		rows = append(rows, found)
		return nil
	}, statement, kind, after, prefix, int64(len(prefix)), int64(resealStep))
	return with, rows, tx.Send(ctx, &b)
}

// again returns the body as it must be stored.
func (r *resealing) again(row sealedRow, with string) ([]byte, error) {
	body, err := r.Keys.Open(row.Object, row.body)
	if err != nil || !r.Keys.Seals(row.Kind) {
		return body, err
	}
	return r.Keys.Seal(with, row.Object, body)
}
