package crash_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/exeunt/exeunt/test/harness"
)

var (
	killFor  = flag.Duration("kill", 6*time.Second, "how long TestKillCascades goes on killing, on each engine")
	killSeed = flag.Uint64("seed", 0, "the seed of TestKillCascades's graphs; 0: a new one")
)

const (
	families  = 8   // graphs in a round, created concurrently
	size      = 60  // objects in a graph; a fan has more
	killsEach = 4   // kills in a round
	doomed    = 100 // objects in the namespace that is deleted
)

// TestKillCascades kills servers in the middle of cascades, repeatedly: one server on
// SQLite; two replicas in turn, or both, on PostgreSQL. At the end every object that
// should stay exists, every object that should go is gone, the queue is empty, no owner
// reference dangles, and a watch that was resumed after each crash received every deletion
// exactly once.
func TestKillCascades(t *testing.T) {
	harness.Both(t, func(t *testing.T, s *harness.Server) {
		servers := []*harness.Server{s}
		if s.Engine == harness.Postgres {
			servers = append(servers, s.Replica(t))
		}
		seed := *killSeed
		if seed == 0 {
			seed = rand.Uint64()
		}
		t.Logf("-seed %d", seed)
		newKilling(t, servers, seed).run()
	})
}

// killing is the state of the test for one engine.
type killing struct {
	*testing.T
	servers  []*harness.Server
	fleet    fleet
	tail     *tail
	rng      *rand.Rand
	families []*family
	kills    int
	midway   int // those in the middle of a cascade
}

func newKilling(t *testing.T, servers []*harness.Server, seed uint64) *killing {
	k := &killing{T: t, servers: servers, rng: rand.New(rand.NewPCG(seed, 1))}
	for _, s := range servers {
		k.fleet = append(k.fleet, client(t, s))
	}
	k.tail = newTail(k.fleet, number(t, newest(t, servers[0].HTTP())))
	return k
}

func (k *killing) run() {
	ctx, cancel := context.WithCancel(k.Context())
	var group sync.WaitGroup
	group.Go(func() { k.tail.run(ctx) })
	defer group.Wait()
	defer cancel()
	for deadline, round := time.Now().Add(*killFor), 0; round == 0 || time.Now().Before(deadline) && !k.Failed(); round++ {
		k.round(ctx, round)
	}
	if k.midway == 0 {
		k.Errorf("none of %d kills was in the middle of a cascade: the test is void", k.kills)
	}
	k.check()
	k.tail.mu.Lock()
	defer k.tail.mu.Unlock()
	k.Logf("%d kills, %d in the middle of a cascade; %d objects gone, %d alive; the watch was resumed %d times",
		k.kills, k.midway, len(k.tail.deleted), len(k.tail.alive), k.tail.resumed)
}

// round creates graphs, deletes objects in them, and kills servers while the cascades run.
func (k *killing) round(ctx context.Context, round int) {
	stays, goes := fmt.Sprintf("stays-%d", round), fmt.Sprintf("goes-%d", round)
	for _, name := range []string{stays, goes} {
		k.must(ctx, func(c kubernetes.Interface) error {
			_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err
		})
	}
	made := []*family{newFamily(goes, "g", doomed, k.rng)}
	for i := range families {
		n := size
		if i == 0 {
			n *= 10
		}
		made = append(made, newFamily(stays, fmt.Sprintf("f%d", i), n, k.rng))
	}
	k.families = append(k.families, made[1:]...)
	k.each(made, func(f *family) error { return f.create(ctx, k.fleet) })
	if k.Failed() {
		return
	}
	ended := make(chan struct{})
	before := k.tail.gone()
	go func() {
		defer close(ended)
		k.each(made, func(f *family) error { return f.delete(ctx, k.fleet) })
		k.must(ctx, func(c kubernetes.Interface) error {
			return c.CoreV1().Namespaces().Delete(ctx, goes, metav1.DeleteOptions{})
		})
	}()
	for range killsEach {
		k.kill(before)
	}
	<-ended
}

// kill waits until a random number of further objects is gone, then kills. The events that
// the watch receives afterwards show whether the kill was in the middle of a cascade.
func (k *killing) kill(before int) {
	aim := k.tail.gone() + 1 + k.rng.IntN(200)
	for deadline := time.Now().Add(500 * time.Millisecond); k.tail.gone() < aim && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	victims := []*harness.Server{k.servers[k.rng.IntN(len(k.servers))]}
	if k.rng.IntN(4) == 0 {
		victims = k.servers
	}
	for _, s := range victims {
		s.Kill()
	}
	atKill := k.tail.gone()
	for _, s := range victims {
		s.Start()
	}
	k.kills++
	if status, _ := k.status(); atKill > before && (status != `0` || k.tail.gone() > atKill) {
		k.midway++
	}
}

// status returns the length of the collector's queue.
func (k *killing) status() (depth string, failing string) {
	a := k.servers[0].HTTP().Get(k, "/exeunt/gc")
	return a.Field("depth"), a.Field("failing")
}

// check waits until all cascades are complete and compares the result with the prediction.
func (k *killing) check() {
	want := map[string]bool{}
	for _, f := range k.families {
		for i, lives := range f.survivors() {
			if lives {
				want[f.namespace+"/"+f.members[i].name] = true
			}
		}
	}
	k.until("the collector to become idle", func() error {
		depth, failing := k.status()
		found := k.list()
		for name := range found {
			if !want[name] {
				return fmt.Errorf("%s is left; %s reviews, %s failing", name, depth, failing)
			}
		}
		if depth != "0" {
			return fmt.Errorf("%s reviews are left, %s failing", depth, failing)
		}
		return k.namespacesGone()
	})
	found := k.list()
	for name := range want {
		if _, ok := found[name]; !ok {
			k.Errorf("%s is gone and should exist", name)
		}
	}
	alive := map[types.UID]bool{}
	for _, cm := range found {
		alive[cm.UID] = true
	}
	for name, cm := range found {
		for _, r := range cm.OwnerReferences {
			if !alive[r.UID] {
				k.Errorf("%s refers to %s, which is gone", name, r.Name)
			}
		}
	}
	k.checkTail(alive)
}

// namespacesGone checks that the deleted namespaces are gone, and no others.
func (k *killing) namespacesGone() error {
	var all corev1.NamespaceList
	decode(k.T, k.servers[0].HTTP().Get(k, "/api/v1/namespaces").Body, &all)
	staying := 0
	for _, ns := range all.Items {
		switch {
		case strings.HasPrefix(ns.Name, "goes-"):
			return fmt.Errorf("namespace %s is left: %+v", ns.Name, ns.Status)
		case strings.HasPrefix(ns.Name, "stays-"):
			staying++
		}
	}
	if rounds := len(k.families) / families; staying != rounds {
		k.Errorf("%d namespaces are left of %d that should stay", staying, rounds)
	}
	return nil
}

// checkTail compares what the watch received with the stored objects.
func (k *killing) checkTail(alive map[types.UID]bool) {
	last := number(k.T, newest(k.T, k.servers[0].HTTP()))
	k.until("the watcher", func() error {
		k.tail.mu.Lock()
		defer k.tail.mu.Unlock()
		for uid, name := range k.tail.alive {
			if !alive[uid] && name != "kube-root-ca.crt" {
				return fmt.Errorf("at version %d of %d the watch did not receive the deletion of %s", k.tail.version, last, name)
			}
		}
		return nil
	})
	k.tail.mu.Lock()
	defer k.tail.mu.Unlock()
	for uid := range alive {
		if _, ok := k.tail.alive[uid]; !ok {
			k.Errorf("the watch did not receive that %s was created, or received that it was deleted", uid)
		}
	}
	for _, problem := range k.tail.problems {
		k.Error(problem)
	}
}

// list returns the test's objects by namespace and name.
func (k *killing) list() map[string]corev1.ConfigMap {
	var all corev1.ConfigMapList
	decode(k.T, k.servers[0].HTTP().Get(k, "/api/v1/configmaps").Body, &all)
	found := map[string]corev1.ConfigMap{}
	for _, cm := range all.Items {
		if cm.Name != "kube-root-ca.crt" && cm.Namespace != "default" && cm.Namespace != "kube-system" {
			found[cm.Namespace+"/"+cm.Name] = cm
		}
	}
	return found
}

// until is harness.Until with a longer deadline: the lease of a killed replica must
// expire, in the worst case once for each link of a chain of owners.
func (k *killing) until(what string, condition func() error) {
	var err error
	for range 4 {
		if err = harness.Poll(condition); err == nil {
			return
		}
	}
	k.Fatalf("waiting for %s: %v", what, err)
}

// must sends a request. AlreadyExists and NotFound count as success: the answer to an
// earlier attempt was lost.
func (k *killing) must(ctx context.Context, request func(kubernetes.Interface) error) {
	err := k.fleet.try(ctx, request)
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		k.Error(err)
	}
}

func (k *killing) each(all []*family, do func(*family) error) {
	var group sync.WaitGroup
	for _, f := range all {
		group.Go(func() {
			if err := do(f); err != nil {
				k.Error(err)
			}
		})
	}
	group.Wait()
}

// create creates the members, then adds the owners that did not exist yet.
func (f *family) create(ctx context.Context, c fleet) error {
	for i := range f.members {
		m := &f.members[i]
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: m.name, OwnerReferences: f.references(m.owners, m.blocks)}}
		if m.held {
			cm.Finalizers = []string{held}
		}
		made, err := c[i%len(c)].CoreV1().ConfigMaps(f.namespace).Create(ctx, cm, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		m.uid = made.UID
	}
	for i := range f.members {
		m := &f.members[i]
		if m.late < 0 {
			continue
		}
		maps := c[0].CoreV1().ConfigMaps(f.namespace)
		cm, err := maps.Get(ctx, m.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		cm.OwnerReferences = append(cm.OwnerReferences, f.references([]int{m.late}, m.blocks)...)
		if _, err := maps.Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// delete deletes the members that have a policy.
func (f *family) delete(ctx context.Context, c fleet) error {
	var problems []error
	for _, m := range slices.Backward(f.members) {
		if m.policy == "" {
			continue
		}
		err := c.try(ctx, func(c kubernetes.Interface) error {
			return c.CoreV1().ConfigMaps(f.namespace).Delete(ctx, m.name, metav1.DeleteOptions{
				PropagationPolicy: &m.policy, Preconditions: &metav1.Preconditions{UID: &m.uid},
			})
		})
		if err != nil && !apierrors.IsNotFound(err) {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}
