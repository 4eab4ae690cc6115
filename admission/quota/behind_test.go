package quota_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

// deaf gives a replica a feed without room, which does not look for changes of others either.
func deaf(o *store.Options) { o.RingEvents, o.RingBytes, o.PollEvery = 1, 1, time.Hour }

// deafPair is two deaf replicas on one database, with a namespace n and a quota of three ConfigMaps,
// and what runs SQL beside them. On SQLite each has nothing but the log to learn from the other.
func deafPair(t *testing.T, db *sqldb.DB) (a, b *world, sql dbtest.SQL) {
	t.Helper()
	a, b = start(t, db, deaf), start(t, db, deaf)
	storetest.Create(t, a.store, storetest.Namespace(t, "n"))
	a.quota("q", `{"hard":{"configmaps":"3"}}`)
	return a, b, dbtest.NewSQL(t, db)
}

// full checks that there is room for exactly some more ConfigMaps, by filling the namespace.
func (w *world) full(room int) {
	w.Helper()
	for i := range room {
		w.must("configmaps", fmt.Sprint("fill-", i), "")
	}
	w.refused(w.create("configmaps", "over", ""), "exceeded quota: q, requested: configmaps=1, used: configmaps=3, limited: configmaps=3")
}

// TestBehindTheFeed: a ledger whose changes are not in the feed, of its own replica or of another
// one, is exact all the same.
func TestBehindTheFeed(t *testing.T) {
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		a, b, _ := deafPair(t, db)
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		exists := map[string]bool{}
		for range 300 {
			w := a
			if random.IntN(2) == 0 {
				w = b
			}
			name := string(rune('a' + random.IntN(6)))
			switch random.IntN(4) {
			case 0:
				w.must("secrets", fmt.Sprint("s-", random.Uint64()), "") // no quota counts it
			case 1:
				_, err := w.store.Delete(t.Context(), store.DeleteRequest{Key: object.Key{Kind: "configmaps", Namespace: "n", Name: name}})
				if err != nil && (exists[name] || !object.Is(err, object.NotFound)) {
					t.Fatal(err)
				}
				delete(exists, name)
			default:
				err := w.create("configmaps", name, "")
				switch {
				case exists[name] && (object.Is(err, object.AlreadyExists) || object.Is(err, object.Forbidden)):
				case !exists[name] && len(exists) == 3:
					w.refused(err, "exceeded quota: q, requested: configmaps=1, used: configmaps=3, limited: configmaps=3")
				case exists[name] || err != nil:
					t.Fatalf("create %s beside %v: %v", name, exists, err)
				default:
					exists[name] = true
				}
			}
		}
		if got, want := a.status("q"), fmt.Sprintf("map[configmaps:%d]", len(exists)); got != want {
			t.Errorf("status %s, want %s", got, want)
		}
	})
}

// TestCompactedBehindTheFeed: a ledger that lacks changes which have left the log, too, counts
// again.
func TestCompactedBehindTheFeed(t *testing.T) {
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		a, b, sql := deafPair(t, db)
		a.full(3)
		b.stop()
		b = start(t, db, deaf, func(o *store.Options) { o.KeepRevisions, o.CompactEvery = 1, time.Millisecond })
		for i := range 2 {
			b.delete("configmaps", fmt.Sprint("fill-", i))
		}
		removed := b.store.Revision()
		for deadline := time.Now().Add(time.Minute); sql.Count(`SELECT count(*) FROM revision WHERE compacted >= $1`, removed) == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("nothing is compacted")
			}
			b.must("secrets", fmt.Sprint("s-", time.Now().UnixNano()), "")
		}
		a.full(2)
	})
}

// TestLogBreaksOff: a ledger that could read only a part of the changes it lacks does not count
// that part twice.
func TestLogBreaksOff(t *testing.T) {
	t.Parallel()
	db := dbtest.OpenDB(t, sqldb.Postgres)
	a, b, sql := deafPair(t, db)
	a.must("configmaps", "a", "")
	sql.Exec(`ALTER TABLE changes ALTER COLUMN uid DROP NOT NULL`)
	err := b.store.Transact(t.Context(), func(tx *store.Tx) error {
		for i := range 2 {
			if err := tx.Restore(t.Context(), b.request("configmaps", fmt.Sprint("fill-", i), "")); err != nil {
				return err
			}
		}
		if err := tx.Flush(); err != nil {
			return err
		}
		tx.Defer(`UPDATE changes SET uid = NULL WHERE name = 'fill-1'`) // the log cannot be read from here on
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.create("configmaps", "over", ""); err == nil || object.Is(err, object.Forbidden) {
		t.Fatalf("create: %v; want an error that the log cannot be read", err)
	}
	sql.Exec(`UPDATE changes SET uid = (SELECT uid FROM objects WHERE name = 'fill-1') WHERE name = 'fill-1'`)
	a.full(0)
}
