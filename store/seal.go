package store

import (
	"context"
	"fmt"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/seal"
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

func sealObject(key object.Key, uid string) seal.Object {
	return seal.Object{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, UID: uid}
}

// Unseal opens the body of an object that was read from the table changes.
func (s *Store) Unseal(o *object.Object) (err error) {
	o.Body, err = s.open(o.Key, string(o.UID), o.Body)
	return err
}

func (s *Store) open(key object.Key, uid string, stored []byte) ([]byte, error) {
	return s.opts.Keys.Open(sealObject(key, uid), stored)
}

// Unseal opens the body of an object that was read in the transaction.
func (t *Tx) Unseal(o *Stored) (err error) {
	o.stored = len(o.Body)
	o.Body, err = t.keys.Open(sealObject(o.Key, string(o.UID)), o.Body)
	return err
}

// seal sets f.stored: the effect's body, sealed with the key of this name if its
// kind is sealed.
func (f *effect) seal(keys *seal.Keys, with string) (err error) {
	f.stored = f.body
	if f.Type != Removed && keys.Seals(f.key.Kind) {
		f.stored, err = keys.Seal(with, sealObject(f.key, f.uid), f.body)
	}
	return err
}

// querySealingKey adds the statement that reads the name of the sealing key.
func querySealingKey(b *sqldb.Batch, name *string) {
	b.Query(func(row sqldb.Row) error { return row.Scan(name) }, readSealingKey)
}

// SealKeys returns the names of the keys that are registered in a database. None:
// nothing in it is sealed.
func SealKeys(ctx context.Context, db *sqldb.DB) ([]string, error) {
	var names []string
	rows, err := db.Query(ctx, readSealKeys)
	if err != nil {
		return nil, fmt.Errorf("read the keys of the database: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		var check []byte
		var sealing bool
		if err := rows.Scan(&name, &check, &sealing); err != nil {
			return nil, fmt.Errorf("read the keys of the database: %w", err)
		}
		names = append(names, name)
	}
	return names, rows.Err()
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

// registerKeys compares the keys of this process with those of the database, and
// makes its first key the sealing key. It fails if a body in the database needs a
// key that this process lacks. It holds the lock on the revision, so replicas
// that start at once run it one after the other.
func (s *Store) registerKeys(ctx context.Context) error {
	keys := s.opts.Keys
	if keys == nil {
		return nil
	}
	return s.db.Transact(ctx, func(tx *sqldb.Tx) error {
		var b sqldb.Batch
		var current, compacted int64
		var rows []registered
		lock(&b, s.db.Engine(), &current, &compacted)
		b.Query(func(row sqldb.Row) error {
			var r registered
			if err := row.Scan(&r.name, &r.check, &r.sealing); err != nil {
				return err
			}
			rows = append(rows, r)
			return nil
		}, readSealKeys)
		if err := tx.Send(ctx, &b); err != nil {
			return err
		}
		known := map[string]bool{}
		for _, r := range rows {
			if r.name == s.opts.GiveUpKey {
				if err := s.giveUp(ctx, tx, r.name); err != nil {
					return err
				}
				known[r.name] = false
				continue
			}
			if err := s.checkRegistered(ctx, tx, r); err != nil {
				return err
			}
			known[r.name] = keys.Has(r.name)
		}
		b, err := registration(keys, known)
		if err != nil {
			return err
		}
		return tx.Send(ctx, &b)
	})
}

// registration returns the statements that register the keys and kinds of this
// process. known are the keys of the database, and whether this process has them;
// no body needs a key that it lacks: see checkRegistered.
func registration(keys *seal.Keys, known map[string]bool) (b sqldb.Batch, err error) {
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
	b.Exec(endSealing)
	b.Exec(beginSealing, keys.Names()[0])
	return b, nil
}

// checkRegistered refuses a key of the database if this process has another key
// with the same name, or lacks the key although a body needs it.
func (s *Store) checkRegistered(ctx context.Context, tx *sqldb.Tx, r registered) error {
	keys := s.opts.Keys
	if keys.Has(r.name) {
		if !keys.Matches(r.name, r.check) {
			return &WrongKeysError{fmt.Sprintf("key %q in %s is not the key %q of this database: the names are the same, the secrets differ. "+
				"Put the file in place that this database was used with, from its backup or from another replica", r.name, keys.Source(), r.name)}
		}
		return nil
	}
	var bodies int64
	kinds, err := readSealedKindsIn(ctx, tx)
	if err != nil {
		return err
	}
	var b sqldb.Batch
	prefix := seal.Prefix(r.name)
	for _, kind := range kinds {
		b.Query(func(row sqldb.Row) error {
			var n int64
			err := row.Scan(&n)
			bodies += n
			return err
		}, countSealed, kind, prefix, int64(len(prefix)))
	}
	if err := tx.Send(ctx, &b); err != nil {
		return err
	}
	// On PostgreSQL another replica may be about to seal with this key.
	if bodies == 0 && (!r.sealing || s.db.Engine() == sqldb.SQLite) {
		return nil
	}
	return &WrongKeysError{fmt.Sprintf("%d bodies (of Secrets, unless more is configured) in this database are sealed with key %q, which %s does not have. "+
		"Nothing is lost: find the key in the backup, or in encryption.yaml in the data directory of a replica that runs; add it to the end of the list of keys, "+
		"or give that file with --encryption-provider-config, and start again. If the key is lost for good: docs/operating.md, \"The key is lost\"", bodies, r.name, keys.Source())}
}

func readSealedKindsIn(ctx context.Context, tx *sqldb.Tx) ([]string, error) {
	var kinds []string
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		var kind string
		err := row.Scan(&kind)
		kinds = append(kinds, kind)
		return err
	}, readSealedKinds)
	return kinds, tx.Send(ctx, &b)
}
