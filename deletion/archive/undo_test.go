package archive

import (
	flags "flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

var (
	undoWorlds = flags.Int("undo-worlds", 8, "random worlds of TestUndoRestoresTheWorld, for each engine")
	undoSeed   = flags.Uint64("undo-seed", 0, "the seed of the first world; 0: by the clock")
)

// TestUndoRestoresTheWorld: random objects of many kinds, with owners, finalizers, grace, guards, quotas and
// definitions, are deleted, one after the other, and each deletion is undone. A policy refuses some deletes
// and creates for a while. Then every object is as it was, field by field. The deletions are undone in a
// random order.
func TestUndoRestoresTheWorld(t *testing.T) {
	t.Parallel()
	first := *undoSeed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newUndoWorlds(t, db)
		for i := range *undoWorlds {
			seed := first + uint64(i)
			u := &undoWorld{world: w, rand: rand.New(rand.NewPCG(seed, 1)), namespace: fmt.Sprintf("w%d", i)}
			if !u.try(seed, u.run) {
				return
			}
		}
	})
}

// try runs a world, and reports whether it ended well.
func (u *undoWorld) try(seed uint64, run func()) bool {
	defer func() {
		if u.Failed() {
			u.Logf("%s\nrun it again with -undo-seed %d -undo-worlds 1", strings.Join(u.history, "\n"), seed)
		}
	}()
	run()
	return !u.Failed()
}

// undoWorld is one random world, in a namespace of its own.
type undoWorld struct {
	*world
	rand      *rand.Rand
	namespace string
	all       []object.Object
	history   []string

	definition object.Object // a kind of the world's own, or none
	denies     bool          // the policy refuses something
	full       string        // the fields of a quota that fits, or none
	exceeded   bool          // the quota does not fit
}

func (u *undoWorld) log(format string, args ...any) {
	u.history = append(u.history, fmt.Sprintf(format, args...))
}

// undoKinds returns those of bodies, and of undoSpecs.
var undoKinds = sync.OnceValue(func() []string {
	return append([]string{"configmaps", "deployments.apps", "pods", "secrets", "configmaps", "pods"}, slices.Sorted(maps.Keys(undoSpecs))...)
})

func (u *undoWorld) run() {
	ns := u.createWith("namespaces:/"+u.namespace, func(m *metav1.ObjectMeta) {
		m.Labels = map[string]string{"kubernetes.io/metadata.name": u.namespace}
	})
	if u.rand.IntN(4) == 0 {
		u.define()
	}
	for i := range 3 + u.rand.IntN(10) {
		u.all = append(u.all, u.createRandom(i))
	}
	if u.rand.IntN(3) == 0 {
		u.limit()
	}
	before := u.state()
	var deleted []string // the cascades
	for range 1 + u.rand.IntN(3) {
		o := u.all[u.rand.IntN(len(u.all))]
		switch {
		case u.rand.IntN(12) == 0:
			o = ns
		case u.definition.UID != "" && u.rand.IntN(3) == 0:
			o = u.definition
		}
		if id := u.deleteOne(o); id != "" {
			deleted = append(deleted, id)
		}
	}
	if u.rand.IntN(2) == 0 {
		slices.Reverse(deleted)
	} else {
		u.rand.Shuffle(len(deleted), func(i, j int) { deleted[i], deleted[j] = deleted[j], deleted[i] })
	}
	u.deny("CREATE")
	for _, id := range deleted {
		u.undo(id)
	}
	u.admit()
	// What was restored before its namespace or its owner could not come back: once more.
	for _, id := range deleted {
		u.undo(id)
	}
	if u.exceeded {
		u.relax(before)
		for _, id := range deleted {
			u.undo(id)
		}
	}
	u.Collect()
	u.compare(before, u.state())
	u.undefine()
}

// requester lists the fields of a CertificateSigningRequest that name its creator. A restored one
// names the user that restored it.
var requester = []string{"spec.username", "spec.uid", "spec.groups", "spec.extra"}

func (u *undoWorld) compare(before, after map[object.Key][]byte) {
	u.Helper()
	for key, was := range before {
		is, found := after[key]
		if !found {
			u.Errorf("%s is gone", key)
			continue
		}
		differ, err := v1.Changes(was, is)
		if err != nil {
			u.Fatal(err)
		}
		for _, c := range differ {
			if key.Kind == object.SigningRequests && slices.Contains(requester, c.Field) {
				continue
			}
			u.Errorf("%s: %s was %s, is %s", key, c.Field, c.Was, c.Is)
		}
	}
	for key := range after {
		if before[key] == nil {
			u.Errorf("%s is new", key)
		}
	}
}

// createRandom stores an object with owners among those before it.
func (u *undoWorld) createRandom(i int) object.Object {
	kind := undoKinds()[u.rand.IntN(len(undoKinds()))]
	spec := undoSpecs[kind]
	if u.definition.UID != "" && u.rand.IntN(3) == 0 {
		kind, spec = u.definition.Name, `"spec":{"color":"blue"}`
	}
	name := fmt.Sprintf("%s:%s/o%d", kind, u.namespace, i)
	k, served := u.kinds.Snapshot().Stored(kind)
	if !served {
		u.Fatalf("no kind %s", kind)
	}
	cluster := !k.Namespaced
	if cluster {
		name = fmt.Sprintf("%s:/%s-o%d", kind, u.namespace, i)
	}
	if kind == ipAddresses {
		name = fmt.Sprintf("%s:/%s", kind, addressOf(name))
	}
	var owners []object.Object
	for range u.rand.IntN(4) {
		if len(u.all) > 0 {
			o := u.all[u.rand.IntN(len(u.all))]
			if cluster && o.Namespace != "" {
				continue // an owner of a cluster-scoped object is one too
			}
			if !slices.ContainsFunc(owners, func(other object.Object) bool { return other.UID == o.UID }) {
				owners = append(owners, o)
			}
		}
	}
	var finalizers []string
	switch u.rand.IntN(8) { // both are not valid together
	case 0:
		finalizers = append(finalizers, metav1.FinalizerOrphanDependents)
	case 1:
		finalizers = append(finalizers, metav1.FinalizerDeleteDependents)
	}
	if u.rand.IntN(5) == 0 {
		finalizers = append(finalizers, "example.com/hold")
	}
	if u.rand.IntN(16) == 0 {
		finalizers = append(finalizers, lifecycle.ConfirmCascade) // every delete is held
	}
	annotations := map[string]string{}
	if u.rand.IntN(4) == 0 {
		annotations[lifecycle.PropagateGrace] = "true"
	}
	if u.rand.IntN(10) == 0 {
		annotations[lifecycle.ConfirmCascade] = "3" // confirmed beforehand
	}
	change := func(m *metav1.ObjectMeta) {
		m.OwnerReferences, m.Finalizers = u.OwnedBy(owners...), finalizers
		for j := range m.OwnerReferences {
			if u.rand.IntN(2) == 0 {
				m.OwnerReferences[j].BlockOwnerDeletion = nil
			}
		}
		if len(annotations) > 0 {
			m.Annotations = annotations
		}
	}
	var made object.Object
	if spec != "" {
		made = u.createAs(keyOf(name), spec, change)
	} else {
		made = u.createWith(name, change)
	}
	u.log("create %s owners %v finalizers %v", name, names2(owners), finalizers)
	return made
}

func names2(all []object.Object) (out []string) {
	for _, o := range all {
		out = append(out, o.Name)
	}
	return out
}

// deleteOne deletes an object, lets go of what holds the cascade, and returns its id; empty if the object
// did not exist.
func (u *undoWorld) deleteOne(o object.Object) string {
	u.Helper()
	policies := []metav1.DeletionPropagation{background, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}
	policy := policies[u.rand.IntN(len(policies))]
	if o.Kind == object.Namespaces {
		policy = background
	}
	options := metav1.DeleteOptions{PropagationPolicy: &policy}
	request := store.DeleteRequest{Key: o.Key, Options: options, Rules: u.Rules(o.Kind), Actor: "alice"}
	if request.Guarded = u.rand.IntN(2) == 0; request.Guarded {
		request.MaxCascade = 1 + u.rand.Int64N(3)
	}
	u.deny("DELETE")
	defer u.admit()
	_, err := u.store.Delete(u.Context(), request)
	if object.Is(err, object.NotFound) {
		return ""
	}
	if err != nil {
		u.Fatal(err)
	}
	origin, err := u.store.OriginOf(u.Context(), o.UID)
	if err != nil {
		u.Fatal(err)
	}
	u.log("delete %s %s: cascade %s", o.Key, policy, origin.Cascade)
	if u.denies {
		u.Collect()
		u.admit()
	}
	u.settle()
	return origin.Cascade
}

// settle runs the collector, removes finalizers and ends grace until nothing is DELETING, and the collector has
// seen that. The definition controller removes a definition at its own time.
func (u *undoWorld) settle() {
	u.Helper()
	var left []object.Key
	dbtest.Await(u, "nothing is DELETING", func() bool {
		for range 20 {
			u.Collect()
			if left = u.deleting(); len(left) == 0 {
				u.Collect()
				if left = u.deleting(); len(left) == 0 {
					return true
				}
			}
			for _, key := range left {
				u.letGo(key)
			}
		}
		return false
	})
}

func (u *undoWorld) deleting() (keys []object.Key) {
	u.Helper()
	for _, key := range u.keys() {
		if _, m, ok := u.find(key); ok && m.DeletionTimestamp != nil {
			keys = append(keys, key)
		}
	}
	return keys
}

func (u *undoWorld) find(key object.Key) (object.Object, metav1.ObjectMeta, bool) {
	u.Helper()
	o, err := u.store.Get(u.Context(), key)
	if object.Is(err, object.NotFound) {
		return o, metav1.ObjectMeta{}, false
	}
	if err != nil {
		u.Fatal(err)
	}
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		u.Fatal(err)
	}
	return o, m, true
}

// letGo does what a controller and a kubelet do: it edits the object, removes the finalizer, and deletes without
// grace.
func (u *undoWorld) letGo(key object.Key) {
	u.Helper()
	o, m, ok := u.find(key)
	if !ok || m.DeletionTimestamp == nil {
		return
	}
	if g := lifecycle.GuardOf(&m); g.Held && g.Confirmed < 1000 {
		m.Annotations = maps.Clone(m.Annotations)
		if m.Annotations == nil {
			m.Annotations = map[string]string{}
		}
		m.Annotations[lifecycle.ConfirmCascade] = "1000"
		body, err := object.WithMeta(o.Body, m)
		if err != nil {
			u.Fatal(err)
		}
		u.write(store.UpdateRequest{Key: key, IfRevision: o.Revision, Meta: m, Body: body})
		return
	}
	if i := slices.Index(m.Finalizers, "example.com/hold"); i >= 0 {
		m.Finalizers = slices.Delete(m.Finalizers, i, i+1)
		m.Labels = map[string]string{"edited": "while-deleting"}
		body, err := object.WithMeta(o.Body, m)
		if err != nil {
			u.Fatal(err)
		}
		r := store.UpdateRequest{Key: key, IfRevision: o.Revision, Meta: m, Body: body}
		r.Remove = len(m.Finalizers) == 0 && (m.DeletionGracePeriodSeconds == nil || *m.DeletionGracePeriodSeconds == 0)
		u.write(r)
		return
	}
	zero := int64(0)
	if m.DeletionGracePeriodSeconds != nil && *m.DeletionGracePeriodSeconds > 0 {
		options := metav1.DeleteOptions{GracePeriodSeconds: &zero}
		if _, err := u.store.Delete(u.Context(), store.DeleteRequest{Key: key, Options: options, Rules: u.Rules(key.Kind), Actor: "kubelet"}); err != nil {
			u.Fatal(err)
		}
	}
}

// write updates an object. If another client was faster, the next turn tries again, as a controller does.
func (u *undoWorld) write(r store.UpdateRequest) {
	u.Helper()
	if _, err := u.store.Update(u.Context(), r); err != nil && !object.Is(err, object.Conflict) && !object.Is(err, object.NotFound) {
		u.Fatal(err)
	}
}

// undo restores a cascade. Its dry run must say the same.
func (u *undoWorld) undo(id string) {
	u.Helper()
	spec := v1.RestoreSpec{Cascade: id, DryRun: true}
	dry, err := u.archive.Restore(u.Context(), u.Client(), spec)
	if err != nil {
		u.Fatal(err)
	}
	spec.DryRun = false
	status, err := u.archive.Restore(u.Context(), u.Client(), spec)
	if err != nil {
		u.Fatal(err)
	}
	u.Collect() // removes what the restore left as garbage
	u.log("undo %s: %d created, %d skipped, %d failed", id, status.Created, status.Skipped, status.Failed)
	outcomes := func(s v1.RestoreStatus) (out []string) {
		for _, r := range s.Results {
			out = append(out, fmt.Sprint(r.Kind, " ", r.Name, " ", r.Outcome, " ", r.Reason, " ", r.Changes))
		}
		return out
	}
	if diff := cmp.Diff(outcomes(dry), outcomes(status)); diff != "" {
		u.Errorf("the dry run of %s (-) differs from the run (+):\n%s", id, diff)
	}
}

// state is the bodies of all objects of the world.
func (u *undoWorld) state() map[object.Key][]byte {
	u.Helper()
	out := map[object.Key][]byte{}
	for _, key := range u.keys() {
		if o, _, ok := u.find(key); ok {
			out[key] = o.Body
		}
	}
	return out
}

// keys are those of the namespace and of all objects.
func (u *undoWorld) keys() []object.Key {
	keys := []object.Key{{Kind: object.Namespaces, Name: u.namespace}}
	for _, o := range u.all {
		keys = append(keys, o.Key)
	}
	return keys
}
