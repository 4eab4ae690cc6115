package preview

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/deletion/deletiontest"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// graphs is how many random graphs are tried on each engine.
const graphs = 250

var policies = []metav1.DeletionPropagation{
	metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
}

// TestPreviewIsWhatADeleteDoes makes random graphs, previews a delete, does it,
// lets the collector come to rest, and compares; then it does for every object
// that is still DELETING what others have to do, and compares again.
//
// EXEUNT_SEED=n tries one graph only.
func TestPreviewIsWhatADeleteDoes(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorld(t, db, Options{Batch: 3}) // small, so that pages end everywhere
		first, last := uint64(1), uint64(graphs)
		if text := os.Getenv("EXEUNT_SEED"); text != "" {
			seed, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				t.Fatalf("EXEUNT_SEED: %v", err)
			}
			first, last = seed, seed
		}
		sum := tallyOf{}
		for seed := first; seed <= last; seed++ {
			g := newGraph(w, seed)
			g.check(sum)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		t.Logf("objects by action: %v", sum)
		if last > first {
			sum.enough(t)
		}
	})
}

// tallyOf counts items by action, and those that are uncertain.
type tallyOf map[string]int

// enough fails a test whose graphs are too tame to prove anything, or whose
// predictions are too vague.
func (s tallyOf) enough(t *testing.T) {
	all := 0
	for _, a := range []v1.Action{v1.Delete, v1.Orphan, v1.Keep, v1.Block, v1.Wait} {
		all += s[string(a)]
		if s[string(a)] < graphs/10 {
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
}

func newGraph(w *world, seed uint64) *graph {
	g := &graph{world: w, seed: seed, random: rand.New(rand.NewPCG(seed, 0))}
	namespace := fmt.Sprintf("n%d", seed)
	g.home = w.Create(thing{Kind: object.Namespaces, Name: namespace})
	count := 2 + g.random.IntN(12)
	for i := range count {
		g.things = append(g.things, g.newThing(i, namespace))
	}
	for i := range g.things {
		g.addOwners(i)
		g.objects = append(g.objects, w.Create(g.things[i]))
	}
	w.Collect()
	if g.chance(4) { // something is on its way already
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
		UID: types.UID(fmt.Sprintf("%08x-%d-%d", g.random.Uint32(), g.seed, i)), // the order of uids is not that of ages
	}
	switch {
	case g.chance(8):
		o.Kind, o.Namespace, o.Name = "clusterroles.rbac.authorization.k8s.io", "", fmt.Sprintf("c%d-%d", g.seed, i)
	case g.chance(8):
		o.Kind, o.Rest = "pods", `,"spec":{"nodeName":"node","terminationGracePeriodSeconds":30}`
	case g.chance(8):
		o.Kind = deletiontest.Unserved
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

// addOwners refers to things that exist, and now and then to one that does not
// exist yet: so circles come about.
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
	}
}

// misname has some references name another kind or name than the owner's, a kind
// that is not served, or an owner that never was.
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
	if !g.chance(4) { // the old ones have the most below them
		root = g.random.IntN(min(3, len(g.objects)))
	}
	if g.meta(root) == nil {
		return // the collector had it already
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
		g.compare(i, item, touched, before[g.objects[i].UID])
	}
	g.releaseAll(items)
	for i := range g.objects {
		g.compareEnd(i, items[g.objects[i].UID])
	}
	if g.T.Failed() {
		g.dump(deleted.Key, options, items)
	}
}

// asText is all of an object's metadata; empty if there is none.
func asText(m *metav1.ObjectMeta) string {
	if m == nil {
		return ""
	}
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // metadata that was read can be written
	}
	return string(text)
}

// compare holds an object against what was predicted for now.
func (g *graph) compare(i int, item v1.Item, touched bool, before string) {
	m := g.meta(i)
	found := "gone"
	if m != nil {
		found = "there"
		if m.DeletionTimestamp != nil {
			found = "deleting"
		}
	}
	ok := true
	switch {
	case item.Uncertain:
		return // see compareEnd
	case !touched:
		// A preview looks down. An owner that was waiting for what leaves now is
		// above it, and may go on its way.
		ok = asText(m) == before || strings.Contains(before, `"deletionTimestamp"`)
	case item.Action == v1.Delete:
		ok = found == "gone"
	case item.Action == v1.Block:
		ok = found == "deleting"
	case item.Action == v1.Wait:
		ok = found != "gone"
	default:
		ok = found == "there"
	}
	if !ok {
		g.T.Errorf("%s: predicted %q (%s), found it %s", g.objects[i].Key, item.Action, item.Reason, found)
	}
}

// releaseAll does what others have to do, for all that was predicted to leave,
// until nothing moves any more.
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

// compareEnd holds an object against what was predicted for the end.
func (g *graph) compareEnd(i int, item v1.Item) {
	m := g.meta(i)
	switch item.Action {
	case v1.Delete, v1.Block, v1.Wait:
		if m != nil && !g.orphanedAfterAll(m, item) {
			g.T.Errorf("%s: predicted %s (%s), and in the end it is there: %+v", g.objects[i].Key, item.Action, item.Reason, m)
		}
	case v1.Keep, v1.Orphan:
		if m == nil && !item.Uncertain {
			g.T.Errorf("%s: predicted %s (%s), and in the end it is gone", g.objects[i].Key, item.Action, item.Reason)
		}
	}
}

// orphanedAfterAll: an item that is uncertain may be orphaned in the end.
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
			fmt.Fprintf(&b, "    owner %s blocking %v\n", r.Name, *r.BlockOwnerDeletion)
		}
	}
	g.T.Log(b.String())
}
