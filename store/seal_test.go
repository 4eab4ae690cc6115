package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store/seal"
)

const secrets = "secrets"

// testKeys are keys of these names, which seal secrets and things.
func testKeys(t testing.TB, names ...string) *seal.Keys {
	t.Helper()
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets, " + things + "]\n  providers:\n  - aesgcm:\n      keys:\n"
	for _, name := range names {
		secret := base64.StdEncoding.EncodeToString([]byte((name + strings.Repeat("x", 32))[:32]))
		text += fmt.Sprintf("      - {name: %q, secret: %q}\n", strings.TrimRight(name, "'"), secret)
	}
	keys, err := seal.Parse([]byte(text), "keys.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// newSecret is a create of a Secret with a value.
func newSecret(namespace, name, value string) CreateRequest {
	r := newRequest(namespace, name)
	r.Key.Kind = secrets
	r.Body = bodyOf(r.Meta, value)
	return r
}

// leaks returns the places in a database where a text can be found.
func leaks(t testing.TB, db *sqldb.DB, text string) []string {
	t.Helper()
	if db.Engine() == sqldb.Postgres {
		return leaksPostgres(t, db, text)
	}
	var n, name, file string
	if err := db.Reader().QueryRow(`PRAGMA database_list`).Scan(&n, &name, &file); err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range []string{file, file + "-wal"} {
		data, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte(text)) {
			found = append(found, path)
		}
	}
	return found
}

// leaksPostgres looks at every row of every table, where bytes are hexadecimal.
func leaksPostgres(t testing.TB, db *sqldb.DB, text string) []string {
	t.Helper()
	rows, err := db.Reader().Query(`SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = current_schema()`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var tables, found []string
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, table)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if len(tables) == 0 {
		t.Fatal("no tables were found")
	}
	for _, table := range tables {
		var n int
		err := db.Reader().QueryRow(`SELECT count(*) FROM `+table+` AS r WHERE strpos(r::text, $1) > 0 OR strpos(r::text, $2) > 0`,
			text, hex.EncodeToString([]byte(text))).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			found = append(found, table)
		}
	}
	return found
}

func noLeaks(t testing.TB, db *sqldb.DB, when string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if found := leaks(t, db, text); len(found) > 0 {
			t.Errorf("%s: %q is in %v", when, text, found)
		}
	}
}

var sealedOptions = ArchiveOptions{For: time.Hour}

// TestSecretsAreSealedAtRest searches the whole database for the content of Secrets,
// after each operation on one.
func TestSecretsAreSealedAtRest(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		o := Options{DB: db, Keys: testKeys(t, "a"), Archive: sealedOptions}
		s := run(t, o)
		createNamespace(t, s.Store, "shop")
		control := newRequest("shop", "plain")
		control.Key.Kind, control.Body = "configmaps", bodyOf(control.Meta, "found-in-plain-text")
		create(t, s.Store, control)
		if len(leaks(t, db, "found-in-plain-text")) == 0 {
			t.Fatal("the search does not find a text that is stored in plain")
		}

		first := create(t, s.Store, newSecret("shop", "token", "horse-battery-1"))
		noLeaks(t, db, "create", "horse-battery-1")
		second := change(t, s.Store, first, "horse-battery-2")
		noLeaks(t, db, "update", "horse-battery-1", "horse-battery-2")
		wantBody(t, s.Store, second.Key, second.Body)

		// The collector's transaction: one by one, and many at once.
		var stored []*Stored
		for i := range minSet + 1 {
			made := create(t, s.Store, newSecret("shop", fmt.Sprint("many-", i), "horse-battery-3"))
			stored = append(stored, &Stored{Object: made})
		}
		rewriteAll(t, s.Store, stored, "horse-battery-4")
		noLeaks(t, db, "rewrite", "horse-battery-3", "horse-battery-4")
		wantBody(t, s.Store, stored[0].Key, stored[0].Body)

		remove(t, s.Store, second.Key)
		noLeaks(t, db, "delete and archive", "horse-battery-1", "horse-battery-2")
		s.stop()
		noLeaks(t, db, "stop", "horse-battery-1", "horse-battery-2", "horse-battery-3", "horse-battery-4")

		again := run(t, o)
		if err := again.compact(t.Context(), again.Revision()); err != nil {
			t.Fatal(err)
		}
		wantBody(t, again.Store, stored[0].Key, stored[0].Body)
		noLeaks(t, db, "restart and compaction", "horse-battery-1", "horse-battery-2", "horse-battery-3", "horse-battery-4")
		wantArchivedBytes(t, again.Store)
	})
}

func wantBody(t testing.TB, s *Store, key object.Key, want []byte) {
	t.Helper()
	got, err := s.Get(t.Context(), key)
	if err != nil || !bytes.Equal(got.Body, want) {
		t.Errorf("%s is %s, %v; want %s", key, got.Body, err, want)
	}
	l, err := s.List(t.Context(), ListRequest{Kind: key.Kind, Match: func(o *object.Object) (bool, error) { return o.Name == key.Name, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if !l.Next() || !bytes.Equal(l.Object().Body, want) {
		t.Errorf("%s is listed as %s, %v; want %s", key, l.Object().Body, l.Err(), want)
	}
}

// rewriteAll rewrites objects in one transaction, as the collector reads them.
func rewriteAll(t testing.TB, s *Store, all []*Stored, value string) {
	t.Helper()
	err := s.Transact(t.Context(), func(tx *Tx) error {
		for _, o := range all {
			found, err := tx.Get(t.Context(), o.Key)
			if err != nil {
				return err
			}
			*o = *found
			m, err := object.ParseMeta(o.Body)
			if err != nil {
				return err
			}
			next, err := tx.Rewrite(o, &m, bodyOf(m, value))
			if err != nil {
				return err
			}
			*o = *next
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// wantArchivedBytes: the sum that bounds the archive is that of its rows, and of
// the bodies as they are stored.
func wantArchivedBytes(t testing.TB, s *Store) {
	t.Helper()
	var sum, rows, bodies int64
	err := s.db.Reader().QueryRow(`SELECT (SELECT archived FROM revision), sum(a.size), sum(octet_length(c.body))
		FROM archive a JOIN changes c ON c.revision = a.body_revision`).Scan(&sum, &rows, &bodies)
	if err != nil || sum != rows || sum != bodies || sum == 0 {
		t.Errorf("the archive has %d bytes, its rows %d, their bodies %d: %v", sum, rows, bodies, err)
	}
}

// TestArchivedBytesOfSealedBodies: bodies that are removed in the batch that created
// them, and in sets, are counted with their stored size.
func TestArchivedBytesOfSealedBodies(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		s := run(t, Options{DB: db, Keys: testKeys(t, "a"), Archive: sealedOptions})
		createNamespace(t, s.Store, "shop")
		var stored []*Stored
		for i := range minSet + 1 {
			stored = append(stored, &Stored{Object: create(t, s.Store, newSecret("shop", fmt.Sprint("many-", i), "x"))})
		}
		rewriteAll(t, s.Store, stored, "longer than before")
		err := s.Transact(t.Context(), func(tx *Tx) error {
			for _, o := range stored {
				tx.Remove(o)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		wantArchivedBytes(t, s.Store)
	})
}

// TestWatchOfSealed: watchers get plain bodies from memory and from the log, on
// the replica that wrote and after a restart.
func TestWatchOfSealed(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		o := Options{DB: db, Keys: testKeys(t, "a")}
		s := run(t, o)
		createNamespace(t, s.Store, "shop")
		from := s.Revision()
		made := create(t, s.Store, newSecret("shop", "token", "one"))
		made = change(t, s.Store, made, "two")
		remove(t, s.Store, made.Key)
		live := newReplay(t, from)
		live.follow(watch(t, s.Store, WatchRequest{Kind: secrets, From: from}), s.Revision())
		s.stop()
		again := run(t, o)
		logged := newReplay(t, from)
		logged.follow(watch(t, again.Store, WatchRequest{Kind: secrets, From: from}), again.Revision())
	})
}

// storedUnder counts the bodies of a kind by the key that sealed them.
func storedUnder(t testing.TB, db *sqldb.DB, kind string) map[string]int {
	t.Helper()
	rows, err := db.Reader().Query(`SELECT body FROM changes WHERE body IS NOT NULL AND kind = '` + kind + `'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	count := map[string]int{}
	for rows.Next() {
		var body []byte
		if err := rows.Scan(&body); err != nil {
			t.Fatal(err)
		}
		name, _ := seal.SealedBy(body)
		count[name]++
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return count
}

// awaitUnder waits until all bodies of secrets are under one key ("" means plain).
func awaitUnder(t testing.TB, db *sqldb.DB, kind, key string) {
	t.Helper()
	dbtest.Until(t, "all bodies are under the key", func() error {
		if count := storedUnder(t, db, kind); len(count) != 1 || count[key] == 0 {
			return fmt.Errorf("bodies of %s by key: %v, want all under %q", kind, count, key)
		}
		return nil
	})
}

// TestRotation begins with a database in plain text, and goes from one key to
// the next; each start seals again what is there.
func TestRotation(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		plain := run(t, Options{DB: db, Archive: sealedOptions})
		createNamespace(t, plain.Store, "shop")
		var all []object.Object
		for i := range 2*resealStep + 3 { // several steps
			all = append(all, create(t, plain.Store, newSecret("shop", fmt.Sprint("s-", i), "horse-battery")))
		}
		gone := all[0]
		remove(t, plain.Store, gone.Key)
		plain.stop()
		if len(leaks(t, db, "horse-battery")) == 0 {
			t.Fatal("a database in plain text has nothing to be found")
		}
		for _, names := range [][]string{{"a"}, {"b", "a"}, {"b"}, {"c", "b"}} {
			s := run(t, Options{DB: db, Keys: testKeys(t, names...), Archive: sealedOptions})
			awaitUnder(t, db, secrets, names[0])
			for _, o := range []object.Object{all[1], all[len(all)-1]} {
				wantBody(t, s.Store, o.Key, o.Body)
			}
			s.stop()
			vacuum(t, db)
			noLeaks(t, db, fmt.Sprint("keys ", names), "horse-battery")
		}
	})
}

// vacuum is what docs/keys.md says to do after a database in plain text was
// sealed: pages that are not used any more still have the old text.
func vacuum(t testing.TB, db *sqldb.DB) {
	t.Helper()
	if db.Engine() != sqldb.SQLite {
		return
	}
	var n, name, file string
	if err := db.Reader().QueryRow(`PRAGMA database_list`).Scan(&n, &name, &file); err != nil {
		t.Fatal(err)
	}
	beside, err := sql.Open("sqlite", file)
	if err == nil {
		_, err = beside.Exec(`VACUUM`)
	}
	if err == nil {
		_, err = beside.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`)
	}
	if err = errors.Join(err, beside.Close()); err != nil {
		t.Fatal(err)
	}
}

// secretsOnly are the keys of testKeys(t, "a"), and seal secrets but no things.
func secretsOnly(t testing.TB) *seal.Keys {
	t.Helper()
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - aesgcm: {keys: [{name: a, secret: " +
		base64.StdEncoding.EncodeToString([]byte("a"+strings.Repeat("x", 31))) + "}]}\n"
	keys, err := seal.Parse([]byte(text), "keys.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestUnsealAgain: a kind that is not listed any more goes back to plain text.
func TestUnsealAgain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		s := run(t, Options{DB: db, Keys: testKeys(t, "a")})
		createNamespace(t, s.Store, "shop")
		o := create(t, s.Store, newRequest("shop", "thing"))
		awaitUnder(t, db, things, "a")
		s.stop()
		again := run(t, Options{DB: db, Keys: secretsOnly(t)})
		awaitUnder(t, db, things, "")
		wantBody(t, again.Store, o.Key, o.Body)
	})
}

// TestUnsealNotAll: a kind of which a body does not open counts as sealed until it does: the next
// start tries again.
func TestUnsealNotAll(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		s := run(t, Options{DB: db, Keys: testKeys(t, "a")})
		createNamespace(t, s.Store, "shop")
		first := create(t, s.Store, newRequest("shop", "first"))
		for i := range resealStep { // the pass has a second step, in which all bodies open
			create(t, s.Store, newRequest("shop", fmt.Sprint("thing-", i)))
		}
		awaitUnder(t, db, things, "a")
		s.stop()
		sql := dbtest.NewSQL(t, db)
		swap := func() { // the first body and that of another object: neither opens in the place of the other
			var bodies [2][]byte
			for i := range bodies {
				if _, err := db.Row(t.Context(), `SELECT body FROM changes WHERE revision = $1`, []any{first.Revision + int64(i)}, &bodies[i]); err != nil {
					t.Fatal(err)
				}
			}
			for i := range bodies {
				sql.Exec(`UPDATE changes SET body = $2 WHERE revision = $1`, first.Revision+int64(i), bodies[1-i])
			}
		}
		pass := func() (sealedKinds int) {
			t.Helper()
			s := run(t, Options{DB: db, Keys: secretsOnly(t)})
			defer s.stop()
			if err := s.sealed.Reseal(t.Context(), s.writer.do); err != nil {
				t.Fatal(err)
			}
			return sql.Count(`SELECT count(*) FROM sealed_kinds WHERE kind = $1`, things)
		}
		swap()
		if n := pass(); n != 1 || storedUnder(t, db, things)["a"] != 2 {
			t.Errorf("the kind counts as sealed: %d; bodies by key: %v", n, storedUnder(t, db, things))
		}
		swap()
		if n := pass(); n != 0 || storedUnder(t, db, things)["a"] != 0 {
			t.Errorf("the kind counts as sealed: %d; bodies by key: %v", n, storedUnder(t, db, things))
		}
	})
}

// TestWrongKeys: a server that lacks a key that is needed, or has another of the
// same name, is refused and changes nothing.
func TestWrongKeys(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		s := run(t, Options{DB: db, Keys: testKeys(t, "a")})
		createNamespace(t, s.Store, "shop")
		o := create(t, s.Store, newSecret("shop", "token", "x"))
		s.stop()
		for _, names := range [][]string{{"b"}, {"a'"}} { // another key; another one of the same name
			_, err := Open(t.Context(), Options{DB: db, Keys: testKeys(t, names...)})
			var wrong *seal.WrongKeysError
			if !errors.As(err, &wrong) || !strings.Contains(err.Error(), `key "a"`) || !strings.Contains(err.Error(), "keys.yaml") {
				t.Errorf("keys %v: %v", names, err)
			}
		}
		again := run(t, Options{DB: db, Keys: testKeys(t, "a")})
		wantBody(t, again.Store, o.Key, o.Body)
		if names, err := seal.Registered(t.Context(), db); err != nil || len(names) != 1 || names[0] != "a" {
			t.Errorf("the database has keys %v, %v", names, err)
		}
	})
}

// TestFirstKeysOfTwoReplicas: of two replicas that each made a key of its own, the
// second is refused, although nothing is sealed yet.
func TestFirstKeysOfTwoReplicas(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		if db.Engine() != sqldb.Postgres {
			_, err := Open(t.Context(), Options{DB: db, Keys: testKeys(t, "a")})
			if err == nil { // SQLite has one process: a key that sealed nothing is not missed
				_, err = Open(t.Context(), Options{DB: db, Keys: testKeys(t, "b")})
			}
			if err != nil {
				t.Error(err)
			}
			return
		}
		run(t, Options{DB: db, Keys: testKeys(t, "a")})
		var wrong *seal.WrongKeysError
		if _, err := Open(t.Context(), Options{DB: db, Keys: testKeys(t, "b")}); !errors.As(err, &wrong) {
			t.Errorf("a second replica with a key of its own: %v", err)
		}
	})
}

// TestReplicaWithoutTheNewKey: when another replica begins to seal with a key
// that this one lacks, this one writes no Secrets and shows none of the new
// ones; all else goes on.
func TestReplicaWithoutTheNewKey(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		if db.Engine() != sqldb.Postgres {
			return // SQLite has one process
		}
		old := run(t, Options{DB: db, Keys: testKeys(t, "a"), PollEvery: 20 * time.Millisecond})
		createNamespace(t, old.Store, "shop")
		sql := dbtest.NewSQL(t, db)
		w := watch(t, old.Store, WatchRequest{Kind: secrets, From: old.Revision()})
		other := watch(t, old.Store, WatchRequest{Kind: object.Namespaces, From: old.Revision()})

		next := run(t, Options{DB: db, Keys: testKeys(t, "b", "a"), PollEvery: 20 * time.Millisecond})
		sql.Exec(`UPDATE seal_keys SET sealing = FALSE`) // as if the database did not show the old one
		sql.Exec(`UPDATE seal_keys SET sealing = TRUE WHERE name = 'b'`)
		made := create(t, next.Store, newSecret("shop", "token", "x"))
		createNamespace(t, next.Store, "more")

		var missing *seal.MissingKeyError
		if _, err := old.Get(t.Context(), made.Key); !errors.As(err, &missing) || missing.Name != "b" {
			t.Errorf("get: %v", err)
		}
		if _, err := old.Create(t.Context(), newSecret("shop", "other", "x")); !errors.As(err, &missing) {
			t.Errorf("create: %v", err)
		}
		if _, err := old.Delete(t.Context(), DeleteRequest{Key: made.Key}); !errors.As(err, &missing) {
			t.Errorf("delete: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var err error
		for err == nil {
			_, _, err = w.Next(ctx)
		}
		if !errors.As(err, &missing) {
			t.Errorf("watch of secrets: %v", err)
		}
		newReplay(t, old.Revision()).follow(other, next.Revision()) // the feed is not held up
		createNamespace(t, old.Store, "and-more")
	})
}

// TestMovedBody: a body that is moved to another Secret's row is an error.
func TestMovedBody(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		o := Options{DB: db, Keys: testKeys(t, "a")}
		s := run(t, o)
		createNamespace(t, s.Store, "shop")
		a := create(t, s.Store, newSecret("shop", "a", "theirs"))
		b := create(t, s.Store, newSecret("shop", "b", "ours"))
		s.stop()
		err := db.Transact(t.Context(), func(tx *sqldb.Tx) error {
			var batch sqldb.Batch
			batch.Exec(`UPDATE changes SET body = (SELECT body FROM changes WHERE revision = $1) WHERE revision = $2`, a.Revision, b.Revision)
			return tx.Send(t.Context(), &batch)
		})
		if err != nil {
			t.Fatal(err)
		}
		again := run(t, o)
		if got, err := again.Get(t.Context(), b.Key); err == nil || !strings.Contains(err.Error(), "another object") {
			t.Errorf("get: %s, %v", got.Body, err)
		}
		wantGet(t, again.Store, a)
	})
}

func wantGet(t testing.TB, s *Store, want object.Object) {
	t.Helper()
	if got, err := s.Get(t.Context(), want.Key); err != nil || !bytes.Equal(got.Body, want.Body) {
		t.Errorf("%s is %s, %v", want.Key, got.Body, err)
	}
}
