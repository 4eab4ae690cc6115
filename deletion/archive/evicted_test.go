package archive

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/deletion/deletiontest"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	cascade "github.com/exeunt/exeunt/store/cascades"
)

// evicting runs a test in worlds whose archive has a limit, and evicts all the time.
func evicting(t *testing.T, limit int64, test func(w *world)) {
	t.Helper()
	dbtest.Both(t, func(t *testing.T, db *sqldb.DB) {
		o := store.Options{DB: db, Archive: store.ArchiveOptions{For: time.Hour, MaxBytes: limit}, CompactEvery: 5 * time.Millisecond}
		base := deletiontest.NewWith(t, o, gc.Options{Budget: 3, OrphanWait: -1})
		w := &world{T: t, World: base, db: db, store: base.Store, kinds: base.Kinds}
		var err error
		if w.archive, err = New(db, w.store, w.kinds, Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
		w.create("namespaces:/n")
		test(w)
	})
}

// large creates an object of about a size.
func (w *world) large(name string, size int, owners ...object.Object) object.Object {
	w.Helper()
	return w.createWith(name, func(m *metav1.ObjectMeta) {
		m.OwnerReferences, m.Annotations = w.OwnedBy(owners...), map[string]string{"x": strings.Repeat("x", size)}
	})
}

// TestEvictionIsReported: an Event in the namespace says that a cascade left, and a restore of it
// says that there is none.
func TestEvictionIsReported(t *testing.T) {
	evicting(t, 5000, func(w *world) {
		owner := w.large("configmaps:n/owner", 2000)
		w.large("configmaps:n/dependent", 2000, owner)
		w.delete(owner, background)
		w.delete(w.large("configmaps:n/newest", 2000), background)
		var reports []string
		for len(reports) == 0 {
			if w.Context().Err() != nil {
				t.Fatal("no Event")
			}
			listing, err := w.store.List(w.Context(), store.ListRequest{Kind: object.Events, Namespace: "n"})
			if err != nil {
				t.Fatal(err)
			}
			for listing.Next() {
				if body := string(listing.Object().Body); strings.Contains(body, `"reason":"ArchiveEvicted"`) {
					reports = append(reports, body)
				}
			}
			if err := listing.Err(); err != nil {
				t.Fatal(err)
			}
		}
		if len(reports) != 1 || !strings.Contains(reports[0], `"name":"owner"`) || !strings.Contains(reports[0], "2 objects") {
			t.Errorf("the Events are %q", reports)
		}
		_, err := w.archive.Restore(w.Context(), kindtest.Almighty(), v1.RestoreSpec{Cascade: string(owner.UID)})
		if !object.Is(err, object.BadRequest) || !strings.Contains(err.Error(), "no archived object belongs to the cascade") {
			t.Errorf("restore: %v", err)
		}
	})
}

// TestRestoreAgainstEviction: a restore that runs while its cascade is pushed out of the archive restores all of it or
// nothing.
func TestRestoreAgainstEviction(t *testing.T) {
	evicting(t, 10_000, func(w *world) {
		outcomes := map[int]int{}
		for round := range 12 {
			owner := w.large(fmt.Sprintf("configmaps:n/owner-%d", round), 1000)
			for i := range 4 {
				w.large(fmt.Sprintf("configmaps:n/dependent-%d-%d", round, i), 1000, owner)
			}
			w.delete(owner, background)
			w.delete(w.large(fmt.Sprintf("configmaps:n/first-%d", round), 10), background)
			next := w.large(fmt.Sprintf("configmaps:n/next-%d", round), 5000)
			var running sync.WaitGroup
			var status v1.RestoreStatus
			var err error
			running.Go(func() {
				status, err = w.archive.Restore(w.Context(), kindtest.Almighty(), v1.RestoreSpec{Cascade: string(owner.UID)})
			})
			running.Go(func() {
				if _, err := w.store.Delete(w.Context(), store.DeleteRequest{Key: next.Key, Rules: w.Rules(next.Kind)}); err != nil {
					t.Error(err)
				}
			})
			running.Wait()
			if err != nil && !object.Is(err, object.BadRequest) {
				t.Fatal(err)
			}
			n, err := w.store.List(w.Context(), store.ListRequest{Kind: object.ConfigMaps, Namespace: "n"})
			if err != nil {
				t.Fatal(err)
			}
			back := 0
			for n.Next() {
				back++
			}
			if back != status.Created || back != 0 && back != 5 || back == 5 && status.Failed > 0 {
				t.Errorf("round %d: %d of 5 objects are back, %+v", round, back, status)
			}
			outcomes[back]++
			w.clear(owner)
		}
		t.Logf("objects that came back, and how often: %v", outcomes)
	})
}

// TestEvictedDuringRestore: a restore has written its first object when its cascade is evicted, because the archive has more than
// twice its limit. The rest fails, and the result says so.
func TestEvictedDuringRestore(t *testing.T) {
	evicting(t, 10_000, func(w *world) {
		owner := w.large("configmaps:n/owner", 1000)
		for i := range 4 {
			w.large(fmt.Sprintf("configmaps:n/dependent-%d", i), 1000, owner)
		}
		w.delete(owner, background)
		var once sync.Once
		client := kindtest.Almighty()
		client.Mutate = func(_ context.Context, _ *kind.Version, key object.Key, _ runtime.Object, _ bool) error {
			if key.Name == "owner" {
				return nil
			}
			once.Do(func() { // the owner is committed
				for i := range 3 {
					w.delete(w.large(fmt.Sprintf("configmaps:n/large-%d", i), 9000), background)
				}
				for {
					c, err := cascade.Read(w.Context(), w.store.Reader(), string(owner.UID))
					if err != nil {
						w.Error(err)
					}
					if c == nil || err != nil {
						return
					}
					time.Sleep(time.Millisecond)
				}
			})
			return nil
		}
		status, err := w.archive.Restore(w.Context(), client, v1.RestoreSpec{Cascade: string(owner.UID)})
		if err != nil || status.Created != 1 || status.Failed != 4 || status.Complete || !w.exists("configmaps:n/owner") || w.exists("configmaps:n/dependent-0") {
			w.Errorf("got %+v, %v", status, err)
		}
		for _, r := range status.Results[1:] {
			if !strings.Contains(r.Reason, "expired from the archive") {
				w.Errorf("the reason is %q", r.Reason)
			}
		}
	})
}

// clear removes a restored owner with its dependents, and purges the archive.
func (w *world) clear(owner object.Object) {
	w.Helper()
	if _, err := w.store.Get(w.Context(), owner.Key); err == nil {
		w.delete(owner, background)
	}
	var ids []int64
	err := w.store.Reader().Archived(w.Context(), store.ArchiveFilter{}, 0, 1000, func(a *store.Archived) error {
		ids = append(ids, a.ID)
		return nil
	})
	if err == nil {
		_, err = w.store.ForgetArchived(w.Context(), ids)
	}
	if err != nil {
		w.Fatal(err)
	}
}
