package store

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestRewriteSet: many rewrites in one transaction leave what as many rewrites
// one by one leave: heads, references, the log and what the triggers queued. One
// object is rewritten twice, a removal stands in between, and deletions are called off.
func TestRewriteSet(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		one := rewriteThrough(t, db, 1)
		set := rewriteThrough(t, dbtest.OpenDB(t, db.Engine()), 100)
		if one != set {
			t.Errorf("one by one:\n%s\nas a set:\n%s", one, set)
		}
	})
}

// rewriteThrough rewrites objects with a flush after every few, and describes
// what is left.
func rewriteThrough(t *testing.T, db *sqldb.DB, few int) string {
	t.Helper()
	s := run(t, Options{DB: db, Now: func() time.Time { return time.Unix(5000, 0) }})
	owners := func(uids ...string) (refs []metav1.OwnerReference) {
		for i, uid := range uids {
			yes := i == 0
			refs = append(refs, metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: "x", UID: types.UID(uid), BlockOwnerDeletion: &yes, Controller: &yes})
		}
		return refs
	}
	var all []*Stored
	for i := range 12 {
		r := newRequest("", fmt.Sprintf("o%02d", i), func(m *metav1.ObjectMeta) {
			m.UID, m.OwnerReferences = types.UID(fmt.Sprint("uid-", i)), owners("uid-0", "missing")[:i%3]
		})
		o := create(t, s.Store, r)
		all = append(all, &Stored{Object: o, ID: o.Revision})
	}
	step := 0
	err := s.Transact(t.Context(), func(tx *Tx) error {
		if err := tx.SetCause(t.Context(), "tester", "cause"); err != nil {
			return err
		}
		flush := func() error {
			if step++; step%few == 0 {
				return tx.Flush()
			}
			return nil
		}
		for i, at := range []int{0, 1, 2, 3, 4, 5, 4, 6, 7, 8, 9, 10, 4, 5, 6, 7} {
			m, err := object.ParseMeta(all[at].Body)
			if err != nil {
				return err
			}
			switch {
			case i >= 4 && i < 9:
				now, grace := metav1.Unix(6000, 0), int64(7)
				m.DeletionTimestamp, m.DeletionGracePeriodSeconds, m.Finalizers = &now, &grace, []string{metav1.FinalizerDeleteDependents}
			case i >= 12: // called off
				m.DeletionTimestamp, m.DeletionGracePeriodSeconds, m.Finalizers = nil, nil, nil
			case i%2 == 0:
				m.OwnerReferences = owners("uid-1", "uid-2")
			case i%3 == 0:
				m.OwnerReferences = nil
			}
			if all[at], err = tx.Rewrite(all[at], &m, bodyOf(m, fmt.Sprint("Schritt über ", i))); err != nil {
				return err
			}
			if i == 11 {
				tx.Remove(all[11])
			}
			if err := flush(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return dumpTables(t, db)
}
