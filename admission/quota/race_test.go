package quota_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/deletion/archive"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

// race creates more objects than fit, at once, on all replicas, and returns how many were
// created. Any other refusal than that of the quota fails the test.
func race(t *testing.T, each int, replicas ...*world) int {
	t.Helper()
	var created atomic.Int64
	var clients sync.WaitGroup
	for i, w := range replicas {
		for j := range each {
			r := w.request("configmaps", fmt.Sprintf("c-%d-%d", i, j), "")
			clients.Go(func() {
				_, err := w.store.Create(t.Context(), r)
				switch {
				case err == nil:
					created.Add(1)
				case !object.Is(err, object.Forbidden):
					t.Errorf("create: %v", err)
				}
			})
		}
	}
	clients.Wait()
	return int(created.Load())
}

// TestLastUnit: of many creates at once as many succeed as fit, in one batch and in many.
func TestLastUnit(t *testing.T) {
	each(t, func(w *world) {
		w.quota("q", `{"hard":{"configmaps":"7"}}`)
		if n := race(t, 60, w); n != 7 {
			t.Errorf("%d were created", n)
		}
		if got := w.status("q"); got != "map[configmaps:7]" {
			t.Error(got)
		}
	})
}

// pair is two replicas on one database, with a namespace n.
func pair(t *testing.T) (a, b *world) {
	t.Helper()
	database := dbtest.Open(t, sqldb.Postgres)
	a, b = start(t, dbtest.Connect(t, database)), start(t, dbtest.Connect(t, database))
	storetest.Create(t, a.store, storetest.Namespace(t, "n"))
	return a, b
}

// TestLastUnitOnReplicas: so do two replicas.
func TestLastUnitOnReplicas(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.quota("q", `{"hard":{"configmaps":"7"}}`)
	if n := race(t, 40, a, b); n != 7 {
		t.Errorf("%d were created", n)
	}
	if got := b.status("q"); got != "map[configmaps:7]" {
		t.Error(got)
	}
}

// TestReplicasSeeEachOther: a quota, a change of it, a create and a delete on one replica
// count for the very next write of the other, whether or not its feed has them.
func TestReplicasSeeEachOther(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.must("configmaps", "first", "")
	b.must("secrets", "other", "")
	a.quota("q", `{"hard":{"configmaps":"2"}}`)
	b.must("configmaps", "second", "")
	for range 30 {
		a.refused(a.create("configmaps", "third", ""), "exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2")
		b.delete("configmaps", "second")
		a.must("configmaps", "second", "")
		b.refused(b.create("configmaps", "third", ""), "exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2")
		a, b = b, a
	}
	if err := a.replace("resourcequotas", "q", `,"spec":{"hard":{"configmaps":"3"}}`); err != nil {
		t.Fatal(err)
	}
	b.must("configmaps", "third", "")
	a.delete("resourcequotas", "q")
	b.must("configmaps", "fourth", "")
}

// TestQuotaChanges: a quota that is lowered below the usage refuses creates until enough is
// deleted; one that is raised admits at once; new names are counted.
func TestQuotaChanges(t *testing.T) {
	each(t, func(w *world) {
		w.quota("q", `{"hard":{"configmaps":"3"}}`)
		w.must("configmaps", "a", "")
		w.must("configmaps", "b", "")
		w.must("secrets", "a", "")
		if err := w.replace("resourcequotas", "q", `,"spec":{"hard":{"configmaps":"1","secrets":"1"}}`); err != nil {
			t.Fatal(err)
		}
		w.refused(w.create("configmaps", "c", ""), "exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=1")
		w.refused(w.create("secrets", "b", ""), "exceeded quota: q, requested: secrets=1, used: secrets=1, limited: secrets=1")
		w.delete("configmaps", "a")
		w.refused(w.create("configmaps", "c", ""), "exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1")
		w.delete("configmaps", "b")
		w.must("configmaps", "c", "")
		if got := w.status("q"); got != "map[configmaps:1 secrets:1]" {
			t.Error(got)
		}
	})
}

// TestFailedTransaction: a transaction that was checked and does not commit uses nothing, and
// one that counts what it has written itself tells it to no other: neither if it is the first to
// count, nor if the ledger has counted before.
func TestFailedTransaction(t *testing.T) {
	each(t, func(w *world) {
		w.quota("q", `{"hard":{"configmaps":"2"}}`)
		stop := errors.New("stop")
		over := "exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2"
		for range 2 {
			err := w.store.Transact(t.Context(), func(tx *store.Tx) error {
				r := w.request("configmaps", "a", "")
				tx.Create(r.Key, &r.Meta, r.Body) // without a check
				if err := tx.Restore(t.Context(), w.request("configmaps", "b", "")); err != nil {
					return err
				}
				if err := tx.Restore(t.Context(), w.request("configmaps", "c", "")); err == nil || err.Error() != over {
					return fmt.Errorf("the third ConfigMap: %w", err)
				}
				return stop
			})
			if !errors.Is(err, stop) {
				t.Fatal(err)
			}
			w.must("configmaps", "a", "")
			w.must("configmaps", "b", "")
			w.refused(w.create("configmaps", "c", ""), over)
			w.delete("configmaps", "a")
			w.delete("configmaps", "b")
		}
	})
}

// TestKilledReplica: a server that stops before the review loses nothing: the next one
// counts, and the review is in the queue.
func TestKilledReplica(t *testing.T) {
	dbtest.EachParallel(t, func(t *testing.T, db *sqldb.DB) {
		w := start(t, db)
		storetest.Create(t, w.store, storetest.Namespace(t, "n"))
		w.quota("q", `{"hard":{"configmaps":"2"}}`)
		w.must("configmaps", "a", "")
		w.must("configmaps", "b", "")
		w.stop()
		w = start(t, db)
		w.refused(w.create("configmaps", "c", ""), "exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2")
		if got := w.status("q"); got != "map[configmaps:2]" {
			t.Error(got)
		}
	})
}

// TestCascade: what a cascade removes is given back with each removal, and not before; a
// restore into the full namespace says what did not fit, and continues when there is room.
func TestCascade(t *testing.T) {
	each(t, func(w *world) {
		w.quota("q", `{"hard":{"configmaps":"3"}}`)
		w.must("secrets", "owner", "")
		owner, _ := storetest.Get(t, w.store, object.Key{Kind: "secrets", Namespace: "n", Name: "owner"})
		owned := func(m *metav1.ObjectMeta) {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "owner", UID: owner.UID}}
		}
		for _, name := range []string{"a", "b", "c"} {
			w.must("configmaps", name, "", owned)
		}
		w.delete("secrets", "owner")
		w.refused(w.create("configmaps", "x", ""), "exceeded quota: q, requested: configmaps=1, used: configmaps=3, limited: configmaps=3")
		w.collect()
		w.must("configmaps", "x", "")
		w.must("configmaps", "y", "")
		if got := w.status("q"); got != "map[configmaps:2]" {
			t.Error(got)
		}
		restore := func() (created, failed int) {
			a, err := archive.New(w.db, w.store, w.kinds, archive.Options{})
			if err != nil {
				t.Fatal(err)
			}
			status, err := a.Restore(t.Context(), kindtest.Almighty(), v1.RestoreSpec{Cascade: string(owner.UID)})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range status.Results {
				switch {
				case r.Outcome == v1.Created:
					created++
				case r.Outcome == v1.Failed && strings.Contains(r.Reason, "exceeded quota: q, requested: configmaps=1, used: configmaps=3"):
					failed++
				}
			}
			return created, failed
		}
		if created, failed := restore(); created != 2 || failed != 2 {
			t.Errorf("%d were created, %d did not fit", created, failed)
		}
		w.delete("configmaps", "x")
		w.delete("configmaps", "y")
		if created, failed := restore(); created != 2 || failed != 0 {
			t.Errorf("%d were created, %d did not fit", created, failed)
		}
		if got := w.status("q"); got != "map[configmaps:3]" {
			t.Error(got)
		}
	})
}

// TestCascadeAgainstCreates: creates while a cascade removes never exceed the quota, and all
// of it is given back.
func TestCascadeAgainstCreates(t *testing.T) {
	each(t, func(w *world) {
		w.quota("q", `{"hard":{"configmaps":"20"}}`)
		w.must("secrets", "owner", "")
		owner, _ := storetest.Get(t, w.store, object.Key{Kind: "secrets", Namespace: "n", Name: "owner"})
		for i := range 20 {
			w.must("configmaps", fmt.Sprint("d-", i), "", func(m *metav1.ObjectMeta) {
				m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "owner", UID: owner.UID}}
			})
		}
		w.delete("secrets", "owner")
		var collector sync.WaitGroup
		collector.Go(w.collect)
		created := 0
		for i := 0; created < 20; i++ {
			err := w.create("configmaps", fmt.Sprint("n-", i), "")
			if err == nil {
				created++
			} else if !object.Is(err, object.Forbidden) {
				t.Fatal(err)
			}
		}
		collector.Wait()
		w.refused(w.create("configmaps", "more", ""), "exceeded quota: q, requested: configmaps=1, used: configmaps=20, limited: configmaps=20")
		if got := w.status("q"); got != "map[configmaps:20]" {
			t.Error(got)
		}
	})
}
