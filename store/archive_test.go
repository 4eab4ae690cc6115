package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// archiving runs a test with a store that archives, on each engine. The clock
// is the test's.
func archiving(t *testing.T, o ArchiveOptions, test func(t *testing.T, s running, clock *clock)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		c := newClock()
		s := runArchiving(t, db, o, c)
		test(t, s, c)
		checkArchivedBytes(t, s.Store)
	})
}

// runArchiving leaves compaction and expiry to the test.
func runArchiving(t *testing.T, db *sqldb.DB, o ArchiveOptions, c *clock) running {
	t.Helper()
	return run(t, Options{DB: db, Archive: o, Now: c.now, CompactEvery: time.Hour, KeepFor: time.Hour})
}

// clock is a clock that the test sets.
type clock struct{ millis atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.millis.Store(1_000_000)
	return c
}

func (c *clock) now() time.Time        { return time.UnixMilli(c.millis.Load()) }
func (c *clock) set(now time.Time)     { c.millis.Store(now.UnixMilli()) }
func (c *clock) move(by time.Duration) { c.set(c.now().Add(by)) }

// rows is the archive as "kind/namespace/name actor cascade body", the oldest
// removal first. Bodies are read through the pointer.
func rows(t *testing.T, s *Store) []string {
	t.Helper()
	found, err := s.db.Reader().Query(`
SELECT a.kind, a.namespace, a.name, a.actor, a.cascade, a.body_revision IS NOT NULL, coalesce(c.revision, 0)
FROM archive a LEFT JOIN changes c ON c.revision = a.body_revision ORDER BY a.id`)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	lines := []string{}
	for found.Next() {
		var kind, namespace, name, actor, cascade string
		var points bool
		var body int64
		if err := found.Scan(&kind, &namespace, &name, &actor, &cascade, &points, &body); err != nil {
			t.Fatal(err)
		}
		state := "without body"
		switch {
		case points && body == 0:
			state = "BODY IS MISSING"
		case points:
			state = "with body"
		}
		kind, _, _ = strings.Cut(kind, ".")
		lines = append(lines, fmt.Sprintf("%s/%s/%s %s %s %s", kind, namespace, name, actor, cascade, state))
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

func wantRows(t *testing.T, s *Store, want ...string) {
	t.Helper()
	if want == nil {
		want = []string{}
	}
	if diff := cmp.Diff(want, rows(t, s)); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
}

// checkArchivedBytes compares the counter with the sum of the rows.
func checkArchivedBytes(t *testing.T, s *Store) {
	t.Helper()
	var counter, sum int64
	err := s.db.Reader().QueryRow(`SELECT archived, (SELECT coalesce(sum(size), 0) FROM archive) FROM revision`).Scan(&counter, &sum)
	if err != nil {
		t.Fatal(err)
	}
	if counter != sum {
		t.Errorf("the counter says %d bytes are archived, the rows say %d", counter, sum)
	}
	checkSums(t, s)
}

// checkSums compares the sums of the cascades with their rows.
func checkSums(t *testing.T, s *Store) {
	t.Helper()
	wrong, err := s.db.Reader().Query(`
SELECT c.id, c.objects, c.bytes, g.objects, g.bytes FROM (
    SELECT cascade, count(*) AS objects, sum(size) AS bytes FROM archive WHERE id <= (SELECT revision FROM archive_counted) GROUP BY cascade
) g FULL OUTER JOIN archive_cascades c ON c.id = g.cascade
WHERE c.objects IS NULL OR c.objects <> coalesce(g.objects, 0) OR c.bytes <> coalesce(g.bytes, 0)
    OR c.objects = 0 AND NOT EXISTS (SELECT 1 FROM archive a WHERE a.cascade = c.id) AND c.leaving IS NULL`)
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Close()
	for wrong.Next() {
		var id sql.NullString
		var n [4]sql.NullInt64
		if err := wrong.Scan(&id, &n[0], &n[1], &n[2], &n[3]); err != nil {
			t.Fatal(err)
		}
		t.Errorf("cascade %s is counted as %d objects, %d bytes; its rows are %d and %d", id.String, n[0].Int64, n[1].Int64, n[2].Int64, n[3].Int64)
	}
	if err := wrong.Err(); err != nil {
		t.Fatal(err)
	}
}

var day = ArchiveOptions{For: 24 * time.Hour}

func TestRemovalIsArchived(t *testing.T) {
	archiving(t, day, func(t *testing.T, s running, _ *clock) {
		plain := create(t, s.Store, newRequest("a", "plain"))
		if _, err := s.Delete(t.Context(), DeleteRequest{Key: plain.Key, Actor: "alice"}); err != nil {
			t.Fatal(err)
		}
		part := create(t, s.Store, newRequest("a", "part"))
		if _, err := s.Delete(t.Context(), DeleteRequest{Key: part.Key, Actor: "alice", Cascade: "many"}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Delete(t.Context(), DeleteRequest{Key: create(t, s.Store, newRequest("a", "dry")).Key, DryRun: true}); err != nil {
			t.Fatal(err)
		}
		unnamed := create(t, s.Store, newRequest("a", "unnamed"))
		remove(t, s.Store, unnamed.Key)
		ns := createNamespace(t, s.Store, "ns")
		if _, err := s.Delete(t.Context(), DeleteRequest{Key: ns.Key, Actor: "bob"}); err != nil {
			t.Fatal(err)
		}
		wantRows(t, s.Store,
			fmt.Sprintf("things/a/plain alice %s with body", plain.UID),
			"things/a/part alice many with body",
			fmt.Sprintf("things/a/unnamed system:exeunt %s with body", unnamed.UID),
			fmt.Sprintf("namespaces/ns/ns bob %s with body", ns.UID),
		)
	})
}

// TestFirstMarkIsRemembered: the actor in the archive is the client that marked the
// object as DELETING, not the one that removed the last finalizer.
func TestFirstMarkIsRemembered(t *testing.T) {
	archiving(t, day, func(t *testing.T, s running, _ *clock) {
		o := create(t, s.Store, newRequest("a", "held", finalizers("x/y")))
		for i, actor := range []string{"alice", "mallory"} {
			d, err := s.Delete(t.Context(), DeleteRequest{Key: o.Key, Actor: actor, Cascade: fmt.Sprint("cascade-", i)})
			if err != nil || d.Outcome == lifecycle.Remove {
				t.Fatalf("%v, %v", d.Outcome, err)
			}
		}
		held, err := s.Get(t.Context(), o.Key)
		if err != nil {
			t.Fatal(err)
		}
		m, err := object.ParseMeta(held.Body)
		if err != nil {
			t.Fatal(err)
		}
		held = change(t, s.Store, held, "an update keeps it")
		m.Finalizers = nil
		_, err = s.Update(t.Context(), UpdateRequest{
			Key: o.Key, IfRevision: held.Revision, Meta: m, Body: bodyOf(m, ""), Remove: true, Actor: "controller",
		})
		if err != nil {
			t.Fatal(err)
		}
		wantRows(t, s.Store, "things/a/held alice cascade-0 with body")
	})
}

func TestWhatIsNotArchived(t *testing.T) {
	secret := func(t *testing.T, s *Store, kind string) object.Object {
		t.Helper()
		r := newRequest("a", "x")
		r.Key.Kind = kind
		o := create(t, s, r)
		remove(t, s, o.Key)
		return o
	}
	t.Run("nothing, when off", func(t *testing.T) {
		archiving(t, ArchiveOptions{}, func(t *testing.T, s running, _ *clock) {
			secret(t, s.Store, things)
			wantRows(t, s.Store)
		})
	})
	t.Run("secrets leave a trace only, when asked for", func(t *testing.T) {
		archiving(t, ArchiveOptions{For: time.Hour, DropSecrets: true}, func(t *testing.T, s running, _ *clock) {
			o := secret(t, s.Store, "secrets")
			wantRows(t, s.Store, fmt.Sprintf("secrets/a/x system:exeunt %s without body", o.UID))
			if err := s.compact(t.Context(), s.Revision()); err != nil {
				t.Fatal(err)
			}
			var n int
			if err := s.db.Reader().QueryRow(`SELECT count(*) FROM changes WHERE kind = 'secrets'`).Scan(&n); err != nil || n != 0 {
				t.Errorf("%d changes of the secret are left: %v", n, err)
			}
		})
	})
	t.Run("secrets", func(t *testing.T) {
		archiving(t, day, func(t *testing.T, s running, _ *clock) {
			o := secret(t, s.Store, "secrets")
			wantRows(t, s.Store, fmt.Sprintf("secrets/a/x system:exeunt %s with body", o.UID))
		})
	})
	t.Run("events", func(t *testing.T) {
		archiving(t, day, func(t *testing.T, s running, _ *clock) {
			secret(t, s.Store, "events")
			wantRows(t, s.Store)
		})
	})
}

// TestNoRowWithoutRemoval: a batch that is rolled back archives nothing.
func TestNoRowWithoutRemoval(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		broken := errors.New("disk on fire")
		var fail atomic.Bool
		s := faulty(t, db, func(f *faultyTx) {
			f.onCommit = func(ctx context.Context, b *sqldb.Batch) error {
				if fail.Load() {
					return broken
				}
				return nil
			}
		})
		s.archive = newArchivist(day)
		r := newRequest("a", "kept")
		start(t, s, func() error { _, err := s.Create(t.Context(), r); return err })
		fail.Store(true)
		if _, err := s.Delete(t.Context(), DeleteRequest{Key: r.Key}); !errors.Is(err, broken) {
			t.Fatalf("delete: %v", err)
		}
		wantRows(t, s)
		if _, err := s.Get(t.Context(), r.Key); err != nil {
			t.Error(err)
		}
		err := s.Transact(t.Context(), func(tx *Tx) error {
			o, err := s.Get(t.Context(), r.Key)
			if err != nil {
				return err
			}
			tx.Remove(&Stored{Object: o, ID: o.Revision})
			if err := tx.Flush(); err != nil {
				return err
			}
			return broken
		})
		if !errors.Is(err, broken) {
			t.Fatalf("transact: %v", err)
		}
		wantRows(t, s)
		checkArchivedBytes(t, s)
	})
}

// TestSetCause: an object that the collector removes has the cascade of its owner.
func TestSetCause(t *testing.T) {
	archiving(t, day, func(t *testing.T, s running, _ *clock) {
		gone := create(t, s.Store, newRequest("a", "gone"))
		if _, err := s.Delete(t.Context(), DeleteRequest{Key: gone.Key, Actor: "alice", Cascade: "root"}); err != nil {
			t.Fatal(err)
		}
		leaving := create(t, s.Store, newRequest("a", "leaving", finalizers("x/y")))
		if _, err := s.Delete(t.Context(), DeleteRequest{Key: leaving.Key, Actor: "alice"}); err != nil {
			t.Fatal(err)
		}
		var ids []*Stored
		for _, name := range []string{"child", "grandchild", "marked", "other", "stray", "alone"} {
			o := create(t, s.Store, newRequest("a", name))
			ids = append(ids, &Stored{Object: o, ID: o.Revision})
		}
		err := s.Transact(t.Context(), func(tx *Tx) error {
			return removeFor(t.Context(), tx, ids, string(gone.UID), string(leaving.UID))
		})
		if err != nil {
			t.Fatal(err)
		}
		alone := ids[5]
		// The mark is found in another transaction.
		err = s.Transact(t.Context(), func(tx *Tx) error {
			marked, err := s.Get(t.Context(), ids[2].Key)
			if err != nil {
				return err
			}
			if err := tx.SetCause(t.Context(), "gc", string(alone.UID)); err != nil {
				return err
			}
			tx.Remove(&Stored{Object: marked, ID: ids[2].ID, Deleting: true})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		wantRows(t, s.Store,
			"things/a/gone alice root with body",
			"things/a/child gc root with body",
			"things/a/grandchild gc root with body",
			fmt.Sprintf("things/a/other gc %s with body", leaving.UID),
			"things/a/stray gc never-existed with body",
			fmt.Sprintf("things/a/alone gc %s with body", alone.UID),
			"things/a/marked gc root with body",
		)
	})
}

// removeFor removes objects as dependents of several owners.
func removeFor(ctx context.Context, tx *Tx, o []*Stored, gone, leaving string) error {
	for i, owner := range []string{gone, string(o[0].UID), gone, leaving, "never-existed", ""} {
		if err := tx.SetCause(ctx, "gc", owner); err != nil {
			return err
		}
		if i != 2 {
			tx.Remove(o[i])
			continue
		}
		m, err := object.ParseMeta(o[i].Body)
		if err != nil {
			return err
		}
		now := metav1.NewTime(tx.Now)
		m.DeletionTimestamp, m.Finalizers = &now, []string{"x/y"}
		if _, err := tx.Rewrite(o[i], &m, bodyOf(m, "")); err != nil {
			return err
		}
	}
	return nil
}

// TestRestores: a restore needs the archive row of its object, and records the new
// uid in it.
func TestRestores(t *testing.T) {
	archiving(t, day, func(t *testing.T, s running, _ *clock) {
		o := create(t, s.Store, newRequest("a", "kept"))
		remove(t, s.Store, o.Key)
		var id int64
		if _, err := s.db.Row(t.Context(), `SELECT id FROM archive`, nil, &id); err != nil {
			t.Fatal(err)
		}
		lost := newRequest("a", "lost")
		lost.Restores = Restoration{Row: id + 1000}
		if _, err := s.Create(t.Context(), lost); !object.Is(err, object.Expired) {
			t.Errorf("create what left the archive: %v", err)
		}
		if _, err := s.Get(t.Context(), lost.Key); !object.Is(err, object.NotFound) {
			t.Errorf("get it: %v", err)
		}
		again := newRequest("a", "kept")
		again.Restores = Restoration{Row: id}
		create(t, s.Store, again)
		var as string
		if _, err := s.db.Row(t.Context(), `SELECT restored_as FROM archive`, nil, &as); err != nil || as != string(again.Meta.UID) {
			t.Errorf("restored as %q, not %q, error %v", as, again.Meta.UID, err)
		}
	})
}
