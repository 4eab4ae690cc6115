package expiry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

func TestMain(m *testing.M) { dbtest.MainBoth(m) }

// born is the creation time of storetest's objects.
var born = time.Unix(1000, 0)

// world is a store whose objects expire by a clock of the test.
type world struct {
	*Expirer
	t     testing.TB
	store *store.Store
	now   time.Time
	// before runs before each delete; its error refuses the delete.
	before  func(object.Object) error
	deletes int
}

func each(t *testing.T, test func(*world)) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := &world{t: t, now: born.Add(time.Hour), before: func(object.Object) error { return nil }}
		clock := func() time.Time { return w.now }
		w.store = storetest.Run(t, store.Options{DB: db, Expiry: &Policies{}, Now: clock, Archive: store.ArchiveOptions{For: 1000 * time.Hour}})
		storetest.Create(t, w.store, storetest.Namespace(t, "shop"))
		own, err := Kinds()
		if err != nil {
			t.Fatal(err)
		}
		kinds := kind.NewRegistry(append(builtin.Kinds(), own...))
		w.Expirer, err = New(db, w.store, Options{Now: clock, Logger: slog.New(slog.DiscardHandler), Kinds: kinds, Delete: w.delete})
		if err != nil {
			t.Fatal(err)
		}
		w.policies.shares.saved = time.Hour // a slow machine must not make the policies of a test rest
		test(w)
	})
}

func (w *world) delete(ctx context.Context, user string, o object.Object, options metav1.DeleteOptions) error {
	if err := w.before(o); err != nil {
		return err
	}
	w.deletes++
	_, err := w.store.Delete(ctx, store.DeleteRequest{Key: o.Key, Options: options, Actor: user})
	return err
}

// settle reviews all that is due.
func (w *world) settle() {
	w.t.Helper()
	for range 1000 {
		claimed := 0
		for _, engine := range []*review.Engine{w.walkers, w.engine} {
			r, err := engine.RunOne(w.t.Context())
			if err != nil {
				w.t.Fatal(err)
			}
			claimed += r.Claimed
		}
		if claimed == 0 {
			return
		}
	}
	w.t.Fatal("reviews do not end")
}

func keyOf(name string) object.Key {
	return object.Key{Kind: "things.example.com", Namespace: "shop", Name: name}
}

func annotated(values map[string]string) func(*metav1.ObjectMeta) {
	return func(m *metav1.ObjectMeta) { m.Annotations = values }
}

func at(d time.Duration) map[string]string {
	return map[string]string{lifecycle.ExpiresAt: born.Add(d).UTC().Format(time.RFC3339)}
}

func (w *world) create(name string, annotations map[string]string) object.Object {
	w.t.Helper()
	return storetest.Create(w.t, w.store, storetest.Object(w.t, keyOf(name), "", annotated(annotations)))
}

func (w *world) update(name string, annotations map[string]string) {
	w.t.Helper()
	storetest.Update(w.t, w.store, keyOf(name), lifecycle.Rules{}, annotated(annotations))
}

func (w *world) wantThere(name string, there bool) {
	w.t.Helper()
	_, err := w.store.Get(w.t.Context(), keyOf(name))
	if err != nil && !object.Is(err, object.NotFound) {
		w.t.Fatal(err)
	}
	if (err == nil) != there {
		w.t.Errorf("at %v: %s exists: %v", w.now.Sub(born), name, err == nil)
	}
}

// TestObjectsExpire: in random lives of objects, each exists exactly until its time is over.
func TestObjectsExpire(t *testing.T) {
	each(t, func(w *world) {
		random := rand.New(rand.NewPCG(1, 2))
		due := map[string]time.Time{} // of those that must exist; the zero time: they do not expire
		annotations := func() (map[string]string, time.Time) {
			m := map[string]string{"note": fmt.Sprint(random.IntN(1000))}
			if random.IntN(3) == 0 {
				return m, time.Time{}
			}
			after := w.now.Sub(born) + time.Duration(1+random.IntN(50))*time.Minute
			m[lifecycle.ExpiresAt] = born.Add(after).UTC().Format(time.RFC3339)
			switch random.IntN(4) {
			case 0:
				m[lifecycle.KeepUntil] = "forever"
				return m, time.Time{}
			case 1:
				after += time.Hour
				m[lifecycle.KeepUntil] = born.Add(after).UTC().Format(time.RFC3339)
			}
			return m, born.Add(after)
		}
		for range 300 {
			name := fmt.Sprintf("t%d", random.IntN(20))
			_, exists := due[name]
			switch random.IntN(5) {
			case 0:
				w.now = w.now.Add(time.Duration(random.IntN(10)) * time.Minute)
				w.settle()
			case 1:
				if exists {
					if _, err := w.store.Delete(t.Context(), store.DeleteRequest{Key: keyOf(name)}); err != nil {
						t.Fatal(err)
					}
					delete(due, name)
				}
			default:
				values, next := annotations()
				if exists {
					w.update(name, values)
				} else {
					w.create(name, values)
				}
				due[name] = next
			}
			w.settle()
			for name, at := range due {
				if !at.IsZero() && !w.now.Before(at) {
					delete(due, name)
				}
			}
			for i := range 20 {
				name := fmt.Sprintf("t%d", i)
				_, there := due[name]
				w.wantThere(name, there)
			}
			if t.Failed() {
				return
			}
		}
		if w.deletes == 0 {
			t.Error("no object expired")
		}
		w.now = w.now.Add(1000 * time.Hour)
		w.settle()
		if s, err := w.engine.Stats(t.Context()); err != nil || s.Depth != 0 {
			t.Errorf("the queue has %+v at the end, %v", s, err)
		}
	})
}

// TestWriteBeforeTheDelete: a write between the review's read and its delete decides.
func TestWriteBeforeTheDelete(t *testing.T) {
	each(t, func(w *world) {
		w.create("kept", at(2*time.Hour))
		w.create("touched", at(2*time.Hour))
		var once sync.Once // both were read together
		w.before = func(object.Object) error {
			once.Do(func() {
				for _, name := range []string{"kept", "touched"} {
					values := at(2 * time.Hour)
					if name == "kept" {
						values[lifecycle.KeepUntil] = "forever"
					}
					values["raced"] = "true"
					w.update(name, values)
				}
			})
			return nil
		}
		w.now = born.Add(2 * time.Hour)
		w.settle()
		w.wantThere("kept", true)
		w.wantThere("touched", false)
	})
}

// TestAnotherObjectOfTheName: the review of an object that has gone does not touch the next one of its name.
func TestAnotherObjectOfTheName(t *testing.T) {
	each(t, func(w *world) {
		w.create("a", at(2*time.Hour))
		if _, err := w.store.Delete(t.Context(), store.DeleteRequest{Key: keyOf("a")}); err != nil {
			t.Fatal(err)
		}
		w.create("a", nil)
		w.now = born.Add(3 * time.Hour)
		w.settle()
		w.wantThere("a", true)
	})
}

// TestRefusedDelete: a delete that is refused is tried again, and says why.
func TestRefusedDelete(t *testing.T) {
	each(t, func(w *world) {
		o := w.create("a", at(2*time.Hour))
		w.before = func(object.Object) error { return errors.New("a policy protects it") }
		w.now = born.Add(2 * time.Hour)
		w.settle()
		w.wantThere("a", true)
		stored, err := w.store.Reader().GetByUID(t.Context(), o.UID)
		if err != nil {
			t.Fatal(err)
		}
		_, failure, err := Next(t.Context(), w.store.Reader(), w.opts.Kinds.Snapshot(), &w.policies, stored, w.now)
		if err != nil || failure == "" {
			t.Errorf("the failure is %q, %v", failure, err)
		}
		w.before = func(object.Object) error { return nil }
		w.now = w.now.Add(time.Hour)
		w.settle()
		w.wantThere("a", false)
	})
}

// TestRestoredObjectStays: what comes back after its time does not go again by itself, and goes at a new time.
func TestRestoredObjectStays(t *testing.T) {
	each(t, func(w *world) {
		o := w.create("a", at(2*time.Hour))
		w.now = born.Add(2 * time.Hour)
		w.settle()
		w.wantThere("a", false)
		w.restore(o)
		w.now = w.now.Add(time.Hour)
		w.settle()
		w.wantThere("a", true)
		values := at(2 * time.Hour)
		values["note"] = "a write that leaves the time as it is"
		w.update("a", values)
		w.settle()
		w.wantThere("a", true)
		w.update("a", at(4*time.Hour))
		w.now = born.Add(4 * time.Hour)
		w.settle()
		w.wantThere("a", false)
	})
}

// restore brings the last removed object of a uid back.
func (w *world) restore(o object.Object) {
	w.t.Helper()
	a, err := w.store.Reader().LastArchived(w.t.Context(), store.ArchiveFilter{UID: o.UID})
	if err != nil || a == nil {
		w.t.Fatalf("%s is not in the archive: %v", o.Key, err)
	}
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	storetest.Create(w.t, w.store, store.CreateRequest{Key: o.Key, Meta: m, Body: o.Body, Restores: store.Restoration{Row: a.ID}})
}

// TestPropagation: an object goes as its finalizers say, and without them in the background.
func TestPropagation(t *testing.T) {
	for finalizer, want := range map[string]metav1.DeletionPropagation{
		metav1.FinalizerDeleteDependents: "", metav1.FinalizerOrphanDependents: "", "example.com/x": metav1.DeletePropagationBackground, "": metav1.DeletePropagationBackground,
	} {
		r := storetest.Object(t, keyOf("a"), "", annotated(at(time.Hour)), func(m *metav1.ObjectMeta) {
			if finalizer != "" {
				m.Finalizers = []string{finalizer}
			}
		})
		if all, err := new(Set).dues(r.Key, r.Body, time.Time{}, time.Time{}, nil); err != nil || len(all) != 1 || all[0].By != lifecycle.ExpiresAt || all[0].Propagation != want {
			t.Errorf("with the finalizer %q: %+v, %v", finalizer, all, err)
		}
	}
}

// TestDue: when objects expire by their bodies.
func TestDue(t *testing.T) {
	job := func(rest string) []byte {
		return []byte(`{"metadata":{"name":"j","uid":"u","creationTimestamp":"1970-01-01T00:16:40Z"},"spec":{` + rest + `}`)
	}
	complete := func(kind string) string {
		return `"status":{"conditions":[{"type":"Suspended","status":"True","lastTransitionTime":"1970-01-01T00:20:00Z"},{"type":"` + kind + `","status":"True","lastTransitionTime":"1970-01-01T01:00:00Z"}]}`
	}
	tests := []struct {
		name string
		body []byte
		want time.Duration // after the epoch; 0 if it does not expire
	}{
		{"running", job(`"ttlSecondsAfterFinished":60}`), 0},
		{"finished", job(`"ttlSecondsAfterFinished":60},` + complete("Complete")), time.Hour + time.Minute},
		{"failed", job(`"ttlSecondsAfterFinished":0},` + complete("Failed")), time.Hour},
		{"no ttl", job(`},` + complete("Complete")), 0},
		{"not complete any more", job(`"ttlSecondsAfterFinished":60},` + strings.Replace(complete("Complete"), `"Complete","status":"True"`, `"Complete","status":"False"`, 1)), 0},
		{"not yet failed", job(`"ttlSecondsAfterFinished":60},` + complete("FailureTarget")), 0},
	}
	for _, tt := range tests {
		got := new(Set).Due(object.Key{Kind: jobs, Namespace: "shop", Name: "j"}, tt.body).At
		if tt.want == 0 && !got.IsZero() || tt.want != 0 && !got.Equal(time.Unix(0, 0).Add(tt.want)) {
			t.Errorf("%s: %v", tt.name, got)
		}
		if got := new(Set).Due(keyOf("j"), tt.body).At; !got.IsZero() {
			t.Errorf("%s: an object of another kind expires at %v", tt.name, got)
		}
	}
	if got := new(Set).Due(keyOf("a"), []byte(`{"metadata":"lifecycle.exeunt.dev/`)).At; !got.IsZero() {
		t.Errorf("a body that is no JSON expires at %v", got)
	}
}
