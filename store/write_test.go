package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

func TestCreate(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		r := newRequest("a", "one")
		o := create(t, s.Store, r)
		if o.Revision != 2 || o.UID != r.Meta.UID || o.Key != r.Key {
			t.Errorf("created %s", line(o))
		}
		got, err := s.Get(t.Context(), r.Key)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(o, got); diff != "" {
			t.Errorf("get after create:\n%s", diff)
		}
		if s.Revision() != 2 {
			t.Errorf("revision is %d", s.Revision())
		}
		_, err = s.Create(t.Context(), newRequest("a", "one"))
		wantCode(t, err, object.AlreadyExists)
		create(t, s.Store, newRequest("b", "one"))

		_, err = s.Get(t.Context(), object.Key{Kind: things, Namespace: "a", Name: "two"})
		wantCode(t, err, object.NotFound)
	})
}

func TestCreateRefusesBadInput(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		for name, spoil := range map[string]func(*CreateRequest){
			"no name":        func(r *CreateRequest) { r.Key.Name = "" },
			"no kind":        func(r *CreateRequest) { r.Key.Kind = "" },
			"no uid":         func(r *CreateRequest) { r.Meta.UID = "" },
			"no body":        func(r *CreateRequest) { r.Body = nil },
			"no namespace":   func(r *CreateRequest) { r.InNamespace, r.Key.Namespace = true, "" },
			"NUL in name":    func(r *CreateRequest) { r.Key.Name = "a\x00b" },
			"name not UTF-8": func(r *CreateRequest) { r.Key.Name = "a\xffb" },
		} {
			r := newRequest("a", "one")
			spoil(&r)
			if _, err := s.Create(t.Context(), r); !object.Is(err, object.BadRequest) {
				t.Errorf("%s: got error %v", name, err)
			}
		}
		if lines, revision, _ := list(t, s.Store, ListRequest{}); len(lines) != 0 || revision != 1 {
			t.Errorf("something was written: %q at %d", lines, revision)
		}
	})
}

func TestCreateNeedsItsNamespace(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		inNamespace := func(name string) error {
			r := newRequest("team", name)
			r.InNamespace = true
			_, err := s.Create(t.Context(), r)
			return err
		}
		wantCode(t, inNamespace("early"), object.NoNamespace)
		ns := createNamespace(t, s.Store, "team", finalizers("kubernetes"))
		if err := inNamespace("in time"); err != nil {
			t.Errorf("namespace exists: %v", err)
		}
		d, err := s.Delete(t.Context(), DeleteRequest{Key: ns.Key})
		if err != nil || d.Outcome != lifecycle.Mark {
			t.Fatalf("delete namespace: %v, %v", d.Outcome, err)
		}
		wantCode(t, inNamespace("late"), object.Terminating)
	})
}

func TestCreateWhileTheNameIsBeingDeleted(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		o := create(t, s.Store, newRequest("a", "one", finalizers("example.com/f")))
		if _, err := s.Delete(t.Context(), DeleteRequest{Key: o.Key}); err != nil {
			t.Fatal(err)
		}
		_, err := s.Create(t.Context(), newRequest("a", "one"))
		wantCode(t, err, object.BeingDeleted)
	})
}

func TestUpdate(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		first := create(t, s.Store, newRequest("a", "one"))
		second := change(t, s.Store, first, "new")
		if second.Revision != first.Revision+1 || second.UID != first.UID {
			t.Errorf("updated to %s", line(second))
		}
		got, err := s.Get(t.Context(), first.Key)
		if err != nil || line(got) != line(second) {
			t.Errorf("got %s, %v, want %s", line(got), err, line(second))
		}

		stale := UpdateRequest{Key: first.Key, IfRevision: first.Revision, Body: first.Body}
		_, err = s.Update(t.Context(), stale)
		wantCode(t, err, object.Conflict)
		stale.DryRun = true
		_, err = s.Update(t.Context(), stale)
		wantCode(t, err, object.Conflict)

		_, err = s.Update(t.Context(), UpdateRequest{Key: first.Key, IfRevision: second.Revision, Meta: metav1.ObjectMeta{UID: "other"}, Body: first.Body})
		wantCode(t, err, object.Conflict)

		missing := object.Key{Kind: things, Namespace: "a", Name: "two"}
		_, err = s.Update(t.Context(), UpdateRequest{Key: missing, IfRevision: 1, Body: first.Body})
		wantCode(t, err, object.NotFound)

		same, err := s.Update(t.Context(), UpdateRequest{Key: first.Key, IfRevision: second.Revision, Body: second.Body})
		if err != nil || same.Revision != second.Revision || s.Revision() != second.Revision {
			t.Errorf("an update that changes nothing: %s, %v", line(same), err)
		}
	})
}

func TestUpdateRemoves(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		o := create(t, s.Store, newRequest("a", "one", finalizers("example.com/f")))
		w := watch(t, s.Store, WatchRequest{From: o.Revision})
		m, _ := object.ParseMeta(o.Body)
		m.Finalizers = nil
		r := UpdateRequest{Key: o.Key, IfRevision: o.Revision, Meta: m, Body: bodyOf(m, ""), Remove: true}
		got, err := s.Update(t.Context(), r)
		if err != nil || got.Revision != o.Revision+1 || string(got.Body) != string(r.Body) {
			t.Errorf("got %s, %v", line(got), err)
		}
		_, err = s.Get(t.Context(), o.Key)
		wantCode(t, err, object.NotFound)
		_, err = s.Update(t.Context(), r)
		wantCode(t, err, object.NotFound)
		events, _, err := w.Next(t.Context())
		if err != nil || len(events) != 1 || events[0].Type != Removed || string(events[0].Object.Body) != string(o.Body) {
			t.Errorf("watched %+v, %v", events, err)
		}
		create(t, s.Store, newRequest("a", "one"))
	})
}

func TestDelete(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		plain := create(t, s.Store, newRequest("a", "plain"))
		held := create(t, s.Store, newRequest("a", "held", finalizers("example.com/f")))

		d := remove(t, s.Store, plain.Key)
		if d.Object.Revision != held.Revision+1 || string(d.Object.Body) != string(plain.Body) || d.Object.UID != plain.UID {
			t.Errorf("removed %s", line(d.Object))
		}
		_, err := s.Get(t.Context(), plain.Key)
		wantCode(t, err, object.NotFound)
		_, err = s.Delete(t.Context(), DeleteRequest{Key: plain.Key})
		wantCode(t, err, object.NotFound)

		d, err = s.Delete(t.Context(), DeleteRequest{Key: held.Key})
		if err != nil || d.Outcome != lifecycle.Mark || d.Object.Revision != s.Revision() {
			t.Fatalf("delete of an object with a finalizer: %+v, %v", d, err)
		}
		got, err := s.Get(t.Context(), held.Key)
		if err != nil || line(got) != line(d.Object) {
			t.Errorf("marked: got %s, %v, want %s", line(got), err, line(d.Object))
		}
		m, err := object.ParseMeta(got.Body)
		if err != nil || m.DeletionTimestamp == nil {
			t.Errorf("marked: no deletion time in %s: %v", got.Body, err)
		}

		again, err := s.Delete(t.Context(), DeleteRequest{Key: held.Key})
		if err != nil || again.Outcome != lifecycle.Unchanged || line(again.Object) != line(got) {
			t.Errorf("second delete: %+v, %v", again, err)
		}
		other := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("other")}
		_, err = s.Delete(t.Context(), DeleteRequest{Key: held.Key, Options: other})
		wantCode(t, err, object.Conflict)
	})
}

func TestDeletionColumns(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		o := create(t, s.Store, newRequest("a", "one", finalizers("example.com/f")))
		grace := int64(30)
		rules := lifecycle.Rules{Graceful: func([]byte, *int64) (int64, bool) { return grace, true }}
		d, err := s.Delete(t.Context(), DeleteRequest{Key: o.Key, Rules: rules})
		if err != nil {
			t.Fatal(err)
		}
		m, err := object.ParseMeta(d.Object.Body)
		if err != nil {
			t.Fatal(err)
		}
		var deletion, seconds int64
		row := s.db.Reader().QueryRow("SELECT deletion_time, grace_seconds FROM objects WHERE name = 'one'")
		if err := row.Scan(&deletion, &seconds); err != nil {
			t.Fatal(err)
		}
		if deletion != m.DeletionTimestamp.Unix() || seconds != grace {
			t.Errorf("columns say %d and %d, metadata %v", deletion, seconds, m)
		}
	})
}

func TestDryRunChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		o := create(t, s.Store, newRequest("a", "one"))
		held := create(t, s.Store, newRequest("a", "held", finalizers("example.com/f")))
		before, revision, _ := list(t, s.Store, ListRequest{})
		w := watch(t, s.Store, WatchRequest{From: revision})

		r := newRequest("a", "two")
		r.DryRun = true
		if got, err := s.Create(t.Context(), r); err != nil || got.Revision != 0 {
			t.Errorf("create: %s, %v", line(got), err)
		}
		taken := newRequest("a", "one")
		taken.DryRun = true
		_, err := s.Create(t.Context(), taken)
		wantCode(t, err, object.AlreadyExists)
		for _, leaves := range []bool{false, true} {
			u := UpdateRequest{Key: o.Key, IfRevision: o.Revision, Body: bodyOf(r.Meta, "new"), Remove: leaves, DryRun: true}
			if got, err := s.Update(t.Context(), u); err != nil || got.Revision != o.Revision || string(got.Body) != string(u.Body) {
				t.Errorf("update: %s, %v", line(got), err)
			}
		}
		d, err := s.Delete(t.Context(), DeleteRequest{Key: o.Key, DryRun: true})
		if err != nil || d.Outcome != lifecycle.Remove || line(d.Object) != line(o) {
			t.Errorf("delete: %+v, %v", d, err)
		}
		d, err = s.Delete(t.Context(), DeleteRequest{Key: held.Key, DryRun: true})
		if err != nil || d.Outcome != lifecycle.Mark || d.Object.Revision != held.Revision {
			t.Errorf("delete with finalizer: %+v, %v", d, err)
		}

		after, now, _ := list(t, s.Store, ListRequest{})
		if diff := cmp.Diff(before, after); diff != "" || now != revision {
			t.Errorf("at %d, was at %d:\n%s", now, revision, diff)
		}
		last := create(t, s.Store, newRequest("a", "real"))
		if events, _, err := w.Next(t.Context()); err != nil || len(events) != 1 || events[0].Object.Revision != last.Revision {
			t.Errorf("watched %+v, %v", events, err)
		}
	})
}

func TestOwners(t *testing.T) {
	yes := true
	owned := func(references ...metav1.OwnerReference) func(*metav1.ObjectMeta) {
		return func(m *metav1.ObjectMeta) { m.OwnerReferences = references }
	}
	a := metav1.OwnerReference{UID: "a", Controller: &yes}
	b := metav1.OwnerReference{UID: "b"}
	blocking := metav1.OwnerReference{UID: "b", BlockOwnerDeletion: &yes}
	each(t, func(t *testing.T, s running) {
		check := func(step string, want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, readOwners(t, s.Store)); diff != "" {
				t.Errorf("%s:\n%s", step, diff)
			}
		}
		o := create(t, s.Store, newRequest("n", "one", owned(a, b, blocking)))
		check("create", "a false true", "b true false")
		o = change(t, s.Store, o, "new")
		check("another field changes", "a false true", "b true false")

		m, _ := object.ParseMeta(o.Body)
		update := func(references ...metav1.OwnerReference) {
			t.Helper()
			m.OwnerReferences = references
			var err error
			o, err = s.Update(t.Context(), UpdateRequest{Key: o.Key, IfRevision: o.Revision, Meta: m, Body: bodyOf(m, "")})
			if err != nil {
				t.Fatal(err)
			}
		}
		update(b)
		check("one reference goes", "b false false")
		update()
		check("the last reference goes")
		update(a)
		check("a reference comes", "a false true")
		remove(t, s.Store, o.Key)
		check("the object goes")
	})
}

func readOwners(t *testing.T, s *Store) (owners []string) {
	t.Helper()
	rows, err := s.db.Reader().Query("SELECT owner_uid, blocking, controller FROM owners ORDER BY owner_uid")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var uid string
		var blocking, controller bool
		if err := rows.Scan(&uid, &blocking, &controller); err != nil {
			t.Fatal(err)
		}
		owners = append(owners, fmt.Sprint(uid, " ", blocking, " ", controller))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return owners
}

// TestOneWinner: many clients compare and swap the same object, and each revision has
// one writer.
func TestOneWinner(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		start := create(t, s.Store, newRequest("a", "counter"))
		const callers, rounds = 8, 20
		var running sync.WaitGroup
		for range callers {
			running.Go(func() {
				for range rounds {
					increment(t, s.Store, start.Key)
				}
			})
		}
		running.Wait()
		o, err := s.Get(t.Context(), start.Key)
		if err != nil {
			t.Fatal(err)
		}
		m, _ := object.ParseMeta(o.Body)
		if m.Generation != callers*rounds || o.Revision != start.Revision+callers*rounds {
			t.Errorf("counted to %d at revision %d", m.Generation, o.Revision)
		}
	})
}

func increment(t *testing.T, s *Store, key object.Key) {
	for {
		o, err := s.Get(t.Context(), key)
		if err != nil {
			t.Error(err)
			return
		}
		m, _ := object.ParseMeta(o.Body)
		m.Generation++
		_, err = s.Update(t.Context(), UpdateRequest{Key: key, IfRevision: o.Revision, Meta: m, Body: bodyOf(m, "")})
		if err == nil {
			return
		}
		if !object.Is(err, object.Conflict) {
			t.Error(err)
			return
		}
	}
}

func TestWritesWaitForRunAndFailAfterIt(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		create(t, s.Store, newRequest("a", "one"))
		idle, err := Open(t.Context(), Options{DB: s.db})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := idle.Create(ctx, newRequest("a", "two")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before Run: %v", err)
		}
		s.stop()
		if _, err := s.Create(t.Context(), newRequest("a", "two")); !errors.Is(err, errStopped) || !Unavailable(err) {
			t.Errorf("after Run: %v", err)
		}
		if err := s.Run(t.Context()); err == nil {
			t.Error("a store ran twice")
		}
		if _, err := s.Get(t.Context(), object.Key{Kind: things, Namespace: "a", Name: "two"}); !object.Is(err, object.NotFound) {
			t.Errorf("a refused write happened: %v", err)
		}
	})
}
