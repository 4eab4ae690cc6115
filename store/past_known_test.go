package store

import (
	"errors"
	"testing"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestGetBeyondTheBound: where the history does not have a state whole, one object is still answered if a version of it is
// there: as long as the archive keeps it, at its time too, also of a sealed kind and of one that is left out. A purge ends
// that, also while the log has the version.
func TestGetBeyondTheBound(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		p := newPast(t, db, 8)
		p.opts.Keys, p.opts.Archive.For = testKeys(t, "old"), 1000*time.Hour
		p.opts.History.Exclude = []string{"others.example.com"}
		p.restart()
		createNamespace(t, p.s, "ns-0")
		createNamespace(t, p.s, "ns-1")
		removed := map[string]object.Object{}
		other := newRequest("ns-0", "other")
		other.Key.Kind = "others.example.com"
		for name, r := range map[string]CreateRequest{"kept": newRequest("ns-0", "kept"), "other": other, "sealed": newSecret("ns-0", "sealed", "grape"), "purged": newRequest("ns-0", "purged"), "late": newRequest("ns-0", "late")} {
			p.clock.move(time.Second)
			removed[name] = create(t, p.s, r)
		}
		before := p.clock.now()
		remove := func(name string) {
			t.Helper()
			p.clock.move(time.Minute)
			if _, err := p.s.Delete(t.Context(), DeleteRequest{Key: removed[name].Key, Actor: "someone"}); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"kept", "other", "sealed", "purged"} {
			remove(name)
		}
		for range 30 {
			p.step() // so that there is something to leave
		}
		last := p.s.Revision()
		compactAll(t, p.s)
		err := p.s.Transact(t.Context(), func(tx *Tx) error {
			for i := range int64(1000) {
				tx.Defer(`INSERT INTO history_times (at, revision) VALUES ($1, 1)`, i)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		p.clock.move(25 * time.Hour)
		remove("late") // its version is in the log only
		p.s.past.MaxBytes = 1
		if err := p.s.past.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
		at, err := p.s.RevisionAt(t.Context(), before)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{things, other.Key.Kind, secrets} {
			if _, err := p.listAt(ListRequest{Kind: kind, Namespace: "ns-0", Revision: at, Past: true}); !object.Is(err, object.Expired) {
				t.Errorf("the list of %s: %v", kind, err)
			}
		}
		known := func(name string, revision int64) (err error) {
			o, err := p.s.GetAt(t.Context(), removed[name].Key, revision)
			if want := removed[name]; err == nil && line(o) != line(want) {
				t.Errorf("%s at %d is %s, and was %s", name, revision, line(o), line(want))
			}
			return err
		}
		for name, o := range removed {
			if err := errors.Join(known(name, o.Revision), known(name, at)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := known(name, o.Revision-1); !object.Is(err, object.Expired) {
				t.Errorf("%s before it was created: %v", name, err)
			}
		}
		if err := known("kept", last); !object.Is(err, object.Expired) && !object.Is(err, object.NotFound) {
			t.Errorf("after it was removed: %v", err)
		}
		var ids []int64
		for _, name := range []string{"purged", "late"} {
			err := p.s.Reader().Archived(t.Context(), ArchiveFilter{Key: removed[name].Key}, 0, 1, func(a *Archived) error {
				ids = append(ids, a.ID)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if n, err := p.s.ForgetArchived(t.Context(), ids); err != nil || n != 2 {
			t.Fatal(n, err)
		}
		for _, name := range []string{"purged", "late"} {
			if err := known(name, at); !object.Is(err, object.Expired) {
				t.Errorf("%s, which was purged: %v", name, err)
			}
		}
		if err := known("kept", at); err != nil {
			t.Error(err)
		}
	})
}
