package archive

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/authentication/user"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/seal"
)

// eachRevert runs a test in a world with the API, whose history is kept.
func eachRevert(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	dbtest.Both(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorldWith(t, store.Options{DB: db, Archive: store.ArchiveOptions{For: time.Hour}, History: store.HistoryOptions{For: time.Hour}})
		w.Policed()
		test(w)
	})
}

// put replaces an object by a request of another client.
func (w *world) put(name string, change func(wire map[string]any)) {
	w.Helper()
	w.write(name, "", change)
}

func (w *world) write(name, subresource string, change func(wire map[string]any)) {
	w.Helper()
	o, _ := w.get(name)
	k, _ := w.kinds.Snapshot().Stored(o.Kind)
	wire, err := wireMap(k.Stored(), o)
	if err != nil {
		w.Fatal(err)
	}
	change(wire)
	text, err := utiljson.Marshal(wire)
	if err != nil {
		w.Fatal(err)
	}
	if _, err := w.Client().Write(w.Context(), kind.Write{Method: "PUT", Version: k.Stored(), Key: o.Key, Subresource: subresource, Body: text, Manager: "other"}); err != nil {
		w.Fatal(err)
	}
}

// wireMap is wireOf as a map.
func wireMap(v *kind.Version, o object.Object) (wire map[string]any, err error) {
	text, err := wireOf(v, o)
	if err != nil {
		return nil, err
	}
	return wire, utiljson.Unmarshal(text, &wire)
}

func data(value string) func(map[string]any) {
	return func(wire map[string]any) { wire["data"] = map[string]any{"key": value} }
}

// owned gives an object owners.
func (w *world) owned(owners ...object.Object) func(map[string]any) {
	return func(wire map[string]any) { wire["metadata"].(map[string]any)["ownerReferences"] = w.OwnedBy(owners...) }
}

// wantReverted reverts namespace n as a client, and compares what became of each object: an outcome, and how its reason begins.
func (w *world) wantReverted(client kind.Client, to int64, want map[string]string) {
	w.Helper()
	got := map[string]string{}
	for name, r := range w.revertNamespace(client, to) {
		got[name] = string(r.Outcome)
		if r.Reason != "" {
			got[name] += ": " + r.Reason
		}
		if wanted, ok := want[name]; ok && strings.HasPrefix(got[name], wanted) {
			got[name] = wanted
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		w.Errorf("want (-), got (+):\n%s", diff)
	}
}

// revertNamespace reverts namespace n as a client.
func (w *world) revertNamespace(client kind.Client, to int64) map[string]v1.RestoreResult {
	w.Helper()
	spec := v1.RestoreSpec{Object: &v1.ObjectName{Kind: "namespace", Name: "n"}, To: fmt.Sprint(to)}
	status, err := w.archive.Restore(w.Context(), client, spec)
	if err != nil {
		w.Fatal(err)
	}
	results := map[string]v1.RestoreResult{}
	for _, r := range status.Results {
		results[r.Name] = r
	}
	return results
}

// TestRevertAgainstWriters: another client writes after the plan, shortly before the write of the revert. What it says
// stays, and the result names it; that holds for what the revert would delete, too. A change of status, finalizers or owners
// alone is no conflict. A second revert brings back what the first one left.
func TestRevertAgainstWriters(t *testing.T) {
	eachRevert(t, func(w *world) {
		names := []string{"changed", "finalized", "deleted", "replaced"}
		label := func(wire map[string]any) { wire["metadata"].(map[string]any)["labels"] = map[string]any{"later": "x"} }
		w.create("deployments.apps:n/reported")
		for _, name := range names {
			w.create("configmaps:n/" + name)
		}
		then := w.store.Revision()
		w.put("deployments.apps:n/reported", label)
		for _, name := range names {
			w.put("configmaps:n/"+name, label)
		}
		for _, name := range []string{"added", "kept", "held"} {
			w.create("configmaps:n/" + name)
		}
		finalize := func(name string) func() {
			return func() {
				w.put(name, func(wire map[string]any) { wire["metadata"].(map[string]any)["finalizers"] = []any{"x/y"} })
			}
		}
		replace := func(name string) {
			w.delete(object.Object{Key: keyOf(name)}, background)
			w.create(name)
			w.put(name, data("theirs"))
		}
		intrude := map[string]func(){
			"changed":   func() { w.put("configmaps:n/changed", data("theirs")) },
			"finalized": finalize("configmaps:n/finalized"),
			"reported": func() {
				w.write("deployments.apps:n/reported", "status", func(wire map[string]any) { wire["status"] = map[string]any{"replicas": 5} })
			},
			"deleted":  func() { w.delete(object.Object{Key: keyOf("configmaps:n/deleted")}, background) },
			"replaced": func() { replace("configmaps:n/replaced") },
			"added":    func() { replace("configmaps:n/added") },
			"kept":     func() { w.put("configmaps:n/kept", data("theirs")) },
			"held":     finalize("configmaps:n/held"),
		}
		client := w.Client()
		write := client.Write
		var mu sync.Mutex
		client.Write = func(ctx context.Context, r kind.Write) ([]byte, error) {
			mu.Lock()
			if act := intrude[r.Key.Name]; act != nil {
				delete(intrude, r.Key.Name)
				act()
			}
			mu.Unlock()
			return write(ctx, r)
		}
		w.wantReverted(client, then, map[string]string{
			"changed": "failed: it was changed meanwhile", "replaced": "failed: it was changed meanwhile", "deleted": "failed: ", "added": "deleted",
			"finalized": "changed", "reported": "changed", "kept": "failed: it was changed meanwhile", "held": "deleted: it is being deleted, and waits for [x/y]",
		})
		for name, want := range map[string]string{"changed": `"theirs"`, "replaced": `"theirs"`, "finalized": `"x/y"`, "added": `"theirs"`, "kept": `"theirs"`} {
			if o, _ := w.get("configmaps:n/" + name); !strings.Contains(string(o.Body), want) {
				w.Errorf("%s was overwritten: %s", name, o.Body)
			}
		}
		if o, m := w.get("deployments.apps:n/reported"); m.Labels != nil || !strings.Contains(string(o.Body), `"replicas":5`) {
			w.Errorf("the deployment is %s", o.Body)
		}
		if w.exists("configmaps:n/deleted") {
			w.Error("what another client deleted is there")
		}
		w.wantReverted(w.Client(), then, map[string]string{"changed": "changed", "replaced": "changed", "deleted": "created", "added": "deleted", "kept": "deleted"})
	})
}

// TestRevertWithStatus: the status comes back if the client asks for it, and only then, also where nothing else has changed.
func TestRevertWithStatus(t *testing.T) {
	eachRevert(t, func(w *world) {
		const name = "deployments.apps:n/reported"
		report := func(replicas int) {
			w.write(name, "status", func(wire map[string]any) { wire["status"] = map[string]any{"replicas": replicas} })
		}
		w.create(name)
		report(1)
		then := w.store.Revision()
		report(5)
		for _, c := range []struct {
			with            bool
			replicas, field string // a field that is changed
		}{{false, "5", ""}, {true, "1", "status.replicas"}, {true, "1", ""}} {
			status, err := w.archive.Restore(w.Context(), w.Client(), v1.RestoreSpec{Object: &v1.ObjectName{Kind: "namespace", Name: "n"}, To: fmt.Sprint(then), WithStatus: c.with})
			if err != nil {
				w.Fatal(err)
			}
			field := ""
			for _, r := range status.Results {
				for _, change := range r.Changes {
					field += change.Field
				}
			}
			if o, _ := w.get(name); field != c.field || !strings.Contains(string(o.Body), `"replicas":`+c.replicas+`}`) {
				w.Errorf("with status %v: changed %q, and it is %s", c.with, field, o.Body)
			}
		}
	})
}

// TestRevertOfARing: two objects that own each other are created again. A client that writes the first one of them before
// the revert joins it with its owner keeps what it wrote; if it gave the object other owners, none are added.
func TestRevertOfARing(t *testing.T) {
	eachRevert(t, func(w *world) {
		other := w.create("configmaps:n/other")
		a := w.create("configmaps:n/a")
		b := w.create("configmaps:n/b", a)
		w.put("configmaps:n/a", w.owned(b))
		beside := map[string]object.Object{"a": b, "b": a} // which is created first is not said
		then := w.store.Revision()
		for _, test := range []struct {
			name    string
			atWrite bool // between the read and the write of the step that joins
			change  func(map[string]any)
			outcome string
			data    string
			owner   types.UID // empty: the other one of the ring
		}{
			{"no change", false, func(map[string]any) {}, "created", "value", ""},
			{"data", false, data("theirs"), "created", "theirs", ""},
			{"owners", false, w.owned(other), "created", "value", other.UID},
			{"late", true, data("theirs"), "failed: it was changed meanwhile", "theirs", "none"},
		} {
			w.delete(a, background)
			w.Collect()
			if w.exists("configmaps:n/a") || w.exists("configmaps:n/b") {
				w.Fatal("the ring exists")
			}
			w.Exec(`DELETE FROM archive`) // so that the history alone has them
			early := ""
			act := func(name string) {
				if early == "" && w.exists("configmaps:n/"+name) {
					early = name
					w.put("configmaps:n/"+name, test.change)
				}
			}
			client := w.Client()
			write, admit := client.Write, client.Admit
			client.Admit = func(ctx context.Context, v *kind.Version, key object.Key, obj runtime.Object, dry bool) error {
				if !test.atWrite {
					act(beside[key.Name].Name)
				}
				return admit(ctx, v, key, obj, dry)
			}
			client.Write = func(ctx context.Context, r kind.Write) ([]byte, error) {
				if test.atWrite {
					act(r.Key.Name)
				}
				return write(ctx, r)
			}
			results := w.revertNamespace(client, then)
			if early == "" {
				w.Fatalf("%s: nothing was written meanwhile", test.name)
			}
			second := beside[early].Name
			if got := results[early]; !strings.HasPrefix(strings.TrimSuffix(fmt.Sprint(got.Outcome, ": ", got.Reason), ": "), test.outcome) || results[second].Outcome != v1.Created {
				w.Errorf("%s: %+v", test.name, results)
			}
			o, m := w.get("configmaps:n/" + early)
			owner := types.UID("none")
			if len(m.OwnerReferences) == 1 {
				owner = m.OwnerReferences[0].UID
			}
			if owner != cmp.Or(test.owner, beside[early].UID) || !strings.Contains(string(o.Body), test.data) {
				w.Errorf("%s: %s", test.name, o.Body)
			}
			w.revertNamespace(w.Client(), then)
			if o, m = w.get("configmaps:n/" + early); len(m.OwnerReferences) != 1 || m.OwnerReferences[0].UID != beside[early].UID || !strings.Contains(string(o.Body), "value") {
				w.Errorf("%s, after another revert: %s", test.name, o.Body)
			}
		}
	})
}

// TestRevertAgainstDefinitions: the definition of a kind changes between the plan and the write, or it is gone. What
// does not fit it fails with the reason; what the definition of now does not know is named.
func TestRevertAgainstDefinitions(t *testing.T) {
	eachRevert(t, func(w *world) {
		u := &undoWorld{world: w, rand: rand.New(rand.NewPCG(1, 1)), namespace: "n"}
		u.define()
		kindName := u.definition.Name
		key := object.Key{Kind: kindName, Namespace: "n", Name: "a"}
		u.createAs(key, `"spec":{"color":"red"}`, func(*metav1.ObjectMeta) {})
		then := w.store.Revision()
		w.put(kindName+":n/a", func(wire map[string]any) { wire["spec"] = map[string]any{"color": "blue", "size": 1} })
		before := func(act func()) kind.Client {
			client := w.Client()
			write, once := client.Write, sync.OnceFunc(act)
			client.Write = func(ctx context.Context, r kind.Write) ([]byte, error) {
				once()
				return write(ctx, r)
			}
			return client
		}
		redefine := func(color string) func() {
			return func() {
				was, _ := w.kinds.Snapshot().Stored(kindName)
				w.put(object.Definitions+":/"+kindName, func(wire map[string]any) {
					text, err := utiljson.Marshal(wire)
					if err == nil {
						old := map[string]string{"string": "integer", "integer": "string"}[color]
						err = utiljson.Unmarshal([]byte(strings.Replace(string(text), `"color":{"type":"`+old+`"}`, `"color":{"type":"`+color+`"}`, 1)), &wire)
					}
					if err != nil {
						w.Fatal(err)
					}
				})
				dbtest.Await(w, "the new definition is served", func() bool {
					is, _ := w.kinds.Snapshot().Stored(kindName)
					return is != was
				})
			}
		}
		w.wantReverted(before(redefine("integer")), then, map[string]string{"a": `failed: Gadget.n.example.com "a" is invalid: spec.color`})
		if o, _ := w.get(kindName + ":n/a"); !strings.Contains(string(o.Body), `"blue"`) {
			w.Errorf("the object is %s", o.Body)
		}
		redefine("string")()
		w.wantReverted(before(func() {
			u.undefine()
			dbtest.Await(w, "the kind is gone", func() bool { return !u.serves(kindName) })
		}), then, map[string]string{"a": "failed: "})
		w.wantReverted(w.Client(), then, map[string]string{"*": "failed: its definition " + kindName})
	})
}

func (u *undoWorld) serves(storage string) bool {
	k, ok := u.kinds.Snapshot().Stored(storage)
	return ok && len(k.Versions) > 0
}

// These name the database of the process that TestKillDuringRevert kills, its keys, and the step at which it dies.
const killRevert, killKeys, killStep = "EXEUNT_TEST_REVERT_DATABASE", "EXEUNT_TEST_REVERT_KEYS", "EXEUNT_TEST_REVERT_STEP"

// TestKillDuringRevert: the process that works on a revert of a namespace gets SIGKILL at its first step, the next one
// at its second, and so on; a step is before or after a create, an update or a delete. In the end the namespace is as it was.
func TestKillDuringRevert(t *testing.T) {
	if database := os.Getenv(killRevert); database != "" {
		revertUntilKilled(t, database)
		return
	}
	t.Parallel()
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			database, keys := dbtest.Migrated(t, engine), filepath.Join(t.TempDir(), "encryption.yaml")
			if _, err := seal.Create(keys); err != nil {
				t.Fatal(err)
			}
			var then map[string]map[string]any
			t.Run("prepare", func(t *testing.T) { then = prepareKilled(killedWorld(t, database, keys)) })
			killed := 0
			for step := 1; ; step++ {
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKillDuringRevert$")
				cmd.Env = append(os.Environ(), killRevert+"="+database, killKeys+"="+keys, fmt.Sprintf("%s=%d", killStep, step))
				out, err := cmd.CombinedOutput()
				if err == nil {
					break
				}
				if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
					t.Fatalf("step %d: %v\n%s", step, err, out)
				}
				killed++
			}
			t.Logf("killed %d times", killed)
			if killed < 5 {
				t.Errorf("the revert was killed %d times only", killed)
			}
			t.Run("check", func(t *testing.T) {
				w := killedWorld(t, database, keys)
				u := &undoWorld{world: w, namespace: "n"}
				if diff := gocmp.Diff(then, u.specs()); diff != "" {
					t.Errorf("the namespace then (-) and now (+):\n%s", diff)
				}
				if status := w.stored("r"); status.Phase != v1.Complete {
					t.Errorf("the Restore is %+v", status)
				}
			})
		})
	}
}

func killedWorld(t *testing.T, database, path string) *world {
	keys, err := seal.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorldWith(t, store.Options{
		DB: dbtest.Connect(t, database), Keys: keys, Archive: store.ArchiveOptions{For: time.Hour}, History: store.HistoryOptions{For: time.Hour},
	})
	w.Policed()
	w.stepwise(func(context.Context, user.Info) kind.Client { return w.Client() })
	return w
}

// prepareKilled makes a namespace, changes all of it, and asks for the revert. It returns the state of then.
func prepareKilled(w *world) map[string]map[string]any {
	u := &undoWorld{world: w, namespace: "n"}
	for i := range 3 {
		owner := w.create(fmt.Sprintf("configmaps:n/gone-%d", i))
		w.create(fmt.Sprintf("secrets:n/gone-%d", i), owner)
		w.create(fmt.Sprintf("configmaps:n/changed-%d", i))
	}
	first := w.create("configmaps:n/first")
	w.put("configmaps:n/first", w.owned(w.create("configmaps:n/second", first)))
	then, to := u.specs(), w.store.Revision()
	w.delete(first, background)
	for i := range 3 {
		w.delete(object.Object{Key: keyOf(fmt.Sprintf("configmaps:n/gone-%d", i))}, background)
		w.put(fmt.Sprintf("configmaps:n/changed-%d", i), data("later"))
		w.create(fmt.Sprintf("deployments.apps:n/added-%d", i))
	}
	w.Collect()
	w.request(asUser("alice"), "r", v1.RestoreSpec{Object: &v1.ObjectName{Kind: "namespace", Name: "n"}, To: fmt.Sprint(to)})
	return then
}

// revertUntilKilled works on the Restore, and kills its own process at a step: an admission, or either end of a write.
func revertUntilKilled(t *testing.T, database string) {
	w := killedWorld(t, database, os.Getenv(killKeys))
	var left atomic.Int64
	at, err := strconv.Atoi(os.Getenv(killStep))
	if err != nil {
		t.Fatal(err)
	}
	left.Store(int64(at))
	step := func() {
		if left.Add(-1) == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	w.stepwise(func(context.Context, user.Info) kind.Client {
		client := w.Client()
		write, admit := client.Write, client.Admit
		client.Admit = func(ctx context.Context, v *kind.Version, key object.Key, obj runtime.Object, dry bool) error {
			step()
			return admit(ctx, v, key, obj, dry)
		}
		client.Write = func(ctx context.Context, r kind.Write) ([]byte, error) {
			step()
			defer step()
			return write(ctx, r)
		}
		return client
	})
	dbtest.Await(t, "the Restore ends", func() bool {
		w.turn()
		w.Collect()
		return w.stored("r").Phase.Ended()
	})
}
