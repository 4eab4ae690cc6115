package gc

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// deleteGuarded deletes as a client does, on a server with this limit.
func (w *world) deleteGuarded(name string, limit int64, policy metav1.DeletionPropagation) {
	w.Helper()
	key := keyOf(name)
	_, err := w.store.Delete(w.Context(), store.DeleteRequest{
		Key: key, Options: metav1.DeleteOptions{PropagationPolicy: &policy}, Rules: w.rules(key.Kind), Guarded: true, MaxCascade: limit,
	})
	if err != nil {
		w.Fatalf("delete %s: %v", name, err)
	}
}

func annotated(name, value string) option {
	return func(_ *world, m *metav1.ObjectMeta) {
		if m.Annotations == nil {
			m.Annotations = map[string]string{}
		}
		m.Annotations[name] = value
	}
}

func confirmed(n int) option { return annotated(lifecycle.ConfirmCascade, fmt.Sprint(n)) }

// children adds dependents c0, c1, … of an owner.
func (w *world) children(owner string, n int) {
	w.Helper()
	for i := range n {
		w.add(fmt.Sprintf("%s-c%d", owner, i), owned(owner+"^"))
	}
}

// wait is longer than the guard's pause.
func (w *world) wait() {
	w.Helper()
	w.clock.Advance(2 * guardRecheck)
	w.drain()
}

const guard = lifecycle.ConfirmCascade

// TestGuard: with each policy, a cascade above the limit waits until it is confirmed,
// and a smaller one does not wait.
func TestGuard(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("default")
		w.add("leaf")
		w.deleteGuarded("leaf", 1, background)
		w.want("namespaces:/default")

		w.add("small")
		w.children("small", 3)
		w.deleteGuarded("small", 4, background)
		w.drain()
		w.want("namespaces:/default")

		for _, policy := range []metav1.DeletionPropagation{background, foreground} {
			w.add("a")
			w.children("a", 4)
			w.deleteGuarded("a", 4, policy)
			held := "a!(" + guard + ")"
			if policy == foreground {
				held = "a!(foregroundDeletion," + guard + ")"
			}
			held += " a-c0<a a-c1<a a-c2<a a-c3<a namespaces:/default"
			w.drain()
			w.wait()
			w.want(held)
			w.update("a", confirmed(4)) // one too few
			w.drain()
			w.want(held)
			w.update("a", annotated(lifecycle.ConfirmCascade, "true")) // stored before values were checked
			w.drain()
			w.want(held)
			w.update("a", confirmed(5))
			w.drain()
			w.want("namespaces:/default")
		}
		messages := map[string]int{}
		for _, e := range w.events() {
			if e.Reason != "CascadeHeld" || e.Type != "Warning" || e.Namespace != "default" {
				t.Errorf("got %+v", e)
			}
			messages[e.Message]++
		}
		if len(messages) != 2 || len(w.events()) != 4 {
			t.Errorf("got %v", messages)
		}
	})
}

// TestGuardOrphan: the guard does not hold a deletion that orphans its dependents.
func TestGuardOrphan(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.children("a", 3)
		w.deleteGuarded("a", 1, orphan)
		w.drain()
		w.want("a-c0 a-c1 a-c2")
		// A second delete that asks for it is let pass too.
		w.add("b")
		w.children("b", 3)
		w.deleteGuarded("b", 1, background)
		w.drain()
		w.deleteGuarded("b", 1, orphan)
		w.drain()
		w.want("a-c0 a-c1 a-c2 b-c0 b-c1 b-c2")
	})
}

// TestGuardCounts: the guard counts only objects that the deletion would remove.
func TestGuardCounts(t *testing.T) {
	each(t, func(w *world) {
		w.add("other")
		w.add("a")
		w.add("shared", owned("a", "other"))
		w.add("both", owned("a", "child"))
		w.add("child", owned("a"))
		w.update("both", func(_ *world, m *metav1.ObjectMeta) { m.OwnerReferences = nil }, owned("a", "child"))
		w.add("keeper", owned("a"), finalizers("orphan"))
		w.add("kept", owned("keeper"))
		w.add("going", owned("a"), finalizers("example.com/x"))
		w.delete("going", background)
		// a, child, both, keeper go; shared and kept stay; going goes anyway.
		w.deleteGuarded("a", 3, background)
		w.drain()
		if !strings.Contains(w.state(), "a!("+guard+")") {
			t.Fatalf("not held: %s", w.state())
		}
		w.update("a", confirmed(4))
		w.drain()
		w.want("going!(example.com/x)<a kept other shared<other")
	})
}

// TestGuardNamespace: a namespace counts its content, Events aside, and its own
// annotation is the limit for it and for what is in it.
func TestGuardNamespace(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("default")
		w.addBody("namespaces:/n", `,"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}`, annotated(lifecycle.MaxCascade, "3"))
		for _, name := range []string{"a", "b", "pods:c", "events:e", "events:f"} {
			w.add(name)
		}
		w.deleteGuarded("namespaces:/n", 0, background)
		w.drain()
		w.wait()
		for _, name := range []string{"a ", "b ", "pods:c"} {
			if !strings.Contains(w.state()+" ", name) {
				t.Fatalf("%s went: %s", name, w.state())
			}
		}
		w.update("namespaces:/n", confirmed(4))
		w.drain()
		w.want("namespaces:/default")

		w.addBody("namespaces:/n", `,"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}`, annotated(lifecycle.MaxCascade, "0"))
		w.add("x")
		w.children("x", 3)
		w.deleteGuarded("x", 1, background) // the namespace switches the server's guard off
		w.drain()
		w.want("namespaces:/default namespaces:/n")
	})
}

// TestGuardDeep: the limit applies to the whole cascade, deep or wide.
func TestGuardDeep(t *testing.T) {
	each(t, func(w *world) {
		w.add("l0")
		for i := 1; i < 30; i++ {
			w.add(fmt.Sprintf("l%d", i), owned(fmt.Sprintf("l%d", i-1)))
		}
		w.deleteGuarded("l0", 29, background)
		w.drain()
		w.update("l0", confirmed(29))
		w.drain()
		if got := len(w.rows()); got < 30 {
			t.Fatalf("%d left: %s", got, w.state())
		}
		w.update("l0", confirmed(30))
		w.drain()
		w.want("")
	})
}

// TestGuardHeldOwnerIsSolid: a dependent that is looked at for another reason is
// not collected because its owner is held in the foreground.
func TestGuardHeldOwnerIsSolid(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.add("b")
		w.children("a", 3)
		w.add("both", owned("a^", "b"))
		w.deleteGuarded("a", 2, foreground)
		w.delete("b", background)
		w.drain()
		w.want("a!(foregroundDeletion," + guard + ") a-c0<a a-c1<a a-c2<a both<a")
	})
}

// TestGuardRaces forces each write between the claim of a review and the review, and
// a restart between any two steps.
func TestGuardRaces(t *testing.T) {
	both(t, func(w *world) {
		// Confirmed while it is about to be counted.
		w.add("a")
		w.children("a", 3)
		w.deleteGuarded("a", 2, background)
		w.interrupted(func() { w.update("a", confirmed(4)) })
		w.drain()
		w.want("")

		// Dependents are added after the confirmation was written, before the
		// count: more would go than was agreed to.
		w.add("a")
		w.children("a", 3)
		w.deleteGuarded("a", 2, background)
		w.drain()
		w.update("a", confirmed(4))
		w.interrupted(func() { w.add("late", owned("a")) })
		w.drain()
		w.want("a!(" + guard + ") a-c0<a a-c1<a a-c2<a late<a")
		// The cascade becomes smaller without a write to the owner.
		w.delete("late", background)
		w.wait()
		w.want("")

		// Dependents are added after it was let pass: they go with an owner
		// that is gone, or that waits for them.
		w.add("a")
		w.children("a", 1)
		w.deleteGuarded("a", 2, foreground)
		w.turn()
		w.add("late", owned("a^"))
		w.drain()
		w.want("")

		// A restart: all that matters is on the object.
		w.add("a")
		w.children("a", 3)
		w.deleteGuarded("a", 2, background)
		w.restart()
		w.drain()
		w.restart()
		w.wait()
		w.want("a!(" + guard + ") a-c0<a a-c1<a a-c2<a")

		// The guard is switched off meanwhile: what was held stays so. A second
		// delete on a server without a limit changes nothing either.
		w.deleteGuarded("a", 0, background)
		w.wait()
		w.want("a!(" + guard + ") a-c0<a a-c1<a a-c2<a")

		// Two replicas look at it.
		other := w.replica()
		w.interrupted(func() { other.drain() })
		w.update("a", confirmed(10))
		other.drain()
		w.want("")
	})
}

// TestGuardCreatedInTheBatch: a dependent that is created in the very batch of
// writes that deletes its owner makes it one that can have a cascade. Whichever
// order the writer takes them in, nothing is left behind and nothing is stuck.
func TestGuardCreatedInTheBatch(t *testing.T) {
	each(t, func(w *world) {
		for round := range 10 {
			name := fmt.Sprintf("a%d", round)
			w.add(name)
			done := make(chan struct{})
			go func() {
				defer close(done)
				w.deleteGuarded(name, 1, background)
			}()
			w.add(name+"-late", owned(name))
			<-done
			w.drain()
			if o, err := w.store.Get(w.Context(), keyOf(name)); err == nil {
				m, err := object.ParseMeta(o.Body)
				if err != nil || !lifecycle.GuardOf(&m).Held {
					t.Fatalf("%s is neither gone nor held: %s", name, w.state())
				}
				w.update(name, confirmed(2))
				w.drain()
			}
		}
		w.want("")
	})
}

// TestGuardBounded: counting stops soon after the limit, however many there are.
func TestGuardBounded(t *testing.T) {
	each(t, func(w *world) {
		w.add("a")
		w.children("a", 300)
		w.deleteGuarded("a", 10, background)
		err := w.store.Transact(w.Context(), func(tx *store.Tx) error {
			found, err := tx.GetByUID(w.Context(), w.uids["a"])
			if err != nil {
				return err
			}
			for _, c := range []struct {
				allowed int64
				want    bool
			}{{0, true}, {10, true}, {300, true}, {301, false}, {1000, false}} {
				if got, err := exceeds(w.Context(), &tx.Reader, w.gc.kinds.Snapshot(), found, c.allowed); err != nil || got != c.want {
					t.Errorf("more than %d: got %v, %v", c.allowed, got, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

const definitions = object.Definitions + ":/"

// addLimited adds a namespace with a limit of its own.
func (w *world) addLimited(name string, limit int) {
	w.Helper()
	w.addBody("namespaces:/"+name, `,"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}`, annotated(lifecycle.MaxCascade, fmt.Sprint(limit)))
}

// wantHeld: the guard holds an object, and nothing else has changed.
func (w *world) wantHeld(name, before string) {
	w.Helper()
	w.drain()
	w.wait()
	key := keyOf(name)
	o, err := w.store.Get(w.Context(), key)
	if err != nil {
		w.Fatalf("%s: %v in %s", name, err, w.state())
	}
	m, err := object.ParseMeta(o.Body)
	if err != nil || !lifecycle.GuardOf(&m).Held {
		w.Fatalf("%s is not held: %+v, %v", name, m, err)
	}
	held := strings.Split(w.state(), " ")
	for i, text := range held {
		if text == name || strings.HasPrefix(text, name+"!") {
			held[i] = name
		}
	}
	if got := strings.Join(held, " "); got != before {
		w.Fatalf("%s is held, and the others are\n%s, were\n%s", name, got, before)
	}
}

// TestGuardFromOutside: a namespace's limit holds a cascade that enters it from a cluster-scoped
// owner, at any depth, from a definition, or with the namespace itself, although the server has no limit.
// A confirmation of all that would go lets it pass.
func TestGuardFromOutside(t *testing.T) {
	for name, c := range map[string]struct {
		root  string
		build func(w *world)
		count int
	}{
		"owner": {"/o", func(w *world) {
			w.add("/o")
			for _, name := range []string{"a", "b", "c", "m/x", "m/y"} {
				w.add(name, owned("/o^"))
			}
		}, 6},
		"deep": {"/o", func(w *world) {
			w.add("/o")
			w.add("/p", owned("/o"))
			w.add("a", owned("/p"))
			w.add("b", owned("a"))
			w.add("c", owned("b", "/o"))
		}, 5},
		"namespace": {"/o", func(w *world) {
			w.add("/o")
			w.addBody("namespaces:/k", `,"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}`, annotated(lifecycle.MaxCascade, "2"), owned("/o"))
			w.add("k/a")
			w.add("k/b", owned("k/a"))
		}, 4},
		"namespace that owns": {"namespaces:/k", func(w *world) {
			w.addLimited("k", 3)
			w.add("k/a")
			for _, name := range []string{"a", "b", "c"} {
				w.add(name, owned("namespaces:/k"))
			}
		}, 5},
		"definition": {definitions + "pods", func(w *world) {
			w.addBody(definitions+"pods", `,"spec":{"group":"","names":{"plural":"pods"}}`)
			w.add("pods:a")
			w.add("pods:b")
			w.add("c", owned("pods:b"))
			w.add("pods:m/x")
		}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(w *world) {
				for _, policy := range []metav1.DeletionPropagation{background, foreground} {
					w.addLimited("n", 2)
					w.addNamespace("m")
					c.build(w)
					before := w.state()
					w.deleteGuarded(c.root, 0, policy)
					w.wantHeld(c.root, before)
					w.update(c.root, confirmed(c.count-1))
					w.wantHeld(c.root, before)
					w.update(c.root, confirmed(c.count))
					w.drain()
					if name == "definition" { // the definition controller, which does not run here, deletes the rest
						for _, left := range []string{"pods:a", "pods:b", "pods:m/x"} {
							w.delete(left, background)
						}
					}
					for _, namespace := range []string{"n", "m"} {
						w.delete("namespaces:/"+namespace, background)
					}
					w.drain()
					w.want("")
				}
			})
		})
	}
}

// TestGuardWithinLimits: a cascade from outside that each namespace allows passes at once, and so does
// one that orphans, that another owner stops, or that a namespace without a limit lets in.
func TestGuardWithinLimits(t *testing.T) {
	each(t, func(w *world) {
		w.addLimited("n", 2)
		w.addLimited("k", 2)
		w.addNamespace("m")
		const namespaces = "namespaces:/k namespaces:/m namespaces:/n"
		w.add("/o")
		w.add("/keeper")
		for _, name := range []string{"a", "b", "k/a", "k/b", "m/a", "m/b", "m/c"} {
			w.add(name, owned("/o"))
		}
		w.add("c", owned("/o", "/keeper"))
		w.deleteGuarded("/o", 0, background)
		w.drain()
		w.want("/keeper c</keeper " + namespaces)
		w.add("a", owned("/keeper"))
		w.add("b", owned("/keeper"))
		w.deleteGuarded("/keeper", 0, orphan)
		w.drain()
		w.want("a b c " + namespaces)
		// The finalizer that a client set asks for a confirmation in any case.
		w.add("/preset", finalizers(guard))
		w.add("d", owned("/preset"))
		w.deleteGuarded("/preset", 0, background)
		w.wait()
		w.want("/preset!(" + guard + ") a b c d</preset " + namespaces)
	})
}

// TestGuardFromOutsideRaces forces writes between a delete, its count and what follows.
func TestGuardFromOutsideRaces(t *testing.T) {
	both(t, func(w *world) {
		w.addLimited("far", 1)
		w.addNamespace("n")
		begin := func() {
			w.add("/o")
			w.add("a", owned("/o"))
			w.add("b", owned("/o"))
		}
		limit := func(n string) { w.update("namespaces:/n", annotated(lifecycle.MaxCascade, n)) }
		const rest = "namespaces:/far namespaces:/n"
		held := "/o!(" + guard + ") a</o b</o "

		// The limit is set after the delete, before the count: it holds.
		begin()
		w.deleteGuarded("/o", 0, background)
		w.interrupted(func() { limit("1") })
		w.drain()
		w.want(held + rest)
		// A restart, and another replica.
		w.restart()
		other := w.replica()
		w.interrupted(func() { other.drain() })
		w.wait()
		w.want(held + rest)
		// It is raised: that is a right of its own, and what was held goes.
		limit("2")
		w.wait()
		w.want(rest)

		// A dependent is added before the count, and is counted.
		begin()
		w.deleteGuarded("/o", 0, background)
		w.interrupted(func() { w.add("c", owned("/o")) })
		w.drain()
		w.want(held + "c</o " + rest)
		w.delete("c", background)
		w.wait()
		w.want(rest)

		// Dependents that are added, and a limit that is lowered, after it passed do not stop it.
		begin()
		w.deleteGuarded("/o", 0, foreground)
		w.turn()
		limit("1")
		w.drain()
		w.want(rest)

		// Another replica sets the first limit of all just before the delete.
		w.update("namespaces:/far", annotated(lifecycle.MaxCascade, "0"))
		limit("0")
		other.update("namespaces:/n", annotated(lifecycle.MaxCascade, "1"))
		begin()
		w.deleteGuarded("/o", 0, background)
		w.drain()
		w.want(held + rest)
		w.update("/o", confirmed(3))
		w.drain()
		w.want(rest)
	})
}

// TestGuardLimitedInTheBatch: the first limit of all is written at the same time as the delete. The delete is
// held if the limit was first, whatever the batches were.
func TestGuardLimitedInTheBatch(t *testing.T) {
	each(t, func(w *world) {
		w.addNamespace("n")
		for round := range 10 {
			w.add("/o")
			w.add("a", owned("/o"))
			w.add("b", owned("/o"))
			deleted := make(chan store.DeleteResult)
			go func() {
				policy := background
				result, err := w.store.Delete(w.Context(), store.DeleteRequest{
					Key: keyOf("/o"), Options: metav1.DeleteOptions{PropagationPolicy: &policy}, Guarded: true,
				})
				if err != nil {
					w.Error(err)
				}
				deleted <- result
			}()
			w.update("namespaces:/n", annotated(lifecycle.MaxCascade, "1"))
			ns, err := w.store.Get(w.Context(), keyOf("namespaces:/n"))
			result := <-deleted
			if err != nil {
				t.Fatal(err)
			}
			if first := ns.Revision < result.Object.Revision; first && result.Outcome != lifecycle.Mark {
				t.Fatalf("round %d: the limit has revision %d, and the object was removed at %d", round, ns.Revision, result.Object.Revision)
			}
			w.drain()
			if result.Outcome == lifecycle.Mark && ns.Revision < result.Object.Revision {
				w.want("/o!(" + guard + ") a</o b</o namespaces:/n")
			}
			w.update("namespaces:/n", func(_ *world, m *metav1.ObjectMeta) { m.Annotations = nil })
			w.wait()
			w.want("namespaces:/n")
		}
	})
}
