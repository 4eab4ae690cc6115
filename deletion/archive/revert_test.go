package archive

import (
	flags "flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

var revertWorlds = flags.Int("revert-worlds", 3, "random worlds of TestRevertRestoresTheWorld, for each engine and kind of archive")

// TestRevertRestoresTheWorld: objects of a namespace are created, changed and deleted at random, while compaction moves
// versions to the history. A revert to a random moment does what its dry run says, and then the world is as it was at that
// moment; a revert of the revert gives the world from before. With an archive, objects come back with their archive row;
// without one, from the history alone.
func TestRevertRestoresTheWorld(t *testing.T) {
	t.Parallel()
	first := *undoSeed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		for _, archive := range []time.Duration{time.Hour, 0} {
			w := newWorldWith(t, store.Options{
				DB: dbtest.OpenDB(t, db.Engine()), Archive: store.ArchiveOptions{For: archive},
				KeepRevisions: 20, CompactEvery: 20 * time.Millisecond, History: store.HistoryOptions{For: time.Hour},
			})
			w.Policed()
			for i := range *revertWorlds {
				seed := first + uint64(i)
				u := &undoWorld{world: w, rand: rand.New(rand.NewPCG(seed, 2)), namespace: fmt.Sprintf("r%d", i)}
				if !u.try(seed, u.runRevert) {
					return
				}
			}
		}
	})
}

// change does one random write in the namespace.
func (u *undoWorld) change(i int) {
	u.Helper()
	live := u.live()
	if len(live) < 3 || u.rand.IntN(4) == 0 {
		kind := []string{"configmaps", "secrets", "deployments.apps"}[u.rand.IntN(3)]
		name := fmt.Sprintf("%s:%s/o%d", kind, u.namespace, u.rand.IntN(8))
		if u.exists(name) {
			return
		}
		var owners []object.Object
		if len(live) > 0 && u.rand.IntN(3) == 0 {
			owners = append(owners, live[u.rand.IntN(len(live))])
		}
		u.create(name, owners...)
		u.log("create %s owned by %v", name, names2(owners))
		return
	}
	o := live[u.rand.IntN(len(live))]
	v := u.versionOf(o.Kind)
	w := kind.Write{Method: http.MethodDelete, Version: v, Key: o.Key, Manager: "tester"}
	if u.rand.IntN(3) > 0 {
		w.Method, w.Body = http.MethodPut, u.changed(v, o, i, live)
	}
	if _, err := u.Client().Write(u.Context(), w); err != nil {
		u.Fatalf("%s %s: %v", w.Method, o.Key, err)
	}
	u.log("%s %s", w.Method, o.Key)
	u.Collect()
}

func (u *undoWorld) versionOf(storage string) *kind.Version {
	k, _ := u.kinds.Snapshot().Stored(storage)
	return k.Stored()
}

// changed is an object with another label, another content, or other owners.
func (u *undoWorld) changed(v *kind.Version, o object.Object, i int, live []object.Object) []byte {
	u.Helper()
	wire, err := wireMap(v, o)
	if err != nil {
		u.Fatal(err)
	}
	m := wire["metadata"].(map[string]any)
	delete(m, "managedFields")
	switch u.rand.IntN(4) {
	case 0:
		m["labels"] = map[string]string{"step": fmt.Sprint(i)}
	case 1:
		m["annotations"] = map[string]string{"step": fmt.Sprint(i)}
	case 2:
		var owners []metav1.OwnerReference
		if other := live[u.rand.IntN(len(live))]; other.UID != o.UID && u.rand.IntN(2) == 0 {
			owners = u.OwnedBy(other)
		}
		m["ownerReferences"] = owners
	default:
		switch o.Kind {
		case "deployments.apps":
			wire["spec"].(map[string]any)["replicas"] = i
		case "configmaps":
			wire["data"] = map[string]string{"key": fmt.Sprint(i)}
		default:
			wire["data"] = map[string]string{"password": "cGFzcw==", fmt.Sprint("key-", i): "eA=="}
		}
	}
	text, err := utiljson.Marshal(wire)
	if err != nil {
		u.Fatal(err)
	}
	return text
}

// live lists the objects of the namespace.
func (u *undoWorld) live() (all []object.Object) {
	u.Helper()
	for _, kind := range []string{"configmaps", "secrets", "deployments.apps"} {
		found, err := u.store.List(u.Context(), store.ListRequest{Kind: kind, Namespace: u.namespace})
		if err != nil {
			u.Fatal(err)
		}
		for found.Next() {
			all = append(all, found.Object())
		}
		if err := found.Err(); err != nil {
			u.Fatal(err)
		}
	}
	slices.SortFunc(all, func(a, b object.Object) int { return strings.Compare(a.Kind+a.Name, b.Kind+b.Name) })
	return all
}

// specs is what a revert brings back of each object. The uid of an owner is not a part of it, only whether that exists: a
// revert gives an object of the same name the state of the one of then.
func (u *undoWorld) specs() map[string]map[string]any {
	u.Helper()
	out, uids := map[string]map[string]any{}, map[any]bool{}
	for _, o := range u.live() {
		uids[string(o.UID)] = true
	}
	for _, o := range u.live() {
		var state map[string]any
		if err := utiljson.Unmarshal(o.Body, &state); err != nil {
			u.Fatal(err)
		}
		m := state["metadata"].(map[string]any)
		owners, _ := m["ownerReferences"].([]any)
		for _, o := range owners {
			reference := o.(map[string]any)
			reference["uid"] = uids[reference["uid"]]
		}
		state["metadata"] = []any{m["labels"], m["annotations"], m["ownerReferences"]}
		delete(state, "status")
		out[o.Key.String()] = state
	}
	return out
}

func (u *undoWorld) runRevert() {
	u.createWith("namespaces:/"+u.namespace, func(m *metav1.ObjectMeta) {
		m.Labels = map[string]string{"kubernetes.io/metadata.name": u.namespace}
	})
	var at int64
	var then map[string]map[string]any
	steps := 10 + u.rand.IntN(40)
	moment := u.rand.IntN(steps)
	for i := range steps {
		u.change(i)
		if i == moment {
			at, then = u.store.Revision(), u.specs()
			u.log("the moment: %d", at)
		}
	}
	before := u.specs()
	status := u.revertTo(fmt.Sprint(at))
	if diff := cmp.Diff(then, u.specs()); diff != "" {
		u.Errorf("the world then (-) and after the revert (+):\n%s", diff)
	}
	if status.Created+status.Changed+status.Deleted > 0 {
		u.revertTo(status.Before)
		if diff := cmp.Diff(before, u.specs()); diff != "" {
			u.Errorf("the world before (-) and after the revert of the revert (+):\n%s", diff)
		}
	}
	if again := u.revertTo(fmt.Sprint(u.store.Revision())); len(again.Results) > 0 {
		u.Errorf("a revert to now has results: %+v", again.Results)
	}
}

// revertTo reverts the namespace. The dry run must say the same, and change nothing.
func (u *undoWorld) revertTo(to string) v1.RestoreStatus {
	u.Helper()
	spec := v1.RestoreSpec{Object: &v1.ObjectName{Kind: "namespace", Name: u.namespace}, To: to, DryRun: true}
	before := u.store.Revision()
	dry, err := u.archive.Restore(u.Context(), u.Client(), spec)
	if err != nil {
		u.Fatal(err)
	}
	if after := u.store.Revision(); after != before {
		u.Errorf("the dry run changed something: version %d, then %d", before, after)
	}
	spec.DryRun = false
	status, err := u.archive.Restore(u.Context(), u.Client(), spec)
	if err != nil {
		u.Fatal(err)
	}
	u.Collect()
	u.log("revert to %s: %d created, %d changed, %d deleted, %d failed", to, status.Created, status.Changed, status.Deleted, status.Failed)
	outcomes := func(s v1.RestoreStatus) (out []string) {
		for _, r := range s.Results {
			out = append(out, fmt.Sprint(r.Kind, " ", r.Name, " ", r.Outcome, " ", r.Reason, " ", r.Changes))
		}
		slices.Sort(out)
		return out
	}
	if diff := cmp.Diff(outcomes(dry), outcomes(status)); diff != "" {
		u.Errorf("the dry run of %s (-) differs from the run (+):\n%s", to, diff)
	}
	if status.Failed > 0 || !status.Complete {
		u.Errorf("the revert to %s is not complete: %+v", to, status)
	}
	return status
}

// TestRevertLeavesWhatIsControlled: a revert of a namespace neither brings back nor deletes what a controller makes.
func TestRevertLeavesWhatIsControlled(t *testing.T) {
	eachRevert(t, func(w *world) {
		owner := w.create("configmaps:n/owner")
		controlled := func(name string) object.Object {
			return w.createWith(name, func(m *metav1.ObjectMeta) {
				m.OwnerReferences = w.OwnedBy(owner)
				m.OwnerReferences[0].Controller = new(true)
			})
		}
		made, free := controlled("configmaps:n/made"), w.create("configmaps:n/free")
		then := w.store.Revision()
		w.delete(made, metav1.DeletePropagationBackground)
		w.delete(free, metav1.DeletePropagationBackground)
		controlled("configmaps:n/new")
		w.wantReverted(w.Client(), then, map[string]string{"free": "created"})
	})
}
