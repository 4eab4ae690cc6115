package expiry

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

var announced = map[string]string{lifecycle.AnnounceExpiry: "true", "tmp": "yes"}

// events returns the Events of expiry: the object, its count, and the message.
func (w *world) events() (all []string) {
	w.t.Helper()
	found, err := w.store.Reader().Select(w.t.Context(), store.Selection{Kind: object.Events, Namespace: "shop", Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, o := range found {
		var e corev1.Event
		if err := json.Unmarshal(o.Body, &e); err != nil {
			w.t.Fatal(err)
		}
		message, _, _ := strings.Cut(e.Message, ";")
		all = append(all, fmt.Sprintf("%s %d %s", e.InvolvedObject.Name, e.Count, message))
	}
	return all
}

func (w *world) forgetEvents() {
	w.t.Helper()
	found, err := w.store.Reader().Select(w.t.Context(), store.Selection{Kind: object.Events, Namespace: "shop", Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, o := range found {
		if _, err := w.store.Delete(w.t.Context(), store.DeleteRequest{Key: o.Key}); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) wantEvents(want ...string) {
	w.t.Helper()
	if got := w.events(); !slices.Equal(got, want) {
		w.t.Errorf("at %v the Events are %q, want %q", w.now.Sub(born), got, want)
	}
}

// says is an Event of an object that expires at an age of the world.
func says(name string, count int, at time.Duration, by string) string {
	return fmt.Sprintf("%s %d it expires at %s by %s", name, count, born.Add(at).UTC().Format(time.RFC3339), by)
}

const days = 24 * time.Hour

// TestAnnounce: an object with the label gets an Event a day before it expires, by itself or by a policy; one that has less than a day
// gets it at once; without the label there is none.
func TestAnnounce(t *testing.T) {
	each(t, func(w *world) { // at 1h
		w.configMap("a", 0, announced)
		w.configMap("b", 0, tmp)
		w.configMap("c", 0, map[string]string{lifecycle.AnnounceExpiry: "false", "tmp": "yes"})
		w.policy(policyKey("p"), 1, "1", strings.Replace(byAge, `"2h"`, `"72h"`, 1))
		w.settle()
		w.configMap("d", 2*time.Hour, announced)
		set := func(name string, at time.Duration) {
			storetest.Update(t, w.store, mapKey(name), lifecycle.Rules{}, func(m *metav1.ObjectMeta) {
				m.Annotations = map[string]string{lifecycle.ExpiresAt: born.Add(at).UTC().Format(time.RFC3339)}
			})
		}
		w.now = born.Add(2*days - time.Second)
		w.settle()
		w.wantEvents()
		w.now = born.Add(2 * days)
		w.settle()
		a := says("a", 1, 3*days, "expirypolicy/p")
		w.wantEvents(a)
		set("d", 2*days+time.Hour)
		w.settle()
		w.wantEvents(a, says("d", 1, 2*days+time.Hour, lifecycle.ExpiresAt))
		w.now = born.Add(3*days - time.Second)
		w.settle()
		w.wantMaps("a", "b", "c")
		w.now = born.Add(3 * days)
		w.settle()
		w.wantMaps()
		w.wantEvents(a, says("d", 1, 2*days+time.Hour, lifecycle.ExpiresAt))
	})
}

// TestAnnounceOnce: no write, no other replica and no review that is repeated says it again, also when the Event has gone. Another time
// is said.
func TestAnnounceOnce(t *testing.T) {
	each(t, func(w *world) {
		o := w.configMap("a", 0, announced)
		set := func(at time.Duration, note string) {
			storetest.Update(t, w.store, mapKey("a"), lifecycle.Rules{}, func(m *metav1.ObjectMeta) {
				m.Annotations = map[string]string{lifecycle.ExpiresAt: born.Add(at).UTC().Format(time.RFC3339), "note": note}
			})
		}
		set(30*time.Hour, "1")
		w.settle()
		w.wantEvents()
		w.now = born.Add(10 * time.Hour)
		stored, err := w.store.Reader().GetByUID(t.Context(), o.UID)
		if err != nil {
			t.Fatal(err)
		}
		raced := false
		w.beforeSay = func() { // another replica is faster
			if !raced {
				raced = true
				if err := w.say(t.Context(), stored, Due{At: born.Add(30 * time.Hour), By: lifecycle.ExpiresAt}); err != nil {
					t.Error(err)
				}
			}
		}
		w.settle()
		said := says("a", 1, 30*time.Hour, lifecycle.ExpiresAt)
		w.wantEvents(said)
		set(30*time.Hour, "2")
		w.settle()
		again := func() {
			dbtest.NewSQL(t, w.db).Exec(`UPDATE expiry_reviews SET review_after = 0, claim_token = NULL, claim_until = NULL`)
			w.settle()
		}
		again()
		w.wantEvents(said)
		set(32*time.Hour, "3")
		w.settle()
		w.wantEvents(says("a", 2, 32*time.Hour, lifecycle.ExpiresAt))
		w.forgetEvents()
		again()
		w.wantEvents()
		if !raced {
			t.Error("nothing was said")
		}
	})
}

// TestAnnounceCondition: what no policy would take is not announced, and a write that changes this is noticed.
func TestAnnounceCondition(t *testing.T) {
	each(t, func(w *world) {
		w.configMap("a", 0, announced, "open")
		w.policy(policyKey("p"), 1, "1", `{"resources":["configmaps"],"condition":"object.data.state == 'closed'","expire":{"after":"72h"}}`)
		w.settle()
		w.now = born.Add(2*days + time.Hour)
		w.settle()
		w.wantEvents()
		closed := storetest.Object(t, mapKey("a"), `,"data":{"state":"closed"}`, func(m *metav1.ObjectMeta) { m.Labels = announced })
		old, err := w.store.Get(t.Context(), mapKey("a"))
		if err == nil {
			closed.Meta.UID = old.UID
			closed.Body, err = object.WithMeta(closed.Body, closed.Meta)
		}
		if err == nil {
			_, err = w.store.Update(t.Context(), store.UpdateRequest{Key: mapKey("a"), IfRevision: old.Revision, Meta: closed.Meta, Body: closed.Body})
		}
		if err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.wantEvents(says("a", 1, 3*days, "expirypolicy/p"))
		w.now = born.Add(3 * days)
		w.settle()
		w.wantMaps()
	})
}
