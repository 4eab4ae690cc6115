package archive

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/admission/quota"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

// newLimitedWorld is a world with quotas.
func newLimitedWorld(t *testing.T, db *sqldb.DB) *world {
	t.Helper()
	return newWorldOf(t, db, store.ArchiveOptions{For: time.Hour}, func(st *store.Store) {
		if _, err := quota.New(db, st, kind.NewRegistry(builtin.Kinds()), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	})
}

func (w *world) limitTo(namespace string, configMaps int) {
	w.Helper()
	r := storetest.Object(w, object.Key{Kind: resourceQuotas, Namespace: namespace, Name: "q"}, fmt.Sprintf(`,"spec":{"hard":{"configmaps":"%d"}},"status":{}`, configMaps))
	r.InNamespace = true
	storetest.Create(w, w.store, r)
}

// rehearse restores an object and its cascade after a dry run, which must say the same.
func (w *world) rehearse(o object.Object) v1.RestoreStatus {
	w.Helper()
	dry := w.restore(v1.RestoreSpec{UID: o.UID, WithCascade: true, DryRun: true})
	status := w.restore(v1.RestoreSpec{UID: o.UID, WithCascade: true})
	if diff := cmp.Diff(dry.Results, status.Results); diff != "" {
		w.Errorf("the dry run (-) differs from the run (+):\n%s", diff)
	}
	return status
}

// TestQuotaOfItsNamespace: a namespace comes back as it was, also if its content exceeded its quota.
func TestQuotaOfItsNamespace(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newLimitedWorld(t, db)
		home := w.create("namespaces:/m")
		owner := w.create("configmaps:m/a")
		w.create("configmaps:m/b", owner)
		w.limitTo("m", 1)
		w.create("secrets:m/z")
		w.delete(home, background)
		if status := w.rehearse(home); status.Created != 5 || !status.Complete {
			w.Errorf("got %+v", status)
		}
		w.delete(owner, background)
		if status := w.rehearse(owner); status.Created != 1 || status.Failed != 1 {
			w.Errorf("the quota is not in force: %+v", status)
		}
	})
}

// TestQuotaWithRoomForSome: of what does not fit into a quota, a dry run and the run restore the same.
func TestQuotaWithRoomForSome(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newLimitedWorld(t, db)
		owner, other := w.create("configmaps:n/owner"), w.create("secrets:n/other")
		w.create("configmaps:n/both", owner, other)
		for i := range 5 {
			w.create(fmt.Sprintf("configmaps:n/c%d", i), owner)
		}
		w.delete(other, background)
		w.limitTo("n", 4)
		w.delete(owner, background)
		status := w.rehearse(owner)
		if status.Created != 4 || status.Failed != 3 || status.Complete {
			w.Errorf("got %+v", status)
		}
		for _, r := range status.Results[4:] {
			if r.Outcome != v1.Failed || !strings.Contains(r.Reason, "exceeded quota") {
				w.Errorf("got %+v", r)
			}
		}
	})
}
