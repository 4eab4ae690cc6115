package event

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// world is a store with the namespaces default, shop and ending, which is being
// deleted.
type world struct {
	*testing.T
	store    *store.Store
	recorder Recorder
}

func each(t *testing.T, test func(w *world)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := &world{t, storetest.Run(t, store.Options{DB: db}), Recorder{Kinds: kind.NewRegistry(builtin.Kinds())}}
		for _, name := range []string{"default", "shop", "ending"} {
			w.namespace(name, name == "ending")
		}
		test(w)
	})
}

func (w *world) namespace(name string, deleting bool) {
	w.Helper()
	storetest.Create(w, w.store, storetest.Namespace(w, name, func(m *metav1.ObjectMeta) {
		m.UID = types.UID("uid-" + name)
		if deleting {
			m.DeletionTimestamp = &metav1.Time{Time: time.Unix(2000, 0)}
		}
	}))
}

// record records Events at a time in Unix seconds, in its own transaction.
func (w *world) record(at int64, reports ...Event) {
	w.Helper()
	err := w.store.Transact(w.Context(), func(tx *store.Tx) error { return w.recorder.Record(w.Context(), tx, time.Unix(at, 0), reports...) })
	if err != nil {
		w.Fatal(err)
	}
}

// events lists the recorded Events by name.
func (w *world) events() (all []corev1.Event) {
	w.Helper()
	listing, err := w.store.List(w.Context(), store.ListRequest{Kind: object.Events})
	if err != nil {
		w.Fatal(err)
	}
	for listing.Next() {
		var e corev1.Event
		if err := object.DecodeInto(listing.Object().Body, "", schema.GroupVersionKind{Version: "v1", Kind: "Event"}, &e); err != nil {
			w.Fatal(err)
		}
		all = append(all, e)
	}
	if err := listing.Err(); err != nil {
		w.Fatal(err)
	}
	return all
}

// want compares the recorded Events: NAMESPACE COUNT FIRST-LAST MESSAGE.
func (w *world) want(want ...string) {
	w.Helper()
	var got []string
	for _, e := range w.events() {
		got = append(got, fmt.Sprintf("%s %d %d-%d %s", e.Namespace, e.Count, e.FirstTimestamp.Unix(), e.LastTimestamp.Unix(), e.Message))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		w.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func about(namespace, name string) object.Object {
	return object.Object{Key: object.Key{Kind: "configmaps", Namespace: namespace, Name: name}, UID: types.UID("uid-" + name), Revision: 42}
}

// TestRecord: an Event has the fields that kubectl shows, and refers to the object
// by its uid.
func TestRecord(t *testing.T) {
	each(t, func(w *world) {
		w.record(3000, Event{About: about("shop", "a"), Type: corev1.EventTypeWarning, Reason: "Held", Message: "it waits", Source: "collector"})
		w.want("shop 1 3000-3000 it waits")
		e := w.events()[0]
		want := corev1.ObjectReference{Kind: "ConfigMap", APIVersion: "v1", Namespace: "shop", Name: "a", UID: "uid-a", ResourceVersion: "42"}
		if e.InvolvedObject != want {
			w.Errorf("about %+v", e.InvolvedObject)
		}
		if e.Type != "Warning" || e.Reason != "Held" || e.Source.Component != "collector" || e.ReportingController != "collector" || e.UID == "" {
			w.Errorf("got %+v", e)
		}
	})
}

// TestRecordAgain: a repeated report increments the count and replaces the
// message. Another topic, reason or object is another Event; so is a new object
// with the same name.
func TestRecordAgain(t *testing.T) {
	each(t, func(w *world) {
		progress := Event{About: about("shop", "a"), Type: corev1.EventTypeNormal, Reason: "Progress", Message: "1 gone"}
		w.record(3000, progress)
		progress.Message = "2 gone"
		w.record(3005, progress)
		w.want("shop 2 3000-3005 2 gone")
		w.record(3006, progress, progress) // twice in one transaction
		w.want("shop 4 3000-3006 2 gone")

		others := []Event{progress, progress, progress}
		others[0].Topic = "t"
		others[1].Reason = "Other"
		others[2].About.UID = "uid-of-its-successor"
		w.record(3007, others...)
		if all := w.events(); len(all) != 4 {
			w.Errorf("got %d Events, want 4: %+v", len(all), all)
		}
	})
}

// TestRecordOnce: an Event with Once keeps its first message.
func TestRecordOnce(t *testing.T) {
	each(t, func(w *world) {
		e := Event{About: about("shop", "a"), Reason: "Reported", Message: "first", Once: true}
		w.record(3000, e)
		e.Message = "second"
		w.record(3001, e)
		w.want("shop 1 3000-3000 first")
	})
}

// TestPlace: the namespace of an Event, also when the object's namespace takes none.
func TestPlace(t *testing.T) {
	for name, test := range map[string]struct {
		namespace string
		elsewhere bool
		want      string
	}{
		"in the object's namespace":            {"shop", true, "shop"},
		"cluster-scoped":                       {"", false, "default"},
		"terminating namespace":                {"ending", true, "default"},
		"removed namespace":                    {"nowhere", true, "default"},
		"terminating namespace, not elsewhere": {"ending", false, ""},
		"removed namespace, not elsewhere":     {"nowhere", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(w *world) {
				w.record(3000, Event{About: about(test.namespace, "a"), Reason: "R", Message: "m", Elsewhere: test.elsewhere})
				if test.want == "" {
					w.want()
					return
				}
				w.want(test.want + " 1 3000-3000 m")
				if got := w.events()[0].InvolvedObject.Namespace; got != test.namespace {
					w.Errorf("about an object in %q, want %q", got, test.namespace)
				}
			})
		})
	}
}

// TestFailedTransactionRecordsNothing: a failed transaction leaves no Event.
func TestFailedTransactionRecordsNothing(t *testing.T) {
	each(t, func(w *world) {
		failure := errors.New("the transaction fails")
		err := w.store.Transact(w.Context(), func(tx *store.Tx) error {
			if err := w.recorder.Record(w.Context(), tx, time.Unix(3000, 0), Event{About: about("shop", "a"), Reason: "R", Message: "m"}); err != nil {
				return err
			}
			return failure
		})
		if !errors.Is(err, failure) {
			w.Fatalf("got %v", err)
		}
		w.want()
	})
}

// TestName: an Event's name is a valid name for any object's name, and stays the
// same between releases.
func TestName(t *testing.T) {
	for _, of := range []string{"a", strings.Repeat("long-", 50) + "x", strings.Repeat("a", maxName-1) + "." + "b"} {
		got := name(&Event{About: about("shop", of), Reason: "R", Topic: "t"})
		if problems := validation.IsDNS1123Subdomain(got); len(problems) > 0 {
			t.Errorf("%s: %v", got, problems)
		}
	}
	if got := name(&Event{About: about("shop", "a"), Reason: "R", Topic: "t"}); got != "a.620ff51350d2005" {
		t.Errorf("got %s: repeated reports would create new Events after an upgrade", got)
	}
}

// TestUntil: an Event that is to stay until a time outlives the others; one that would stay longer does.
func TestUntil(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		now := time.Unix(1000, 0)
		w := &world{t, storetest.Run(t, store.Options{DB: db, EventTTL: time.Hour, Now: func() time.Time { return now }}), Recorder{Kinds: kind.NewRegistry(builtin.Kinds())}}
		w.namespace("shop", false)
		about := object.Object{Key: object.Key{Kind: "configmaps", Namespace: "shop", Name: "a"}, UID: "a"}
		for _, tt := range []struct {
			reason string
			until  time.Time
			want   time.Time
		}{
			{"None", time.Time{}, now.Add(time.Hour)},
			{"Later", now.Add(24 * time.Hour), now.Add(24 * time.Hour)},
			{"Earlier", now.Add(time.Minute), now.Add(time.Hour)},
			{"Later", now.Add(48 * time.Hour), now.Add(48 * time.Hour)}, // repeated
		} {
			e := Event{About: about, Reason: tt.reason, Until: tt.until}
			w.record(1000, e)
			got := dbtest.NewSQL(t, db).Strings(`SELECT CAST(expires_at AS text) FROM object_expiries e JOIN objects o ON o.id = e.object WHERE o.name = $1`, name(&e))
			if want := fmt.Sprint([]string{fmt.Sprint(tt.want.UnixMilli())}); fmt.Sprint(got) != want {
				t.Errorf("%s until %v: it stays until %v, want %s", tt.reason, tt.until, got, want)
			}
		}
	})
}
