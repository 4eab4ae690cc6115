package archive

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

// versions is the history of a name, the newest version first: "created", "changed" or "removed", and the value of its label.
func (w *world) versions(name string) (all []string, uids []string) {
	w.Helper()
	err := w.store.Versions(w.Context(), keyOf(name), math.MaxInt64, func(uid string, v store.Version) bool {
		what := map[store.EventType]string{store.Created: "created", store.Updated: "changed", store.Removed: "removed"}[v.Type]
		if v.Body != nil {
			o, err := object.ParseMeta(v.Body)
			if err != nil {
				w.Fatal(err)
			}
			what += " " + o.Labels["step"]
		}
		all, uids = append(all, what), append(uids, uid)
		return true
	})
	if err != nil {
		w.Fatal(err)
	}
	return all, uids
}

// TestHistoryStaysWithTheArchive: the versions of a removed object stay as long as its archive does, also when those of
// other objects leave by age, and a restored object has them before its own, with its uid or a new one. When the object
// expires from the archive, they go by their age; when it is purged, at once.
func TestHistoryStaysWithTheArchive(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		const window, archived = time.Hour, 100 * time.Hour
		clock := dbtest.NewClock()
		w := newWorldWith(t, store.Options{
			DB: db, Now: clock.Now, Archive: store.ArchiveOptions{For: archived}, History: store.HistoryOptions{For: window},
			KeepRevisions: 1, CompactEvery: 5 * time.Millisecond,
		})
		k, _ := w.kinds.Snapshot().Stored("secrets")
		reborn, version := *k, *k.Versions[0]
		reborn.Reborn, reborn.Versions, version.Kind = true, []*kind.Version{&version}, &reborn
		w.kinds.Put(&reborn)

		names := []string{"configmaps:n/kept", "secrets:n/kept", "configmaps:n/purged", "configmaps:n/expired", "configmaps:n/live"}
		for _, name := range names {
			w.create(name)
			for i := range 3 {
				w.change(name, func(m *metav1.ObjectMeta) { m.Labels = map[string]string{"step": fmt.Sprint(i)} })
			}
		}
		// later lets the time of versions pass: only the newest version of what was not removed is left.
		later := func(by time.Duration) {
			for range 2 { // compaction leaves one revision in the log
				w.change("configmaps:n/live", func(m *metav1.ObjectMeta) { m.Labels = nil })
			}
			var revision int64
			if _, err := w.db.Row(t.Context(), `SELECT current - 1 FROM revision`, nil, &revision); err != nil {
				t.Fatal(err)
			}
			dbtest.Await(t, "versions are moved", func() bool { return w.Count(`SELECT count(*) FROM revision WHERE moved >= $1`, revision) > 0 })
			clock.Advance(by)
			dbtest.Await(t, "old versions leave", func() bool { return w.Count(`SELECT count(*) FROM history WHERE name = 'live'`) == 0 })
		}
		want := func(name string, versions ...string) []string {
			t.Helper()
			got, uids := w.versions(name)
			if !slices.Equal(got, versions) {
				t.Errorf("%s: %q, want %q", name, got, versions)
			}
			return uids
		}
		before := []string{"changed 2", "changed 1", "changed 0", "created "}
		removed := append([]string{"removed"}, before...)
		for _, name := range names[:4] {
			want(name, before...)
			o, _ := w.get(name)
			w.delete(o, background)
		}
		later(2 * window)
		for _, name := range names[:4] {
			want(name, removed...)
		}
		for _, name := range names[:2] {
			w.restore(v1.RestoreSpec{Object: &v1.ObjectName{Kind: keyOf(name).Kind, Namespace: "n", Name: "kept"}})
		}
		for range 2 { // the second time, what was written at the restore is old, too
			for i, name := range names[:2] {
				uids := want(name, append([]string{"created 2"}, removed...)...)
				if same := i == 0; (uids[0] == uids[1]) != same {
					t.Errorf("%s: the uids are %v", name, uids)
				}
			}
			later(2 * window)
		}

		r, err := w.archive.newest(t.Context(), asUser("alice"), v1.ObjectName{Kind: "configmap"}, keyOf("configmaps:n/purged"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.store.ForgetArchived(t.Context(), []int64{r.id}); err != nil {
			t.Fatal(err)
		}
		want("configmaps:n/purged")
		want("configmaps:n/expired", removed...)
		clock.Advance(archived)
		dbtest.Await(t, "the archive expires", func() bool { return w.Count(`SELECT count(*) FROM archive`) == 0 })
		dbtest.Await(t, "its history leaves", func() bool { return w.Count(`SELECT count(*) FROM history`) == 0 })
		want("configmaps:n/expired")
		for _, name := range names[:2] {
			want(name, "created 2")
		}
	})
}
