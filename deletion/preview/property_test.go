package preview

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/deletion/deletiontest"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"slices"
)

var (
	graphs = flag.Int("preview-graphs", 112, "random graphs of TestPreviewIsWhatADeleteDoes, for each engine")
	seed   = flag.Uint64("preview-seed", 1, "the seed of the first graph")
)

var policies = []metav1.DeletionPropagation{
	metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
}

// differed are seeds of graphs whose preview was wrong once.
var differed = []uint64{463, 3705, 5153, 5950, 6668, 8892, 9529}

// TestPreviewIsWhatADeleteDoes makes random graphs, previews a delete, does it, runs the
// collector until it is idle, and compares. Then it removes the finalizers of every object
// that is still DELETING, as their controllers would, lets a policy admit what it refused, and
// compares again.
func TestPreviewIsWhatADeleteDoes(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, db, Options{Batch: 3}) // small, so that pages end at every place
		w.Policed()
		sum := tallyOf{}
		var seeds []uint64
		for i := range *graphs {
			seeds = append(seeds, *seed+uint64(i))
		}
		for _, s := range differed {
			if *graphs > 1 && !slices.Contains(seeds, s) {
				seeds = append(seeds, s)
			}
		}
		for i, s := range seeds {
			g := newGraph(w, s)
			if i < *graphs {
				g.check(sum)
			} else {
				g.check(tallyOf{})
			}
			if t.Failed() {
				t.Fatalf("run it again with -preview-seed %d -preview-graphs 1", g.seed)
			}
		}
		t.Logf("objects by action: %v", sum)
		if *graphs > 1 {
			sum.enough(t)
		}
	})
}

// tallyOf counts items by action, and the uncertain ones.
type tallyOf map[string]int

// enough fails a test whose random graphs have too few objects of an action, or too many
// uncertain predictions.
func (s tallyOf) enough(t *testing.T) {
	all := 0
	for _, a := range []v1.Action{v1.Delete, v1.Orphan, v1.Keep, v1.Block, v1.Wait} {
		all += s[string(a)]
		if s[string(a)] < *graphs/10 {
			t.Errorf("only %d objects with action %s", s[string(a)], a)
		}
	}
	if s["uncertain"]*10 > all {
		t.Errorf("%d of %d predictions are uncertain", s["uncertain"], all)
	}
}

// graph is a random graph in a namespace of its own.
type graph struct {
	*world
	seed    uint64
	random  *rand.Rand
	things  []thing
	objects []object.Object
	home    object.Object // the namespace
	denied  map[types.UID]bool
}

func newGraph(w *world, seed uint64) *graph {
	g := &graph{world: w, seed: seed, random: rand.New(rand.NewPCG(seed, 0))}
	namespace := fmt.Sprintf("n%d", seed)
	g.home = w.Create(thing{Kind: object.Namespaces, Name: namespace})
	w.Create(thing{Kind: object.Namespaces, Name: namespace + "-b"})
	count := 2 + g.random.IntN(12)
	for i := range count {
		g.things = append(g.things, g.newThing(i, namespace))
	}
	for i := range g.things {
		g.addOwners(i)
		g.objects = append(g.objects, w.Create(g.things[i]))
	}
	w.Collect()
	if g.chance(4) { // some objects are being deleted already
		if i := g.random.IntN(count); g.meta(i) != nil {
			w.Delete(g.objects[i].Key, deletiontest.With(policies[g.random.IntN(2)]))
			w.Collect()
		}
	}
	return g
}

func (g *graph) chance(of int) bool { return g.random.IntN(of) == 0 }

func (g *graph) meta(i int) *metav1.ObjectMeta { return g.Get(g.objects[i].Key, g.objects[i].UID) }

func (g *graph) newThing(i int, namespace string) thing {
	o := thing{
		Kind: "configmaps", Namespace: namespace, Name: fmt.Sprintf("o%d", i),
		UID: types.UID(fmt.Sprintf("%08x-%d-%d", g.random.Uint32(), g.seed, i)), // uids are not in order of age
	}
	switch {
	case g.chance(8):
		o.Kind, o.Namespace, o.Name = "clusterroles.rbac.authorization.k8s.io", "", fmt.Sprintf("c%d-%d", g.seed, i)
	case g.chance(8):
		o.Kind, o.Rest = "pods", `,"spec":{"nodeName":"node","terminationGracePeriodSeconds":30}`
	case g.chance(8):
		o.Kind = deletiontest.Unserved
	case g.chance(8):
		o.Namespace += "-b" // its references, and those to it, lead to another namespace
	}
	if g.chance(6) {
		o.Passes = []string{"0", "7", "true"}[g.random.IntN(3)]
	}
	switch {
	case g.chance(6):
		o.Finalizers = []string{"example.com/hold"}
	case g.chance(20):
		o.Finalizers = []string{metav1.FinalizerDeleteDependents}
	case g.chance(20):
		o.Finalizers = []string{metav1.FinalizerOrphanDependents, "example.com/hold"}
	}
	return o
}

// addOwners adds references to existing things, and sometimes to one that does not exist
// yet, which makes cycles.
func (g *graph) addOwners(i int) {
	for range 1 + g.random.IntN(3)/2 {
		at := g.random.IntN(max(1, i))
		if g.chance(10) {
			at = g.random.IntN(len(g.things))
		}
		if at == i {
			continue
		}
		owner := g.things[at]
		key := object.Key{Kind: owner.Kind, Namespace: owner.Namespace, Name: owner.Name}
		g.things[i].Owners = append(g.things[i].Owners, g.misname(g.Reference(key, owner.UID, !g.chance(4))))
		if g.chance(10) { // a second reference with the same uid
			second := g.Reference(key, owner.UID, !g.chance(4))
			second.APIVersion, second.Kind = "example.org/v1", "Gadget"
			g.things[i].Owners = append(g.things[i].Owners, second)
		}
	}
}

// misname makes some references name another kind or name than the owner's, an unserved
// kind, or an owner that never existed.
func (g *graph) misname(r metav1.OwnerReference) metav1.OwnerReference {
	switch g.random.IntN(40) {
	case 0:
		r.APIVersion, r.Kind = "v1", "Secret"
	case 1:
		r.Name = "not-" + r.Name
	case 2, 3:
		r.APIVersion, r.Kind = "example.org/v1", "Gadget"
	case 4:
		r.APIVersion, r.Kind, r.UID = "example.org/v1", "Gadget", "never-was"
	}
	return r
}

// check previews, deletes and compares.
func (g *graph) check(sum tallyOf) {
	root := g.random.IntN(len(g.objects))
	if !g.chance(4) { // the oldest have the most dependents
		root = g.random.IntN(min(3, len(g.objects)))
	}
	if g.meta(root) == nil {
		return // the collector has removed it already
	}
	deleted := g.objects[root]
	if g.chance(10) {
		deleted = g.home
	}
	options := deletiontest.With(policies[g.random.IntN(len(policies))])
	if g.chance(4) {
		seconds := int64(7 * g.random.IntN(2))
		options.GracePeriodSeconds = &seconds
	}
	g.deny(deleted)
	before := map[types.UID]string{}
	for i := range g.objects {
		if m := g.meta(i); m != nil {
			before[m.UID] = asText(m)
		}
	}
	status := g.preview(deleted, options)
	items := map[types.UID]v1.Item{}
	for _, item := range status.Items {
		items[item.UID] = item
		sum[string(item.Action)]++
		if item.Uncertain {
			sum["uncertain"]++
		}
	}
	g.Delete(deleted.Key, options)
	g.Collect()
	for i := range g.objects {
		item, touched := items[g.objects[i].UID]
		g.compare(i, item, touched, before)
	}
	if len(g.denied) > 0 {
		g.Deny()
		g.Collect()
	}
	g.releaseAll(items)
	for i := range g.objects {
		g.compareEnd(i, items[g.objects[i].UID])
	}
	if g.T.Failed() {
		g.dump(deleted.Key, options, items)
	}
}

// deny lets the policy refuse the deletion of some objects, but not of the one that a client deletes.
func (g *graph) deny(deleted object.Object) {
	if !g.chance(3) {
		return
	}
	g.denied = map[types.UID]bool{}
	var denials []string
	for _, o := range g.objects {
		if o.UID != deleted.UID && g.chance(4) {
			g.denied[o.UID], denials = true, append(denials, deletiontest.Denial("DELETE", o.Key))
		}
	}
	g.Deny(denials...)
}

// asText returns an object's metadata as text; empty if it does not exist.
func asText(m *metav1.ObjectMeta) string {
	if m == nil {
		return ""
	}
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // metadata that was decoded can be encoded
	}
	return string(text)
}

// gone reports whether no object of the graph has the uid now.
func (g *graph) gone(uid types.UID) bool {
	for i := range g.objects {
		if m := g.meta(i); m != nil && m.UID == uid {
			return false
		}
	}
	return true
}

// compare checks an object against the prediction for now.
func (g *graph) compare(i int, item v1.Item, touched bool, before map[types.UID]string) {
	m := g.meta(i)
	found := "gone"
	if m != nil {
		found = "there"
		if m.DeletionTimestamp != nil {
			found = "deleting"
		}
	}
	var ok bool
	switch {
	case item.Uncertain:
		return // see compareEnd
	case !touched:
		// A preview looks downwards. An owner above that was waiting for the removed objects may be
		// removed too, and what the collector kept because that one existed follows its references.
		was := func(uid types.UID) bool { return strings.Contains(before[uid], `"deletionTimestamp"`) }
		ok = asText(m) == before[g.objects[i].UID] || was(g.objects[i].UID) ||
			slices.ContainsFunc(g.things[i].Owners, func(r metav1.OwnerReference) bool { return was(r.UID) && g.gone(r.UID) })
	case item.Action == v1.Delete:
		ok = found == "gone"
	case item.Action == v1.Block:
		ok = found == "deleting" || found == "there" && g.denied[m.UID]
		if m != nil && m.DeletionGracePeriodSeconds != nil && *m.DeletionGracePeriodSeconds > 0 {
			found += fmt.Sprintf(", with %d s of grace", *m.DeletionGracePeriodSeconds)
			ok = strings.Contains(item.Reason, fmt.Sprintf("has %ds of grace", *m.DeletionGracePeriodSeconds))
		}
	case item.Action == v1.Wait:
		ok = found != "gone"
	default: // it stays, so a policy that refuses its deletion is not the reason
		ok = found == "there" && !strings.Contains(item.Reason, "a policy refuses")
	}
	if !ok {
		g.T.Errorf("%s: predicted %q (%s), found it %s", g.objects[i].Key, item.Action, item.Reason, found)
	}
}

// releaseAll removes the finalizers of all objects that were predicted to leave, until
// nothing changes any more.
func (g *graph) releaseAll(items map[types.UID]v1.Item) {
	for range len(g.objects) + 1 {
		for i := range g.objects {
			m, item := g.meta(i), items[g.objects[i].UID]
			leaves := item.Action == v1.Delete || item.Action == v1.Block || item.Action == v1.Wait
			if m != nil && m.DeletionTimestamp != nil && (leaves || item.Uncertain) {
				g.Release(g.objects[i].Key)
			}
		}
		g.Collect()
	}
}

// compareEnd checks an object against the prediction for the end.
func (g *graph) compareEnd(i int, item v1.Item) {
	m := g.meta(i)
	switch item.Action {
	case v1.Delete, v1.Block, v1.Wait:
		if m != nil && !g.orphanedAfterAll(m, item) {
			g.T.Errorf("%s: predicted %s (%s), but at the end it exists: %+v", g.objects[i].Key, item.Action, item.Reason, m)
		}
	case v1.Keep, v1.Orphan:
		if m == nil && !item.Uncertain {
			g.T.Errorf("%s: predicted %s (%s), but at the end it is gone", g.objects[i].Key, item.Action, item.Reason)
		}
	}
}

// orphanedAfterAll: an uncertain item may be orphaned in the end.
func (g *graph) orphanedAfterAll(m *metav1.ObjectMeta, item v1.Item) bool {
	return item.Uncertain && m.DeletionTimestamp == nil
}

func (g *graph) dump(deleted object.Key, options metav1.DeleteOptions, items map[types.UID]v1.Item) {
	var b strings.Builder
	fmt.Fprintf(&b, "delete %s with %s\n", deleted, *options.PropagationPolicy)
	for i, o := range g.things {
		item := items[o.UID]
		fmt.Fprintf(&b, "%s %s finalizers %v predicted %s %v (%s)\n", g.objects[i].Key, o.UID, o.Finalizers, item.Action, item.Uncertain, item.Reason)
		for _, r := range o.Owners {
			fmt.Fprintf(&b, "    owner %s %s blocking %v\n", r.Kind, r.Name, *r.BlockOwnerDeletion)
		}
	}
	g.T.Log(b.String())
}
