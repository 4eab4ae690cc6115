package gc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store/cascades"
)

// hook plays the webhooks: it selects kinds, counts who was asked about, and answers.
type hook struct {
	selects map[string]bool
	answer  func(o object.Object) error

	mu    sync.Mutex
	asked []string // guarded by mu
}

func (h *hook) SelectsDelete(storage string) bool { return h.selects[storage] }

func (h *hook) AdmitDelete(_ context.Context, o object.Object, options metav1.DeleteOptions, emptying bool) error {
	h.mu.Lock()
	h.asked = append(h.asked, fmt.Sprintf("%s@%s %s", nameOf(o.Key), map[bool]string{true: "namespace", false: "owner"}[emptying], *options.PropagationPolicy))
	h.mu.Unlock()
	if h.answer == nil {
		return nil
	}
	return h.answer(o)
}

// hooked gives the world's collector a hook for things.
func (w *world) hooked(answer func(object.Object) error) *hook {
	h := &hook{selects: map[string]bool{things: true}, answer: answer}
	w.gc.admitter.admission = h
	return h
}

// askTurn is one turn of the admitter.
func (w *world) askTurn() review.Result {
	w.Helper()
	r, err := w.gc.admitter.engine.RunOne(context.Background())
	if err != nil {
		w.Fatalf("turn of the admitter: %v", err)
	}
	return r
}

// settle takes turns of both queues until nothing is due.
func (w *world) settle() {
	w.Helper()
	for range 100 {
		if w.turn().Claimed+w.askTurn().Claimed == 0 {
			return
		}
	}
	w.Fatal("the collector and the admitter do not become idle")
}

// asks are the rows that wait for an admission: "b", or "b: error".
func (w *world) asks() string {
	w.Helper()
	rows, err := w.db.Reader().QueryContext(context.Background(), `SELECT uid, coalesce(last_error, '') FROM gc_admission_reviews ORDER BY uid`)
	if err != nil {
		w.Fatal(err)
	}
	defer rows.Close()
	var parts []string
	for rows.Next() {
		var uid, lastError string
		if err := rows.Scan(&uid, &lastError); err != nil {
			w.Fatal(err)
		}
		parts = append(parts, strings.TrimSuffix(w.named[types.UID(uid)]+": "+lastError, ": "))
	}
	if err := rows.Err(); err != nil {
		w.Fatal(err)
	}
	return strings.Join(parts, "; ")
}

func (w *world) wantAsks(want string) {
	w.Helper()
	if got := w.asks(); got != want {
		w.Errorf("waiting: got %q, want %q", got, want)
	}
}

// TestCollectorAsks: the collector deletes what a hook selects after asking about it, and
// nothing without asking; other kinds do not wait.
func TestCollectorAsks(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newArchivingWorld(t, db, Options{})
		h := w.hooked(nil)
		root := w.add("a")
		w.add("b", owned("a"))
		w.add("c", owned("b"))
		w.add("configmaps:d", owned("a"))
		w.delete("a", background)
		w.drain()
		w.want("b<a c<b")
		w.wantAsks("b")
		w.settle()
		w.want("")
		w.wantAsks("")
		w.wantQueue("")
		if got := strings.Join(h.asked, ", "); got != "b@owner Background, c@owner Background" {
			t.Errorf("asked about %s", got)
		}
		n, err := cascades.CountUnrestored(context.Background(), w.store.Reader(), string(root), 0)
		if err != nil || n != 4 {
			t.Errorf("the cascade has %d objects in the archive, want 4 (%v)", n, err)
		}
	})
}

// TestForegroundAsks: an owner in foreground deletion waits for a dependent until its
// delete is admitted.
func TestForegroundAsks(t *testing.T) {
	each(t, func(w *world) {
		refuse := true
		h := w.hooked(func(object.Object) error {
			if refuse {
				return apierrors.NewForbidden(metav1.Unversioned.WithResource("x").GroupResource(), "b", errors.New("no"))
			}
			return nil
		})
		w.add("configmaps:a")
		w.add("b", owned("configmaps:a^"))
		w.add("configmaps:c", owned("configmaps:a^"))
		w.delete("configmaps:a", foreground)
		w.settle()
		w.want("b<configmaps:a configmaps:a!(foregroundDeletion)")
		if got := w.asks(); !strings.HasPrefix(got, "b: ") || !strings.Contains(got, "no") {
			w.Errorf("waiting: %q", got)
		}
		refuse = false
		w.clock.Advance(2 * time.Minute)
		w.settle()
		w.want("")
		w.wantAsks("")
		if len(h.asked) != 2 {
			w.Errorf("asked %d times: %v", len(h.asked), h.asked)
		}
	})
}

// TestNamespaceAsks: the content of a terminating namespace goes after asking, in the name
// of the namespace controller.
func TestNamespaceAsks(t *testing.T) {
	each(t, func(w *world) {
		h := w.hooked(nil)
		w.addNamespace("m")
		w.add("m/a")
		w.add("configmaps:m/b")
		w.delete("namespaces:/m", background)
		w.settle()
		w.want("")
		w.wantAsks("")
		if got := strings.Join(h.asked, ", "); got != "m/a@namespace Background" {
			w.Errorf("asked about %s", got)
		}
	})
}

// TestHeldNamespaceAsks: while the guard holds the deletion of a namespace, its content does not
// go: an object that waits for its admission and is no longer garbage stays.
func TestHeldNamespaceAsks(t *testing.T) {
	each(t, func(w *world) {
		h := w.hooked(nil)
		w.addNamespace("m")
		w.add("m/a")
		w.add("m/keeper")
		w.add("m/b", owned("m/a"))
		w.delete("m/a", background)
		w.drain()
		w.wantAsks("m/b")
		w.update("m/b", owned("m/keeper"))
		w.deleteGuarded("namespaces:/m", 1, background)
		w.settle()
		w.want("m/b<m/keeper m/keeper namespaces:/m!(" + guard + ")")
		w.wantAsks("")
		if len(h.asked) != 0 {
			w.Errorf("asked about %v", h.asked)
		}
	})
}

// TestAskedAboutARevision: what is admitted is one revision of the object. A change while
// the hook is asked is judged again; an object that is no longer garbage stays.
func TestAskedAboutARevision(t *testing.T) {
	each(t, func(w *world) {
		var meanwhile func()
		h := w.hooked(func(object.Object) error {
			if f := meanwhile; f != nil {
				meanwhile = nil
				f()
			}
			return nil
		})
		w.add("a")
		w.add("b", owned("a"))
		w.delete("a", background)
		w.drain()
		meanwhile = func() {
			w.update("b", func(_ *world, m *metav1.ObjectMeta) { m.Labels = map[string]string{"new": "yes"} })
		}
		w.askTurn()
		w.want("b<a")
		w.wantAsks("b")
		w.settle()
		w.want("")
		if len(h.asked) != 2 {
			w.Errorf("asked %d times", len(h.asked))
		}

		w.add("c")
		w.add("keeper")
		w.add("d", owned("c"))
		w.delete("c", background)
		w.drain()
		meanwhile = func() { w.update("d", owned("keeper")) }
		w.settle()
		w.wantAsks("")
		if got := w.state(); !strings.Contains(got, "d<") {
			w.Errorf("the object with a live owner is gone: %s", got)
		}
	})
}

// TestGarbageAgainWhileAsked: the admitter finds that an object is no longer garbage, and a
// review finds that it is again before the row is settled. The delete is not lost.
func TestGarbageAgainWhileAsked(t *testing.T) {
	each(t, func(w *world) {
		w.hooked(nil)
		w.add("a")
		w.add("keeper")
		w.add("b", owned("a"))
		w.delete("a", background)
		w.drain()
		w.update("b", owned("keeper"))
		w.askTurn() // finds a live owner, and settles the row in the same transaction
		w.wantAsks("")
		w.delete("keeper", background)
		w.settle()
		w.want("")
	})
}

// TestAsksBelowAnUnservedKind: that a removed owner of a kind which is not served is gone, only its review says when there is no
// archive. The review stays until the deletes below it are admitted.
func TestAsksBelowAnUnservedKind(t *testing.T) {
	each(t, func(w *world) {
		w.unserved(things, clusterThings)
		w.hooked(nil)
		w.add("a")
		w.add("b", owned("a"))
		w.add("c", owned("b"))
		w.delete("a", background)
		for range 4 {
			w.settle()
			w.clock.Advance(askRecheck)
		}
		w.want("")
		w.wantAsks("")
		w.wantQueue("")
	})
}

// TestKillBetweenAskAndDelete: the process dies after the hook admitted the delete. The row
// is left; another replica asks again.
func TestKillBetweenAskAndDelete(t *testing.T) {
	each(t, func(w *world) {
		ctx, cancel := context.WithCancel(context.Background())
		h := w.hooked(func(object.Object) error {
			cancel() // the delete that follows fails, and so does the settling
			return nil
		})
		w.add("a")
		w.add("b", owned("a"))
		w.delete("a", background)
		w.drain()
		_, _ = w.gc.admitter.engine.RunOne(ctx) // ends with the context
		w.want("b<a")
		w.wantAsks("b")
		h.answer = nil
		w.clock.Advance(2 * time.Minute)
		w.settle()
		w.want("")
		w.wantAsks("")
	})
}

// TestHookThatIsDown: a kind whose hook does not answer is asked about once in a while, and
// holds up no other kind.
func TestHookThatIsDown(t *testing.T) {
	each(t, func(w *world) {
		down := true
		h := &hook{selects: map[string]bool{things: true, "configmaps": true}}
		h.answer = func(o object.Object) error {
			if down && o.Kind == things {
				return apierrors.NewInternalError(errors.New(`failed calling webhook "w.example.com"`))
			}
			return nil
		}
		w.gc.admitter.admission = h
		w.add("a")
		for i := range 30 {
			w.add(fmt.Sprintf("b-%d", i), owned("a"))
		}
		for i := range 5 {
			w.add(fmt.Sprintf("configmaps:c-%d", i), owned("a"))
		}
		w.delete("a", background)
		w.settle()
		if got := w.state(); strings.Contains(got, "configmaps") {
			w.Errorf("the other kind was held up: %s", got)
		}
		if n := len(h.asked); n < 6 || n > 5+askQueue.Effects {
			w.Errorf("asked %d times; want the 5 objects of the other kind, and as many of the first as are asked about at once", n)
		}
		for _, ask := range strings.Split(w.asks(), "; ") {
			if !strings.Contains(ask, "w.example.com") {
				w.Errorf("%q does not name the webhook", ask)
			}
		}
		down = false
		for range 6 {
			w.clock.Advance(time.Minute)
			w.settle()
		}
		w.want("")
		w.wantAsks("")
	})
}

func TestGate(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	g := gate{now: func() time.Time { return now }}
	outage, refusal := apierrors.NewInternalError(errors.New("down")), apierrors.NewForbidden(metav1.Unversioned.WithResource("x").GroupResource(), "x", nil)
	enterTwice := func(what string) {
		t.Helper()
		for range 2 {
			if err := g.enter("a"); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	enterTwice("a kind that works is asked about any number of times at once")
	g.leave("a", outage)
	if g.enter("a") == nil || g.enter("b") != nil {
		t.Error("after a failure the kind is asked about, or another is not")
	}
	now = now.Add(gateFirst)
	if g.enter("a") != nil || g.enter("a") == nil {
		t.Error("after the wait not exactly one asks")
	}
	g.leave("a", outage)
	now = now.Add(gateFirst)
	if g.enter("a") == nil {
		t.Error("the wait does not grow")
	}
	now = now.Add(gateMost)
	if g.enter("a") != nil {
		t.Error("not asked after the longest wait")
	}
	g.leave("a", refusal)
	enterTwice("after a refusal the kind works")
}
