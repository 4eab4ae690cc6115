package archive

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

// asUser is a client that may do everything, with a name.
func asUser(name string) kind.Client {
	c := kindtest.Almighty()
	c.Name, c.User = name, &user.DefaultInfo{Name: name}
	return c
}

// stepwise gives the archive a clock that passes any wait, and lets a test take its turns.
func (w *world) stepwise(clientOf func(context.Context, user.Info) kind.Client) {
	w.Helper()
	var passed atomic.Int64
	o := w.archive.opts
	o.Now = func() time.Time { return time.Now().Add(time.Duration(passed.Add(1)) * time.Minute) }
	a, err := New(w.db, w.store, w.kinds, o)
	if err != nil {
		w.Fatal(err)
	}
	a.clientOf.Store(&clientOf)
	w.archive = a
}

// request stores a Restore as submit does, without the wait.
func (w *world) request(client kind.Client, name string, spec v1.RestoreSpec) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	w.archive.opts.Spare = time.Hour // the time of the request is over at once
	if _, err := w.archive.submit(ctx, client, &v1.Restore{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}); err != nil {
		w.Fatal(err)
	}
	w.archive.opts.Spare = 0
}

func (w *world) turn() {
	w.Helper()
	if _, err := w.archive.engine.RunOne(w.Context()); err != nil {
		w.Fatal(err)
	}
}

func (w *world) stored(name string) v1.RestoreStatus {
	w.Helper()
	s, err := w.archive.load(w.Context(), name)
	if err != nil || s == nil {
		w.Fatalf("restore %s: %v, %v", name, s, err)
	}
	return s.Status
}

// TestCallBack: the deletion of a random object, which has come any far, is called back, while
// the collector and the controllers go on, also during a pass. In the end the world is as it was.
func TestCallBack(t *testing.T) {
	t.Parallel()
	first := *undoSeed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newUndoWorlds(t, db)
		w.stepwise(func(_ context.Context, u user.Info) kind.Client {
			c := w.Client()
			mutate := c.Mutate
			c.Mutate = func(ctx context.Context, v *kind.Version, key object.Key, obj runtime.Object, dryRun bool) error {
				_, _, err := w.Turn(ctx) // webhooks take their time
				return errors.Join(err, mutate(ctx, v, key, obj, dryRun))
			}
			return c
		})
		for i := range *undoWorlds {
			seed := first + uint64(i)
			u := &undoWorld{world: w, rand: rand.New(rand.NewPCG(seed, 2)), namespace: fmt.Sprintf("c%d", i)}
			if !u.try(seed, func() { u.callBack(fmt.Sprintf("r%d", i)) }) {
				return
			}
		}
	})
}

func (u *undoWorld) callBack(name string) {
	u.Helper()
	ns := u.createWith("namespaces:/"+u.namespace, func(m *metav1.ObjectMeta) {
		m.Labels = map[string]string{"kubernetes.io/metadata.name": u.namespace}
	})
	if u.rand.IntN(4) == 0 {
		u.define()
	}
	for i := range 3 + u.rand.IntN(12) {
		u.all = append(u.all, u.createRandom(i))
	}
	before := u.state()
	o := u.all[u.rand.IntN(len(u.all))]
	switch {
	case u.rand.IntN(4) == 0:
		o = ns
	case u.definition.UID != "" && u.rand.IntN(2) == 0:
		o = u.definition
	}
	u.deny("DELETE")
	id := u.startDelete(o)
	for range u.rand.IntN(6) {
		u.step(name)
	}
	spec := v1.RestoreSpec{Cascade: id}
	if u.rand.IntN(2) == 0 {
		spec = v1.RestoreSpec{UID: o.UID, WithCascade: true}
	}
	u.request(asUser("alice"), name, spec)
	dbtest.Await(u, "the restore ends", func() bool {
		for range 200 {
			if u.stored(name).Phase.Ended() {
				return true
			}
			u.step(name)
		}
		u.admit()
		return false
	})
	u.admit()
	status := u.stored(name)
	u.log("%+v", status)
	if status.Phase != v1.Complete || !status.Complete {
		u.Errorf("phase %s", status.Phase)
	}
	u.Collect()
	after := u.state()
	for _, r := range status.Results {
		if r.Outcome == v1.CalledOff {
			u.raise(before, after, r.Name)
		}
	}
	u.compare(before, after)
	u.undefine()
}

// raise accepts what differs in an object that never left: its generation counts its deletion and the end of that as
// changes, and what a controller did meanwhile stays.
func (u *undoWorld) raise(before, after map[object.Key][]byte, name string) {
	u.Helper()
	for key := range before {
		if key.Name != name || after[key] == nil {
			continue
		}
		was, err := object.ParseMeta(before[key])
		is, failed := object.ParseMeta(after[key])
		if err := errors.Join(err, failed); err != nil {
			u.Fatal(err)
		}
		was.Generation = max(was.Generation, is.Generation)
		if is.Labels["edited"] != "" { // by a controller, while it was held: see letGo
			was.Labels, was.Finalizers = is.Labels, is.Finalizers
		}
		if before[key], err = object.WithMeta(before[key], was); err != nil {
			u.Fatal(err)
		}
	}
}

// step is one turn of the collector, of the archive, or of a controller.
func (u *undoWorld) step(name string) {
	u.Helper()
	switch u.rand.IntN(3) {
	case 0:
		if _, _, err := u.Turn(u.Context()); err != nil {
			u.Fatal(err)
		}
		u.Later(time.Second)
		u.log("the collector's turn")
	case 1:
		u.turn()
		u.log("the archive's turn")
	default:
		for _, key := range u.deleting() {
			if u.rand.IntN(2) == 0 {
				u.letGo(key)
				u.log("let go %s", key)
			}
		}
	}
}

// TestRestoreWaits: a Restore waits for what a finalizer holds, says so, and ends when that is
// gone. It has the rights that its client has then, and it is the client's.
func TestRestoreWaits(t *testing.T) {
	each(t, func(w *world) {
		owner := w.create("configmaps:n/owner")
		child := w.createWith("configmaps:n/child", func(m *metav1.ObjectMeta) {
			m.OwnerReferences, m.Finalizers = w.OwnedBy(owner), []string{"x.dev/hold"}
		})
		w.delete(owner, background)
		var may atomic.Bool
		may.Store(true)
		w.stepwise(func(_ context.Context, u user.Info) kind.Client {
			c := asUser(u.GetName())
			c.Authorize = func(verb string, r schema.GroupResource, _, name string) error {
				if may.Load() || verb == "get" {
					return nil
				}
				return apierrors.NewForbidden(r, name, fmt.Errorf("not any more"))
			}
			return c
		})
		spec := v1.RestoreSpec{UID: owner.UID, WithCascade: true}
		w.request(asUser("alice"), "first", spec)
		w.request(asUser("bob"), "second", spec)
		w.request(asUser("bob"), "third", spec)
		restores := requests{w.archive}
		if _, err := restores.Delete(w.Context(), asUser("bob"), "", "third", false); err != nil {
			w.Error(err)
		}
		stranger := kind.Client{Name: "eve", User: &user.DefaultInfo{Name: "eve"}}
		for _, name := range []string{"first", "third"} {
			if _, err := restores.Get(w.Context(), stranger, "", name); !object.Is(err, object.NotFound) {
				w.Errorf("a stranger gets %s: %v", name, err)
			}
		}
		reader := asUser("vera")
		reader.Authorize = func(verb string, r schema.GroupResource, _, name string) error {
			if verb == "get" {
				return nil
			}
			return apierrors.NewForbidden(r, name, fmt.Errorf("reads only"))
		}
		if _, err := restores.Get(w.Context(), reader, "", "first"); err != nil {
			w.Errorf("who may get the object does not see its restore: %v", err)
		}
		if _, err := restores.Delete(w.Context(), reader, "", "first", false); !apierrors.IsForbidden(err) {
			w.Errorf("who may only read stops a restore: %v", err)
		}
		for range 5 {
			w.turn()
		}
		if s := w.stored("first"); s.Phase != v1.Waiting || s.Complete || s.Waiting != 1 || s.Created+s.Skipped != 1 {
			w.Errorf("got %+v", s)
		}
		if !w.exists("configmaps:n/owner") {
			w.Error("the owner did not come back at once")
		}
		w.Release(child.Key)
		w.Collect()
		may.Store(false)
		w.turn()
		if s := w.stored("second"); s.Phase != v1.Incomplete || s.Message == "" {
			w.Errorf("without rights: %+v", s)
		}
		if w.exists("configmaps:n/child") {
			w.Error("restored without the right")
		}
		may.Store(true)
		w.request(asUser("alice"), "fourth", spec)
		for range 3 {
			w.turn()
		}
		if s := w.stored("fourth"); s.Phase != v1.Complete || s.Created != 1 || !w.exists("configmaps:n/child") {
			w.Errorf("got %+v", s)
		}
	})
}

// TestRestoreOfOneWaits: a Restore of one object waits until that is gone.
func TestRestoreOfOneWaits(t *testing.T) {
	each(t, func(w *world) {
		o := w.createWith("configmaps:n/a", func(m *metav1.ObjectMeta) { m.Finalizers = []string{"x.dev/hold"} })
		w.delete(o, background)
		w.stepwise(func(_ context.Context, u user.Info) kind.Client { return asUser(u.GetName()) })
		w.request(asUser("alice"), "back", v1.RestoreSpec{UID: o.UID})
		for range 3 {
			w.turn()
		}
		if s := w.stored("back"); s.Phase != v1.Waiting || s.LeftBehind != 0 {
			w.Errorf("got %+v", s)
		}
		w.Release(o.Key)
		w.turn()
		if s := w.stored("back"); s.Phase != v1.Complete || !w.exists("configmaps:n/a") {
			w.Errorf("got %+v", s)
		}
	})
}

// TestRestoreLooksAgainSoon: a Restore that waits looks ever more rarely, and soon again after each change.
func TestRestoreLooksAgainSoon(t *testing.T) {
	each(t, func(w *world) {
		owner := w.create("configmaps:n/owner")
		var held []object.Object
		for _, name := range []string{"a", "b"} {
			held = append(held, w.createWith("configmaps:n/"+name, func(m *metav1.ObjectMeta) {
				m.OwnerReferences, m.Finalizers = w.OwnedBy(owner), []string{"x.dev/hold"}
			}))
		}
		w.delete(owner, background)
		w.stepwise(func(_ context.Context, u user.Info) kind.Client { return asUser(u.GetName()) })
		now := time.Now()
		w.archive.opts.Now = func() time.Time { return now }
		w.request(asUser("alice"), "back", v1.RestoreSpec{UID: owner.UID, WithCascade: true})
		pass := func() int64 {
			now = now.Add(time.Minute)
			w.archive.work(w.Context(), "back")
			s, err := w.archive.load(w.Context(), "back")
			if err != nil {
				w.Fatal(err)
			}
			return now.UnixMilli() - s.Moved
		}
		if since := pass(); since != 0 {
			w.Errorf("the owner came back, and nothing has changed for %d ms", since)
		}
		pass()
		if since := pass(); since != 2*time.Minute.Milliseconds() {
			w.Errorf("nothing has changed for two minutes, not for %d ms", since)
		}
		w.Release(held[0].Key)
		w.create("configmaps:n/a") // so it does not come back
		if since := pass(); since != 0 {
			w.Errorf("one is gone, and nothing has changed for %d ms", since)
		}
	})
}

// TestRestoresAreBounded: a user has at most so many Restores that go on.
func TestRestoresAreBounded(t *testing.T) {
	each(t, func(w *world) {
		w.stepwise(func(_ context.Context, u user.Info) kind.Client { return asUser(u.GetName()) })
		o := w.createWith("configmaps:n/a", func(m *metav1.ObjectMeta) { m.Finalizers = []string{"x.dev/hold"} })
		w.delete(o, background)
		spec := v1.RestoreSpec{UID: o.UID}
		for i := range mostRestores {
			w.request(asUser("alice"), fmt.Sprint("r", i), spec)
		}
		_, err := w.archive.submit(w.Context(), asUser("alice"), &v1.Restore{Spec: spec})
		if !apierrors.IsTooManyRequests(err) {
			w.Errorf("got %v", err)
		}
		w.request(asUser("bob"), "b", spec)
	})
}

// TestFollowing: what an earlier pass created is not "restored before".
func TestFollowing(t *testing.T) {
	result := func(uid types.UID, o v1.Outcome) v1.RestoreResult { return v1.RestoreResult{UID: uid, Outcome: o} }
	p := passed{before: 4, status: v1.RestoreStatus{Results: []v1.RestoreResult{
		result("a", v1.Skipped), result("b", v1.Skipped), result("c", v1.Skipped), result("d", v1.Created), result("f", v1.Failed),
	}}}
	p.status.Count()
	got := p.following(v1.RestoreStatus{Created: 3, CalledOff: 1, Results: []v1.RestoreResult{
		result("a", v1.Created), result("b", v1.Created), result("e", v1.CalledOff), result("d", v1.Awaited), result("f", v1.Created), // and deleted again
	}})
	if got.Created != 4 || got.Skipped != 0 || got.CalledOff != 1 || len(got.Results) != 6 || got.Results[0].Outcome != v1.Created || got.Results[4].Outcome != v1.Failed {
		t.Errorf("got %+v", got)
	}
	many := make([]v1.RestoreResult, mostResults+1)
	for i := range many {
		many[i] = result("x", v1.Created)
	}
	many[7].Outcome = v1.Failed
	if kept := shorten(many); len(kept) != 1 || kept[0].Outcome != v1.Failed {
		t.Errorf("kept %d", len(kept))
	}
}

// startDelete deletes an object, and returns the id of its cascade.
func (u *undoWorld) startDelete(o object.Object) string {
	u.Helper()
	policies := []metav1.DeletionPropagation{background, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}
	policy := policies[u.rand.IntN(len(policies))]
	if o.Kind == object.Namespaces {
		policy = background
	}
	options := metav1.DeleteOptions{PropagationPolicy: &policy}
	if _, err := u.store.Delete(u.Context(), store.DeleteRequest{Key: o.Key, Options: options, Rules: u.Rules(o.Kind), Actor: "alice"}); err != nil {
		u.Fatal(err)
	}
	origin, err := u.store.OriginOf(u.Context(), o.UID)
	if err != nil {
		u.Fatal(err)
	}
	u.log("delete %s %s: cascade %s", o.Key, policy, origin.Cascade)
	return origin.Cascade
}

// TestRemovedDuringPass: what the collector removes while a pass is under way is restored by the next one.
func TestRemovedDuringPass(t *testing.T) {
	each(t, func(w *world) {
		owner := w.create("configmaps:n/owner")
		w.create("configmaps:n/child", owner)
		if _, err := w.store.Delete(w.Context(), store.DeleteRequest{Key: owner.Key, Options: metav1.DeleteOptions{}, Rules: w.Rules(owner.Kind), Actor: "alice"}); err != nil {
			w.Fatal(err)
		}
		w.stepwise(func(_ context.Context, u user.Info) kind.Client {
			c := asUser(u.GetName())
			c.Mutate = func(_ context.Context, _ *kind.Version, key object.Key, _ runtime.Object, _ bool) error {
				if key == owner.Key {
					w.Collect()
				}
				return nil
			}
			return c
		})
		w.request(asUser("alice"), "back", v1.RestoreSpec{Cascade: string(owner.UID)})
		w.turn()
		if s := w.stored("back"); s.Phase != v1.Running || w.exists("configmaps:n/child") {
			w.Fatalf("the child was not removed during the pass: %+v", s)
		}
		w.turn()
		if s := w.stored("back"); s.Phase != v1.Complete || s.Created != 2 || s.Skipped != 0 || !w.exists("configmaps:n/child") {
			w.Errorf("got %+v", s)
		}
	})
}

// TestRestoreWaitsForAName: an object that is not part of the cascade holds the name, and goes.
func TestRestoreWaitsForAName(t *testing.T) {
	each(t, func(w *world) {
		w.stepwise(func(_ context.Context, u user.Info) kind.Client { return asUser(u.GetName()) })
		first := w.create("configmaps:n/a")
		w.delete(first, background)
		second := w.createWith("configmaps:n/a", func(m *metav1.ObjectMeta) { m.Finalizers = []string{"x.dev/hold"} })
		w.delete(second, background)
		w.request(asUser("alice"), "back", v1.RestoreSpec{UID: first.UID})
		for range 2 {
			w.turn()
		}
		if s := w.stored("back"); s.Phase != v1.Waiting || s.Waiting != 1 {
			w.Fatalf("got %+v", s)
		}
		w.Release(second.Key)
		w.turn()
		if s := w.stored("back"); s.Phase != v1.Complete || s.Created != 1 {
			w.Errorf("got %+v", s)
		}
		if now, _ := w.get("configmaps:n/a"); now.UID != first.UID {
			w.Errorf("uid %s, want %s", now.UID, first.UID)
		}
	})
}

// TestOwnRestoresAreListed: however many Restores others have, a client sees its own.
func TestOwnRestoresAreListed(t *testing.T) {
	each(t, func(w *world) {
		w.stepwise(func(_ context.Context, u user.Info) kind.Client { return asUser(u.GetName()) })
		o := w.create("configmaps:n/a")
		w.delete(o, background)
		w.request(asUser("alice"), "mine", v1.RestoreSpec{UID: o.UID})
		err := w.archive.exec(w.Context(), "others", func(b *sqldb.Batch) {
			for i := range 600 {
				b.Exec(insertRestore, fmt.Sprint("other-", i), "mallory", int64(1)<<50, `{}`)
			}
		})
		if err != nil {
			w.Fatal(err)
		}
		list, err := requests{w.archive}.List(w.Context(), asUser("alice"), kind.SourceQuery{})
		if err != nil {
			w.Fatal(err)
		}
		if items := list.(*v1.RestoreList).Items; len(items) != 500 || items[0].Name != "mine" || items[0].Status.RequestedBy != "alice" {
			w.Errorf("%d Restores, the first is %s, asked for by %q", len(items), items[0].Name, items[0].Status.RequestedBy)
		}
		// Another client that may read it stops it only if it could have asked for it.
		bob := asUser("bob")
		bob.Authorize = func(verb string, r schema.GroupResource, _, name string) error {
			if verb == "get" {
				return nil
			}
			return apierrors.NewForbidden(r, name, errors.New(verb))
		}
		if _, err := (requests{w.archive}).Delete(w.Context(), bob, "", "mine", false); !apierrors.IsForbidden(err) {
			w.Errorf("a client that may only read stops a Restore: %v", err)
		}
		_ = w.stored("mine")
		if _, err := (requests{w.archive}).Delete(w.Context(), asUser("bob"), "", "mine", false); err != nil {
			w.Error(err)
		}
		if left, err := w.archive.load(w.Context(), "mine"); left != nil || err != nil {
			w.Errorf("it is stopped, and there: %v, %v", left, err)
		}
	})
}
