package store

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// listBy lists and says whether a roll answered.
func listBy(t *testing.T, s *Store, namespace string) (lines []string, byRoll bool) {
	t.Helper()
	l, err := s.List(t.Context(), ListRequest{Kind: things, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	lines = append(lines, fmt.Sprint("at ", l.Revision()))
	for l.Next() {
		lines = append(lines, line(l.Object()))
	}
	if l.Err() != nil {
		t.Fatal(l.Err())
	}
	return lines, l.rolled
}

// TestRollsSayWhatTheDatabaseSays makes random changes, and lists each time
// from the roll and, with the rolls forgotten, from the database.
func TestRollsSayWhatTheDatabaseSays(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		random := rand.New(rand.NewPCG(3, 4))
		live := map[object.Key]object.Object{}
		for round := range 40 {
			for range random.IntN(6) {
				key := object.Key{Kind: things, Namespace: fmt.Sprint("n", random.IntN(3)), Name: fmt.Sprint(random.IntN(6))}
				o, exists := live[key]
				switch {
				case !exists:
					live[key] = create(t, s.Store, newRequest(key.Namespace, key.Name))
				case random.IntN(2) == 0:
					live[key] = change(t, s.Store, o, fmt.Sprint(random.Int()))
				default:
					remove(t, s.Store, key)
					delete(live, key)
				}
			}
			for _, namespace := range []string{"", "n1"} {
				kept := s.rolls.kept[rollKey{things, namespace}]
				rolled, byRoll := listBy(t, s.Store, namespace)
				if !byRoll && round > 0 {
					t.Fatal("the database was asked although a roll was kept")
				}
				s.rolls.forget(rollKey{things, namespace})
				read, byRoll := listBy(t, s.Store, namespace)
				if byRoll {
					t.Fatal("a forgotten roll answered")
				}
				if diff := cmp.Diff(read, rolled); diff != "" {
					t.Fatalf("namespace %q, round %d: the roll differs from the database:\n%s", namespace, round, diff)
				}
				if kept != nil {
					// Go on with the old one: it has several rounds to catch up.
					s.rolls.kept[rollKey{things, namespace}].revision = 0
					s.rolls.put(rollKey{things, namespace}, kept)
				}
			}
		}
	})
}

// TestRollThatTheFeedHasPassed forces the case that changes since the roll are
// no longer in memory.
func TestRollThatTheFeedHasPassed(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		s := run(t, Options{DB: db, RingEvents: 4})
		for i := range 3 {
			create(t, s.Store, newRequest("a", fmt.Sprint(i)))
		}
		listBy(t, s.Store, "")
		for i := range 6 {
			create(t, s.Store, newRequest("b", fmt.Sprint(i)))
		}
		lines, byRoll := listBy(t, s.Store, "")
		if byRoll || len(lines) != 1+9 {
			t.Errorf("by roll: %v, %q", byRoll, lines)
		}
		if _, byRoll := listBy(t, s.Store, ""); !byRoll {
			t.Error("the list after it made no new roll")
		}
	})
}

// TestRollWaitsForNoReplica forces the interleaving that another replica has
// committed, and this one's feed has not heard of it: the list must not be
// older than that commit.
func TestRollWaitsForNoReplica(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		if db.Engine() == sqldb.SQLite {
			return // has one store at a time
		}
		a := run(t, Options{DB: db})
		create(t, a.Store, newRequest("a", "1"))
		// b does not run, so that nobody moves its feed.
		b, err := Open(t.Context(), Options{DB: db})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		listBy(t, b, "")
		if _, byRoll := listBy(t, b, ""); !byRoll {
			t.Fatal("no roll was kept")
		}
		create(t, a.Store, newRequest("a", "2"))
		lines, byRoll := listBy(t, b, "")
		if byRoll || len(lines) != 1+2 {
			t.Errorf("by roll: %v, %q", byRoll, lines)
		}
	})
}

// TestRollWithoutItsBodies forces the case that a body has left the cache.
func TestRollWithoutItsBodies(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		o := create(t, s.Store, newRequest("a", "1"))
		create(t, s.Store, newRequest("a", "2"))
		want, _ := listBy(t, s.Store, "")
		s.bodies.mu.Lock()
		s.bodies.drop(o.Revision)
		s.bodies.mu.Unlock()
		got, byRoll := listBy(t, s.Store, "")
		if diff := cmp.Diff(want, got); diff != "" || byRoll {
			t.Errorf("by roll: %v\n%s", byRoll, diff)
		}
	})
}

func TestRollsAreBounded(t *testing.T) {
	r := newRolls(10)
	for i := range 20 {
		r.put(rollKey{"k", fmt.Sprint(i)}, &roll{revision: 1, entries: make([]entry, 3)})
		if r.get(rollKey{"k", "0"}) == nil {
			t.Fatalf("a roll in use was forgotten after %d others", i)
		}
	}
	if len(r.kept) != 3 || r.total != 9 {
		t.Errorf("%d rolls with %d entries are kept", len(r.kept), r.total)
	}
	r.put(rollKey{"k", "0"}, &roll{revision: 1, entries: make([]entry, 1)})
	if n := len(r.get(rollKey{"k", "0"}).entries); n != 3 {
		t.Errorf("a roll was replaced by one that is no newer, with %d entries", n)
	}
}
