package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store/expiry"
)

// changeCount counts the changes of a thing that are still stored.
func changeCount(t *testing.T, s *Store, name string) (n int) {
	t.Helper()
	if err := s.db.Reader().QueryRow(`SELECT count(*) FROM changes WHERE name = $1`, name).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func archivedIDs(t *testing.T, s *Store) (ids []int64) {
	t.Helper()
	found, err := s.db.Reader().Query(`SELECT id FROM archive ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	for found.Next() {
		var id int64
		if err := found.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestCompactionLeavesArchivedBodies: compaction first, then expiry.
func TestCompactionLeavesArchivedBodies(t *testing.T) {
	archiving(t, day, func(t *testing.T, s running, _ *clock) {
		o := create(t, s.Store, newRequest("a", "x"))
		o = change(t, s.Store, o, "last")
		remove(t, s.Store, o.Key)
		if err := s.compact(t.Context(), s.Revision()); err != nil {
			t.Fatal(err)
		}
		wantRows(t, s.Store, fmt.Sprintf("things/a/x system:exeunt %s with body", o.UID))
		if n := changeCount(t, s.Store, "x"); n != 1 {
			t.Errorf("%d changes are left, want the last body only", n)
		}
		if n, err := s.ForgetArchived(t.Context(), append(archivedIDs(t, s.Store), 12345)); n != 1 || err != nil {
			t.Errorf("forgot %d: %v", n, err)
		}
		wantRows(t, s.Store)
		if n := changeCount(t, s.Store, "x"); n != 0 {
			t.Errorf("%d changes are left after expiry", n)
		}
	})
}

// TestCompactionLeavesAskedBodies: the archive has the body from before the deletion was asked
// for, whenever compaction and expiry come by, and nothing is left in the end.
func TestCompactionLeavesAskedBodies(t *testing.T) {
	for _, when := range []string{"while it is DELETING", "after the removal", "between, and expiry first", "after the expiry"} {
		t.Run(when, func(t *testing.T) {
			archiving(t, day, func(t *testing.T, s running, _ *clock) {
				compact := func(at ...string) {
					t.Helper()
					if !slices.Contains(at, when) {
						return
					}
					if err := s.compact(t.Context(), s.Revision()); err != nil {
						t.Fatal(err)
					}
				}
				o := create(t, s.Store, newRequest("a", "x", finalizers("x/y")))
				asked := change(t, s.Store, o, "asked")
				if _, err := s.Delete(t.Context(), DeleteRequest{Key: o.Key}); err != nil {
					t.Fatal(err)
				}
				held, err := s.Get(t.Context(), o.Key)
				if err != nil {
					t.Fatal(err)
				}
				held = change(t, s.Store, held, "edited while DELETING")
				compact("while it is DELETING", "between, and expiry first")
				m, err := object.ParseMeta(held.Body)
				if err != nil {
					t.Fatal(err)
				}
				m.Finalizers = nil
				if _, err = s.Update(t.Context(), UpdateRequest{Key: o.Key, IfRevision: held.Revision, Meta: m, Body: bodyOf(m, "last"), Remove: true}); err != nil {
					t.Fatal(err)
				}
				compact("while it is DELETING", "after the removal")
				row, err := s.Reader().LastArchived(t.Context(), ArchiveFilter{UID: o.UID})
				if err != nil || string(row.Body) != string(asked.Body) {
					t.Errorf("archived %s, %v, want %s", row.Body, err, asked.Body)
				}
				if n, err := s.ForgetArchived(t.Context(), archivedIDs(t, s.Store)); n != 1 || err != nil {
					t.Fatalf("forgot %d: %v", n, err)
				}
				compact("between, and expiry first", "after the expiry")
				if n := changeCount(t, s.Store, "x"); n != 0 {
					t.Errorf("%d changes are left", n)
				}
				checkArchivedBytes(t, s.Store)
			})
		})
	}
}

// TestExpiryLeavesBodiesToCompaction: expiry first. Watchers and lists of the
// past still need the body.
func TestExpiryLeavesBodiesToCompaction(t *testing.T) {
	archiving(t, day, func(t *testing.T, s running, _ *clock) {
		o := create(t, s.Store, newRequest("a", "x"))
		before := s.Revision()
		remove(t, s.Store, o.Key)
		if n, err := s.ForgetArchived(t.Context(), archivedIDs(t, s.Store)); n != 1 || err != nil {
			t.Fatalf("forgot %d: %v", n, err)
		}
		forget(s.feed)
		lines, _, _ := list(t, s.Store, ListRequest{Namespace: "a", Revision: before})
		if len(lines) != 1 || lines[0] != line(o) {
			t.Errorf("the past is %q", lines)
		}
		events, _, err := watch(t, s.Store, WatchRequest{From: before}).Next(t.Context())
		if err != nil || len(events) != 1 || string(events[0].Object.Body) != string(o.Body) {
			t.Errorf("watch: %v, %v", events, err)
		}
		if err := s.compact(t.Context(), s.Revision()); err != nil {
			t.Fatal(err)
		}
		if n := changeCount(t, s.Store, "x"); n != 0 {
			t.Errorf("%d changes are left", n)
		}
	})
}

func annotated(value string) func(*metav1.ObjectMeta) {
	return func(m *metav1.ObjectMeta) { m.Annotations = map[string]string{lifecycle.ArchiveFor: value} }
}

func TestExpireByTime(t *testing.T) {
	archiving(t, ArchiveOptions{For: 10 * time.Hour}, func(t *testing.T, s running, c *clock) {
		began := c.now()
		createNamespace(t, s.Store, "plain")
		createNamespace(t, s.Store, "short", annotated("1h"))
		createNamespace(t, s.Store, "typo", annotated("1 hour"))
		createNamespace(t, s.Store, "less-than-none", annotated("-1h"))
		long := createNamespace(t, s.Store, "long", annotated("100h"))
		for _, ns := range []string{"plain", "short", "typo", "less-than-none", "long", "no-such-namespace"} {
			remove(t, s.Store, create(t, s.Store, newRequest(ns, "x")).Key)
		}
		remove(t, s.Store, long.Key) // what is archived of it still says how long
		for _, step := range []struct {
			after time.Duration
			want  int
		}{
			{59 * time.Minute, 7}, {time.Hour, 6}, {10*time.Hour - time.Millisecond, 6}, {10 * time.Hour, 2}, {99 * time.Hour, 2}, {100 * time.Hour, 0},
		} {
			c.set(began.Add(step.after))
			if err := s.expiry.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if left := rows(t, s.Store); len(left) != step.want {
				t.Errorf("after %v: %d rows, want %d: %q", step.after, len(left), step.want, left)
			}
		}
	})
}

// TestExpireWhenOff: turning the archive off does not purge it.
func TestExpireWhenOff(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		c := newClock()
		on := runArchiving(t, db, day, c)
		remove(t, on.Store, create(t, on.Store, newRequest("a", "x")).Key)
		on.stop()
		off := runArchiving(t, db, ArchiveOptions{}, c)
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{23 * time.Hour, 1}, {time.Hour, 0}} {
			c.move(step.after)
			if err := off.expiry.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if left := rows(t, off.Store); len(left) != step.want {
				t.Errorf("after %v: %q", step.after, left)
			}
		}
	})
}

func TestExpireBySize(t *testing.T) {
	request := func(i int) CreateRequest {
		r := newRequest("a", fmt.Sprintf("name-%04d", i))
		r.Meta.UID = types.UID(fmt.Sprintf("fixed-%04d", i))
		r.Body = bodyOf(r.Meta, "") // all of one length
		return r
	}
	size := int64(len(request(0).Body))
	archiving(t, ArchiveOptions{For: time.Hour, MaxBytes: 7*size + size/2}, func(t *testing.T, s running, _ *clock) {
		const objects = expiry.Step + 20 // more than a step
		for i := range objects {
			remove(t, s.Store, create(t, s.Store, request(i)).Key)
		}
		if err := s.compact(t.Context(), s.Revision()-3); err != nil {
			t.Fatal(err)
		}
		if err := s.expiry.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		left := rows(t, s.Store)
		if len(left) != 7 || left[0] != fmt.Sprintf("things/a/name-%04d system:exeunt fixed-%04d with body", objects-7, objects-7) {
			t.Errorf("%d rows are left: %q", len(left), left)
		}
		if err := s.compact(t.Context(), s.Revision()); err != nil {
			t.Fatal(err)
		}
		if n := count(t, s.Store); n != 7 {
			t.Errorf("%d changes are left, want the archived bodies", n)
		}
	})
}
