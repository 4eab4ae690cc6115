package archive

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// wantOwners checks the owner references of an object.
func (w *world) wantOwners(name string, owners ...types.UID) {
	w.Helper()
	_, m := w.get(name)
	var got []types.UID
	for _, o := range m.OwnerReferences {
		got = append(got, o.UID)
	}
	if fmt.Sprint(got) != fmt.Sprint(owners) {
		w.Errorf("%s refers to %v, want %v", name, got, owners)
	}
}

// dropped counts the remembered references.
func (w *world) dropped() (n int64) {
	w.Helper()
	if _, err := w.db.Row(w.Context(), `SELECT count(*) FROM dropped_references`, nil, &n); err != nil {
		w.Fatal(err)
	}
	return n
}

// change updates the metadata of an object as a client does.
func (w *world) change(name string, change func(*metav1.ObjectMeta)) {
	w.Helper()
	key := keyOf(name)
	storetest.Update(w, w.store, key, w.Rules(key.Kind), change)
}

// family deletes an owner with a child and restores the child alone.
func (w *world) family() (owner, child object.Object) {
	w.Helper()
	owner = w.create("configmaps:n/owner")
	child = w.create("configmaps:n/child", owner)
	w.delete(owner, background)
	status := w.restore(v1.RestoreSpec{UID: child.UID})
	w.want(status, "ConfigMap/child created")
	if warnings := status.Results[0].Warnings; len(warnings) != 1 || !strings.Contains(warnings[0], "a restore of the owner adds it again") {
		w.Fatalf("warnings %q", warnings)
	}
	w.wantOwners("configmaps:n/child")
	return owner, child
}

// TestRelink: a child that was restored first refers to its owner again when the owner is
// restored, also to one of several owners, and is collected with it.
func TestRelink(t *testing.T) {
	each(t, func(w *world) {
		first, second := w.create("configmaps:n/first"), w.create("deployments.apps:n/second")
		child := w.create("configmaps:n/child", first, second)
		w.delete(child, background)
		w.delete(first, background)
		w.delete(second, background)
		w.restore(v1.RestoreSpec{UID: child.UID})
		w.wantOwners("configmaps:n/child")
		status := w.restore(v1.RestoreSpec{UID: second.UID})
		if status.Results[0].Relinked != 1 {
			w.Errorf("relinked: %+v", status.Results[0])
		}
		nowSecond, _ := w.get("deployments.apps:n/second")
		w.wantOwners("configmaps:n/child", nowSecond.UID)
		w.restore(v1.RestoreSpec{UID: first.UID})
		nowFirst, _ := w.get("configmaps:n/first")
		w.wantOwners("configmaps:n/child", nowFirst.UID, nowSecond.UID)
		if _, m := w.get("configmaps:n/child"); m.OwnerReferences[1].Kind != "Deployment" || !*m.OwnerReferences[1].BlockOwnerDeletion {
			w.Errorf("the reference changed: %+v", m.OwnerReferences[1])
		}
		if n := w.dropped(); n != 0 {
			w.Errorf("%d references are still remembered", n)
		}
		w.delete(nowFirst, background)
		w.wantOwners("configmaps:n/child", nowSecond.UID)
		w.delete(nowSecond, background)
		if w.exists("configmaps:n/child") {
			w.Error("the collector does not see the restored reference")
		}
	})
}

// TestRelinkOnce: the owner is restored again, deleted and restored once more; the child
// has one reference.
func TestRelinkOnce(t *testing.T) {
	each(t, func(w *world) {
		owner, _ := w.family()
		w.restore(v1.RestoreSpec{UID: owner.UID})
		now, _ := w.get("configmaps:n/owner")
		if again := w.restore(v1.RestoreSpec{UID: owner.UID}); again.Results[0].Reason != "it was restored before" || again.Results[0].Relinked != 0 {
			w.Errorf("again: %+v", again.Results[0])
		}
		w.wantOwners("configmaps:n/child", now.UID)
		w.delete(now, metav1.DeletePropagationOrphan)
		w.wantOwners("configmaps:n/child")
		w.restore(v1.RestoreSpec{UID: now.UID})
		w.wantOwners("configmaps:n/child", now.UID) // the undo of an orphaning delete ties the reference again
	})
}

// TestRelinkMeanwhile: the child changed between its own restore and that of its owner.
func TestRelinkMeanwhile(t *testing.T) {
	for name, test := range map[string]func(w *world, owner, child object.Object){
		"changed": func(w *world, owner, _ object.Object) {
			w.change("configmaps:n/child", func(m *metav1.ObjectMeta) { m.Labels = map[string]string{"a": "b"} })
			w.restore(v1.RestoreSpec{UID: owner.UID})
			now, _ := w.get("configmaps:n/owner")
			w.wantOwners("configmaps:n/child", now.UID)
			if _, m := w.get("configmaps:n/child"); m.Labels["a"] != "b" {
				w.Error("the change is lost")
			}
		},
		"given another owner": func(w *world, owner, _ object.Object) {
			other := w.create("configmaps:n/other")
			w.change("configmaps:n/child", func(m *metav1.ObjectMeta) { m.OwnerReferences = w.OwnedBy(other) })
			status := w.restore(v1.RestoreSpec{UID: owner.UID})
			w.wantOwners("configmaps:n/child", other.UID)
			if warnings := status.Results[0].Warnings; len(warnings) != 1 || !strings.Contains(warnings[0], "ConfigMap child was given other owners") {
				w.Errorf("warnings %q", warnings)
			}
		},
		"being deleted": func(w *world, owner, _ object.Object) {
			w.change("configmaps:n/child", func(m *metav1.ObjectMeta) { m.Finalizers = []string{"x/y"} })
			held, _ := w.get("configmaps:n/child")
			w.delete(held, background)
			w.restore(v1.RestoreSpec{UID: owner.UID})
			w.wantOwners("configmaps:n/child")
		},
		"deleted, and restored before the owner": func(w *world, owner, _ object.Object) {
			second, _ := w.get("configmaps:n/child")
			w.delete(second, background)
			w.restore(v1.RestoreSpec{UID: second.UID})
			w.wantOwners("configmaps:n/child")
			w.restore(v1.RestoreSpec{UID: owner.UID})
			now, _ := w.get("configmaps:n/owner")
			w.wantOwners("configmaps:n/child", now.UID)
		},
		"deleted, and restored after the owner": func(w *world, owner, _ object.Object) {
			second, _ := w.get("configmaps:n/child")
			w.delete(second, background)
			w.restore(v1.RestoreSpec{UID: owner.UID})
			w.restore(v1.RestoreSpec{UID: second.UID})
			now, _ := w.get("configmaps:n/owner")
			w.wantOwners("configmaps:n/child", now.UID)
		},
		"restored with its cascade": func(w *world, owner, _ object.Object) {
			w.want(w.restore(v1.RestoreSpec{Cascade: string(owner.UID)}), "ConfigMap/owner created", "ConfigMap/child skipped")
			now, _ := w.get("configmaps:n/owner")
			w.wantOwners("configmaps:n/child", now.UID)
		},
		"another object has the name of the owner": func(w *world, owner, _ object.Object) {
			w.create("configmaps:n/owner")
			w.want(w.restore(v1.RestoreSpec{UID: owner.UID}), "ConfigMap/owner skipped")
			w.wantOwners("configmaps:n/child")
		},
		"dry run": func(w *world, owner, _ object.Object) {
			w.restore(v1.RestoreSpec{UID: owner.UID, DryRun: true})
			w.wantOwners("configmaps:n/child")
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(w *world) {
				owner, child := w.family()
				test(w, owner, child)
				w.Collect()
				if !w.exists("configmaps:n/child") {
					w.Error("the collector removed the child")
				}
			})
		})
	}
}

// TestRelinkLaterLife: the owner was restored and deleted before the child was restored; a
// restore of its second life relinks the child too.
func TestRelinkLaterLife(t *testing.T) {
	each(t, func(w *world) {
		owner := w.create("configmaps:n/owner")
		child := w.create("configmaps:n/child", owner)
		w.delete(owner, background)
		w.restore(v1.RestoreSpec{UID: owner.UID})
		second, _ := w.get("configmaps:n/owner")
		w.delete(second, background)
		w.restore(v1.RestoreSpec{UID: child.UID})
		w.wantOwners("configmaps:n/child")
		w.restore(v1.RestoreSpec{UID: second.UID})
		third, _ := w.get("configmaps:n/owner")
		w.wantOwners("configmaps:n/child", third.UID)
		if n := w.dropped(); n != 0 {
			w.Errorf("%d references are still remembered", n)
		}
		// A child that is restored while the third life exists refers to that one.
		lone, _ := w.get("configmaps:n/child")
		w.delete(lone, background)
		w.restore(v1.RestoreSpec{UID: child.UID})
		w.wantOwners("configmaps:n/child", third.UID)
	})
}

// TestRelinkNotDangling: a reference that the collector would take for dangling is not
// restored: the object of its uid has another kind, name or namespace.
func TestRelinkNotDangling(t *testing.T) {
	each(t, func(w *world) {
		w.create("namespaces:/m")
		owner := w.create("configmaps:m/owner")
		child := w.create("configmaps:n/child", owner) // in another namespace
		named := w.createWith("configmaps:m/named", func(m *metav1.ObjectMeta) {
			m.OwnerReferences = w.OwnedBy(owner)
			m.OwnerReferences[0].Name = "other"
		})
		for _, o := range []object.Object{child, named, owner} {
			if w.exists(o.Kind + ":" + o.Namespace + "/" + o.Name) {
				w.delete(o, background)
			}
		}
		w.restore(v1.RestoreSpec{UID: child.UID})
		w.restore(v1.RestoreSpec{UID: named.UID})
		w.restore(v1.RestoreSpec{UID: owner.UID})
		w.wantOwners("configmaps:n/child")
		w.wantOwners("configmaps:m/named")
		if n := w.dropped(); n != 0 {
			w.Errorf("%d references are still remembered", n)
		}
	})
}

// TestRelinkMany: more dependents than one transaction relinks.
func TestRelinkMany(t *testing.T) {
	each(t, func(w *world) {
		owner, _ := w.family()
		const n = maxRelinks + 3
		var b sqldb.Batch
		for i := range n {
			o := w.create(fmt.Sprintf("configmaps:n/child-%d", i))
			b.Exec(`INSERT INTO dropped_references (owner_uid, dependent_uid, reference, known)
SELECT owner_uid, $1, reference, known FROM dropped_references WHERE owner_uid = $2 ORDER BY dependent_uid LIMIT 1`, string(o.UID), string(owner.UID))
		}
		if err := w.db.Transact(w.Context(), func(tx *sqldb.Tx) error { return tx.Send(w.Context(), &b) }); err != nil {
			w.Fatal(err)
		}
		if status := w.restore(v1.RestoreSpec{UID: owner.UID}); status.Results[0].Relinked != n+1 {
			w.Errorf("relinked %d, want %d", status.Results[0].Relinked, n+1)
		}
		if n := w.dropped(); n != 0 {
			w.Errorf("%d references are still remembered", n)
		}
	})
}

// TestRelinkRace restores owner and children concurrently: in every order of commits each
// child refers to the owner in the end.
func TestRelinkRace(t *testing.T) {
	both(t, func(w *world) {
		for round := range 20 {
			name := fmt.Sprintf("configmaps:n/owner-%d", round)
			owner := w.create(name)
			var uids []types.UID
			for i := range 4 {
				uids = append(uids, w.create(fmt.Sprintf("configmaps:n/child-%d-%d", round, i), owner).UID)
			}
			w.delete(owner, background)
			var group sync.WaitGroup
			for _, uid := range append(uids, owner.UID) {
				group.Go(func() {
					status, err := w.archive.Restore(w.Context(), kindtest.Almighty(), v1.RestoreSpec{UID: uid})
					if err != nil || status.Created != 1 {
						w.Errorf("restore: %+v, %v", status, err)
					}
				})
			}
			group.Wait()
			w.Collect()
			now, _ := w.get(name)
			for i := range uids {
				w.wantOwners(fmt.Sprintf("configmaps:n/child-%d-%d", round, i), now.UID)
			}
		}
	})
}

// TestRelinkInterleaved forces the interleavings of TestRelinkRace: the other side commits
// between the read and the create.
func TestRelinkInterleaved(t *testing.T) {
	each(t, func(w *world) {
		owner := w.create("configmaps:n/owner")
		child := w.create("configmaps:n/child", owner)
		w.delete(owner, background)
		prepared := func(uid types.UID) (*restoration, *candidate, store.CreateRequest, *v1.RestoreResult) {
			r := w.archive.begin(kindtest.Almighty(), v1.RestoreSpec{UID: uid}, w.names())
			found := w.removed(target{UID: uid})
			archived, err := w.archive.byUID(w.Context(), uid)
			if err != nil {
				w.Fatal(err)
			}
			result := &v1.RestoreResult{NewUID: uid}
			request, err := r.prepare(w.Context(), found[0], archived.Body, nil, w.store.Revision(), result)
			if err != nil {
				w.Fatal(err)
			}
			return r, found[0], request, result
		}
		_, _, late, _ := prepared(child.UID)
		w.restore(v1.RestoreSpec{UID: owner.UID})
		if _, err := w.store.Create(w.Context(), late); !strings.Contains(fmt.Sprint(err), store.ErrOwnerIsBack.Error()) {
			w.Fatalf("the owner was restored meanwhile, and the create of the child returns %v", err)
		}
		if n := w.dropped(); n != 0 || w.exists("configmaps:n/child") {
			w.Fatalf("the refused create left %d references", n)
		}
		now, _ := w.get("configmaps:n/owner")
		w.delete(now, background)

		r, c, early, result := prepared(now.UID)
		w.restore(v1.RestoreSpec{UID: child.UID})
		if _, err := w.store.Create(w.Context(), early); !strings.Contains(fmt.Sprint(err), store.ErrAwaited.Error()) {
			w.Fatalf("a reference was remembered meanwhile, and the create of the owner returns %v", err)
		}
		if err := r.put(w.Context(), c, early, result); err != nil {
			w.Fatal(err)
		}
		w.wantOwners("configmaps:n/child", result.NewUID)
	})
}
