package store

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// operations are the single operations whose cost must not depend on how much is stored.
// Each works on the i-th object of a store that fillStore filled.
var operations = map[string]func(ctx context.Context, s *Store, i int) error{
	"create": func(ctx context.Context, s *Store, i int) error {
		r := newRequest("a", fmt.Sprint("created-", i), ownedBy("uid-owner"))
		r.InNamespace = true
		_, err := s.Create(ctx, r)
		return err
	},
	"get": func(ctx context.Context, s *Store, i int) error {
		_, err := s.Reader().Get(ctx, filled(i).Key)
		return err
	},
	"update": func(ctx context.Context, s *Store, i int) error {
		o, err := s.Get(ctx, filled(i).Key)
		if err != nil {
			return err
		}
		m, err := object.ParseMeta(o.Body)
		if err == nil {
			_, err = s.Update(ctx, UpdateRequest{Key: o.Key, IfRevision: o.Revision, Meta: m, Body: bodyOf(m, "changed")})
		}
		return err
	},
	"delete": func(ctx context.Context, s *Store, i int) error {
		_, err := s.Delete(ctx, DeleteRequest{Key: filled(i + 500).Key, Actor: "someone"})
		return err
	},
	"dependents": func(ctx context.Context, s *Store, i int) error {
		found, err := s.Reader().DependentsOf(ctx, []types.UID{"uid-owner"}, int64(i), 10)
		if err == nil && len(found) != 10 {
			err = fmt.Errorf("%d dependents", len(found))
		}
		return err
	},
	"versions": func(ctx context.Context, s *Store, i int) error {
		n := 0
		err := s.Versions(ctx, filled(i).Key, math.MaxInt64, func(string, Version) bool { n++; return true })
		if err == nil && n == 0 {
			err = fmt.Errorf("no versions")
		}
		return err
	},
	"get at": func(ctx context.Context, s *Store, i int) error {
		_, err := s.GetAt(ctx, filled(i).Key, s.Revision())
		return err
	},
	"archived": func(ctx context.Context, s *Store, i int) error {
		a, err := s.Reader().LastArchived(ctx, ArchiveFilter{UID: types.UID(fmt.Sprint("removed-", i))})
		if err == nil && a == nil {
			err = fmt.Errorf("removed-%d is not archived", i)
		}
		return err
	},
	"by name": func(ctx context.Context, s *Store, i int) error {
		f := ArchiveFilter{Namespace: "a", Kind: things, Name: fmt.Sprint("removed-", i)}
		a, err := s.Reader().LastArchived(ctx, ArchiveFilter{Key: object.Key{Kind: f.Kind, Namespace: f.Namespace, Name: f.Name}})
		if err != nil || a == nil {
			return fmt.Errorf("removed-%d: %v, %w", i, a, err)
		}
		return s.Reader().Archived(ctx, f, 0, 1, func(*Archived) error { return nil })
	},
	"restore": func(ctx context.Context, s *Store, i int) error {
		a, err := s.Reader().LastArchived(ctx, ArchiveFilter{UID: types.UID(fmt.Sprint("removed-", i))})
		if err != nil || a == nil {
			return fmt.Errorf("removed-%d: %v, %w", i, a, err)
		}
		r := newRequest("a", fmt.Sprint("restored-", i))
		r.Restores.Row = a.ID
		_, err = s.Create(ctx, r)
		return err
	},
}

func ownedBy(uid types.UID) func(*metav1.ObjectMeta) {
	return func(m *metav1.ObjectMeta) {
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Thing", Name: "owner", UID: uid}}
	}
}

func filled(i int) CreateRequest {
	return newRequest("a", fmt.Sprintf("object-%07d", i), ownedBy("uid-owner"))
}

// fillStore creates n dependents of one owner, and a quarter as many removed objects.
func fillStore(t testing.TB, s *Store, n int) {
	t.Helper()
	createNamespace(t, s, "a")
	create(t, s, newRequest("a", "owner", func(m *metav1.ObjectMeta) { m.UID = "uid-owner" }))
	write := func(requests []CreateRequest) {
		for _, err := range s.CreateAll(t.Context(), requests) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	const group = 500
	for i := 0; i < n; i += group {
		var requests []CreateRequest
		for j := i; j < min(i+group, n); j++ {
			requests = append(requests, filled(j))
		}
		write(requests)
	}
	for i := 0; i < n/4; i += group {
		var requests []CreateRequest
		var deletes []DeleteRequest
		for j := i; j < min(i+group, n/4); j++ {
			r := newRequest("a", fmt.Sprint("removed-", j), func(m *metav1.ObjectMeta) { m.UID = types.UID(fmt.Sprint("removed-", j)) })
			requests, deletes = append(requests, r), append(deletes, DeleteRequest{Key: r.Key, Actor: "someone"})
		}
		write(requests)
		if _, errs := s.DeleteAll(t.Context(), deletes); slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
			t.Fatal(errs)
		}
	}
}

// TestLookUps: an operation needs as many look-ups with few objects as with six times more. The
// primary key of changes does not count: a store reads the end of the log when it starts, at some
// moment.
func TestLookUps(t *testing.T) {
	const each = 50
	during := func(db *sqldb.DB, fn func(s *Store)) {
		s := run(t, Options{DB: db, Archive: ArchiveOptions{For: time.Hour}})
		fn(s.Store)
		s.stop()
	}
	dbtest.Growth{
		Few: 2_000, Many: 12_000, Each: each, Ignore: "changes_pkey", Operations: slices.Sorted(maps.Keys(operations)),
		Fill: func(db *sqldb.DB, n int) { during(db, func(s *Store) { fillStore(t, s, n) }) },
		Run: func(db *sqldb.DB, name string) {
			during(db, func(s *Store) {
				for i := range each {
					if name == "" {
						return
					}
					if err := operations[name](t.Context(), s, i); err != nil {
						t.Fatal(name, err)
					}
				}
			})
		},
	}.Check(t)
}

// BenchmarkGrowth times the operations with a thousand and with a million objects, and a quarter
// as many removed ones. There is one removed object for each restore: run it with -benchtime 200x.
func BenchmarkGrowth(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		for _, n := range []int{1_000, 1_000_000} {
			db := dbtest.OpenDB(b, engine)
			s := run(b, Options{DB: db, Archive: ArchiveOptions{For: time.Hour}})
			fillStore(b, s.Store, n)
			if engine == sqldb.Postgres { // otherwise autovacuum runs beside the operations
				if _, err := db.Reader().ExecContext(b.Context(), `VACUUM (ANALYZE)`); err != nil {
					b.Fatal(err)
				}
			}
			for _, name := range slices.Sorted(maps.Keys(operations)) {
				next := 0 // go on where the run before has ended
				b.Run(fmt.Sprintf("%s/%s/%d", name, engine, n), func(b *testing.B) {
					for b.Loop() {
						if err := operations[name](b.Context(), s.Store, next); err != nil {
							b.Fatal(err)
						}
						next++
					}
				})
			}
			s.stop()
		}
	}
}

// TestPlans: SQLite reads no table from its beginning for a single operation.
func TestPlans(t *testing.T) {
	dbtest.SearchesOnly(t, map[string]string{
		"getObject": getObject, "getHead": getHead, "loadObject": loadObject, "loadSet": loadSetSQLite, "insertObject": insertObject,
		"createSet": createSetSQLite, "createdSet": createdSetSQLite, "ownSet": ownSetSQLite, "markRestoredSet": markRestoredSetSQLite,
		"touchObject": touchObject, "updateObject": updateObject, "deleteObject": deleteObject, "haveDependents": haveDependents[sqldb.SQLite],
		"insertArchived": insertArchived, "archiveSet": archiveSetSQLite, "burySet": burySetSQLite, "deleteSet": deleteSet[sqldb.SQLite],
		"archivedByUID": archivedByUID, "archivedAll": archivedAllSQLite, "lastRemoval": lastRemoval, "listNamed": listNamed, "listNamedIn": listNamedIn, "wholeCascade": wholeCascade,
		"restoredSince": restoredSince, "droppedUIDs": droppedUIDs[sqldb.SQLite], "droppedFor": droppedFor, "listHeads": listHeads,
		"dependentsAfter": dependentsAfter, "heads": headsOf[sqldb.SQLite], "removed": removed[sqldb.SQLite], "cascadeArchived": cascadeArchived,
		"archiveEach": archiveEachSQLite, "buryEach": buryEachSQLite, "storedByUIDs": storedByUIDs[sqldb.SQLite], "holdCascades": holdCascades[sqldb.SQLite],
	})
}
