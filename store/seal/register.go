package seal

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/exeunt/exeunt/sqldb"
)

// Bodies of some kinds are sealed in the table changes, the only table with
// bodies. In memory they are plain. So the store opens a body when it reads the
// row, and seals it when it accepts an effect.
//
// A row of the database names the sealing key (seal_keys.sealing), and every
// writer reads it under the lock on the revision. So all replicas seal with the
// same key, a replica that lacks it refuses to write, and after a change of the
// sealing key no body is sealed with the old one. docs/spec/sealing.md has the
// interleavings.

// Database is a database with the keys of this process.
type Database struct {
	DB     *sqldb.DB
	Keys   *Keys // nil means nothing is sealed
	Logger *slog.Logger
	Every  time.Duration // between two looks at whether all replicas have the next sealing key
}

// QueryKey adds the statement that reads the name of the sealing key.
func QueryKey(b *sqldb.Batch, name *string) {
	b.Query(func(row sqldb.Row) error { return row.Scan(name) }, readSealingKey)
}

// lock adds the statement that takes the lock on the revision. On SQLite the transaction is the lock.
func (d *Database) lock(b *sqldb.Batch) {
	if d.DB.Engine() == sqldb.Postgres {
		b.Exec(lockRevision)
	}
}

// Registered returns the names of the keys that are registered in a database. None:
// nothing in it is sealed.
func Registered(ctx context.Context, db *sqldb.DB) ([]string, error) {
	rows, err := readRegistered(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("read the keys of the database: %w", err)
	}
	names := make([]string, len(rows))
	for i := range rows {
		names[i] = rows[i].name
	}
	return names, nil
}

func readRegistered(ctx context.Context, s sqldb.Sender) (rows []registered, err error) {
	err = sqldb.Each(ctx, s, sqldb.Into(&rows, func(r *registered) []any { return []any{&r.name, &r.check, &r.sealing} }), readSealKeys)
	return rows, err
}

// registered is a row of seal_keys.
type registered struct {
	name    string
	check   []byte
	sealing bool
}

// WrongKeysError says why a server with these keys must not use the database.
type WrongKeysError struct{ text string }

func (e *WrongKeysError) Error() string { return e.text }

// Register compares the keys of this process with those of the database. If no
// other process can be there, or nothing seals yet, it makes its first key the
// sealing key; Reseal does that otherwise. It fails if a body in the database needs a
// key that this process lacks, unless lost names that key: then it gives those bodies up. It holds the
// lock on the revision, so replicas that start at once run it one after the other. Error: *WrongKeysError.
func (d *Database) Register(ctx context.Context, lost string) error {
	if d.Keys == nil {
		return nil
	}
	if err := d.register(ctx, lost, d.DB.Engine() == sqldb.SQLite); err != nil {
		return err
	}
	var have []string
	for _, name := range d.Keys.Names() {
		have = append(have, announced(name))
	}
	d.DB.Announce(have...)
	return nil
}

// announced is how a process says that it has a key.
func announced(name string) string { return "sealing key " + name }

// register is Register. begin makes the first key the sealing key in any case.
func (d *Database) register(ctx context.Context, lost string, begin bool) error {
	keys := d.Keys
	return d.DB.Transact(ctx, func(tx *sqldb.Tx) error {
		var b sqldb.Batch
		d.lock(&b)
		if err := tx.Send(ctx, &b); err != nil {
			return err
		}
		rows, err := readRegistered(ctx, tx)
		if err != nil {
			return err
		}
		known, sealing := map[string]bool{}, false
		for _, r := range rows {
			if r.name == lost {
				if err := d.giveUp(ctx, tx, r.name); err != nil {
					return err
				}
				known[r.name] = false
				continue
			}
			if err := d.checkRegistered(ctx, tx, r); err != nil {
				return err
			}
			known[r.name] = keys.Has(r.name)
			sealing = sealing || r.sealing && known[r.name]
		}
		b, err = registration(keys, known, begin || !sealing)
		if err != nil {
			return err
		}
		return tx.Send(ctx, &b)
	})
}

// registration returns the statements that register the keys and kinds of this
// process. known are the keys of the database, and whether this process has them;
// no body needs a key that it lacks: see checkRegistered.
func registration(keys *Keys, known map[string]bool, begin bool) (b sqldb.Batch, err error) {
	for name, held := range known {
		if !held {
			b.Exec(deleteSealKey, name)
		}
	}
	for _, name := range keys.Names() {
		if known[name] {
			continue
		}
		check, err := keys.CheckValue(name)
		if err != nil {
			return b, err
		}
		b.Exec(insertSealKey, name, check)
	}
	for _, kind := range keys.Kinds() {
		b.Exec(insertSealedKind, kind)
	}
	if begin {
		b.Exec(endSealing)
		b.Exec(beginSealing, keys.Names()[0])
	}
	return b, nil
}

// checkRegistered refuses a key of the database if this process has another key
// with the same name, or lacks the key although a body needs it.
func (d *Database) checkRegistered(ctx context.Context, tx *sqldb.Tx, r registered) error {
	keys := d.Keys
	if keys.Has(r.name) {
		if !keys.Matches(r.name, r.check) {
			return &WrongKeysError{fmt.Sprintf("key %q in %s is not the key %q of this database: the names are the same, the secrets differ. "+
				"Put the file in place that this database was used with, from its backup or from another replica", r.name, keys.Source(), r.name)}
		}
		return nil
	}
	bodies, err := countBodies(ctx, tx, r.name)
	if err != nil {
		return err
	}
	// On PostgreSQL another replica may be about to seal with this key.
	if bodies == 0 && (!r.sealing || d.DB.Engine() == sqldb.SQLite) {
		return nil
	}
	return &WrongKeysError{fmt.Sprintf("%d bodies (of Secrets, unless more is configured) in this database are sealed with key %q, which %s does not have. "+
		"Nothing is lost: find the key in the backup, or in encryption.yaml in the data directory of a replica that runs; add it to the end of the list of keys, "+
		"or give that file with --encryption-provider-config, and start again. If the key is lost for good: docs/keys.md, \"The key is lost\"", bodies, r.name, keys.Source())}
}

// countBodies counts what is sealed with a key.
func countBodies(ctx context.Context, s sqldb.Sender, key string) (bodies int64, err error) {
	kinds, err := sealedKinds(ctx, s)
	if err != nil {
		return 0, err
	}
	var counts []int64
	var b sqldb.Batch
	prefix := Prefix(key)
	for _, kind := range kinds {
		b.Query(sqldb.Values(&counts), countSealed, kind, prefix, int64(len(prefix)))
	}
	err = s.Send(ctx, &b)
	for _, n := range counts {
		bodies += n
	}
	return bodies, err
}

func sealedKinds(ctx context.Context, s sqldb.Sender) ([]string, error) {
	return sqldb.Column[string](ctx, s, readSealedKinds)
}
