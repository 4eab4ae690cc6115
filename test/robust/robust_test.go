// Package robust_test runs three replicas on a PostgreSQL primary with a synchronous standby
// and an S3 server, breaks processes and connections while clients work, and checks every
// answer afterwards. A run is determined by its seed, but for the timing of the machine.
package robust_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/registry/blobstore/s3test"
	"github.com/exeunt/exeunt/test/harness"
)

var (
	robustFor  = flag.Duration("robust", 30*time.Second, "how long TestRobust breaks things")
	robustSeed = flag.Uint64("robust-seed", 0, "the seed of TestRobust; 0: a new one")
	robustInto = flag.String("robust-report", "", "the file that TestRobust writes its report to, as Markdown")
)

const (
	replicas = 3
	workers  = 6
	// reviewAtOnce makes the registry review at once, so that it removes while others push.
	reviewAtOnce = "blob_upload=0s,manifest_upload=0s,manifest_delete=0s,layer_delete=0s,manifest_list_delete=0s," +
		"tag_delete=0s,tag_switch=0s,subject_delete=0s,blob_delete=0s,upload_delete=0s,existence_check=5s"
)

// TestRobust: whatever breaks, each object's history is linearizable, watches on all
// replicas deliver the same events without a gap, versions follow the order of commits,
// lists agree with the events, each cascade ends exactly once and is in the archive,
// acknowledged images are whole, and the queues are empty in the end.
func TestRobust(t *testing.T) {
	seed := *robustSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	steps := *robustFor >= clockSteps
	w := newWorld(t, seed, newCluster(t, steps), steps)
	w.newDeck = w.fullDeck
	w.runAll()
}

// runAll runs clients and faults, and checks.
func (w *world) runAll() {
	w.Helper()
	w.Logf("-robust-seed %d", w.seed)
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	var clients sync.WaitGroup
	w.startClients(ctx, &clients)
	watching, stop := context.WithCancel(w.Context())
	var followers sync.WaitGroup
	for _, watch := range slices.Concat(w.watchers, w.lives.watchers) {
		followers.Go(func() { watch.run(watching) })
	}
	for _, i := range w.informers {
		followers.Go(func() { i.run(watching) })
	}
	defer followers.Wait()
	defer stop()
	w.breakThings()
	cancel()
	clients.Wait()
	w.lives.end(w)
	w.settle()
	stop()
	followers.Wait()
	w.check()
}

// world is the system under test, with its links and clients.
type world struct {
	*testing.T
	rng     *rand.Rand
	cluster *cluster
	storage string // --registry-storage, without a link
	servers []*harness.Server
	links   []replicaLinks
	apis    []api

	history  history
	breeder  breeder
	pusher   pusher
	balanced balanced
	watchers []*watcher

	management *management
	bucketDisk disk
	lives      lives
	informers  []*informer

	seed      uint64
	steps     bool // the replicas' clocks can be stepped
	newDeck   func() []func(replica int) fault
	deck      []func(replica int) fault // what is left of it
	periods   []period
	failovers []time.Duration
}

// replicaLinks are the connections of one replica: to each database node, to the bucket, and
// from its clients.
type replicaLinks struct {
	nodes         [2]*link
	bucket        *link
	api, registry *link
}

// clockSteps is how long a run must be for clock steps: the server that has them takes
// minutes to build.
const clockSteps = 5 * time.Minute

func newWorld(t *testing.T, seed uint64, database *cluster, steps bool) *world {
	w := &world{T: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), cluster: database, management: newManagement(t), steps: steps}
	w.mountBucket()
	w.storage = harness.S3(t)
	for i := range replicas {
		w.addReplica(i)
	}
	w.management.open(w.apis)
	h := w.servers[0].HTTP()
	h.Do(t, harness.Request{Method: "POST", Path: "/api/v1/namespaces", Body: `{"metadata":{"name":"` + namespace + `"}}`})
	harness.Until(t, "the namespace's own objects", func() error {
		if a := h.Do(t, harness.Request{Method: "GET", Path: collection + "/kube-root-ca.crt"}); a.Code != 200 {
			return fmt.Errorf("kube-root-ca.crt answers %d", a.Code)
		}
		return nil
	})
	a := answer{200, h.Get(t, collection).Body}
	for i := range w.servers {
		w.watchers = append(w.watchers, &watcher{replica: w.apis[i], path: collection, from: a.object().version()})
		w.informers = append(w.informers, newInformer(w.T, w.servers[i].Config(), w.apis[i].base))
	}
	w.lives.prepare(w)
	w.history.began = time.Now()
	return w
}

func (w *world) addReplica(i int) {
	w.Helper()
	endpoint, err := url.Parse(s3test.Endpoint(w))
	if err != nil {
		w.Fatal(err)
	}
	l := replicaLinks{bucket: newLink(w.T, fmt.Sprintf("replica %d to the bucket", i), endpoint.Host)}
	var hosts []string
	for j, n := range w.cluster.nodes {
		l.nodes[j] = newLink(w.T, fmt.Sprintf("replica %d to database node %d", i, j), fmt.Sprint("127.0.0.1:", n.port))
		hosts = append(hosts, l.nodes[j].address())
	}
	database := fmt.Sprintf("postgres://exeunt@%s/exeunt?sslmode=disable&target_session_attrs=read-write&connect_timeout=3", strings.Join(hosts, ","))
	flags := []string{"--registry-storage", s3test.Through(w, w.storage, "http://"+l.bucket.address()), "--registry-review-after", reviewAtOnce,
		"--database-idle-transaction-timeout", "3s", // a write of a replica that is cut off ends during most faults
		"--management-kubeconfig", w.management.kubeconfig}
	var s *harness.Server
	if i == 0 {
		s = harness.StartOn(w, harness.Postgres, database, flags...)
	} else {
		s = w.servers[0].ReplicaOn(w, database, flags...)
	}
	if w.steps {
		s.Stop()
		s.WithClock(w)
		s.Start()
	}
	config := s.Config()
	config.NextProtos = []string{"http/1.1"} // a broken connection is one request's
	at, err := url.Parse(config.Host)
	if err != nil {
		w.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		w.Fatal(err)
	}
	l.api = newLink(w.T, fmt.Sprintf("clients to replica %d", i), at.Host)
	l.registry = newLink(w.T, fmt.Sprintf("registry clients to replica %d", i), s.Registry())
	w.servers, w.links = append(w.servers, s), append(w.links, l)
	w.apis = append(w.apis, api{client, "https://" + l.api.address()})
	w.pusher.registries = append(w.pusher.registries, registry{l.registry.address(), &authn.Basic{Username: harness.RegistryUser, Password: s.RegistryToken()}})
}

func (w *world) startClients(ctx context.Context, group *sync.WaitGroup) {
	random := func() *rand.Rand { return rand.New(rand.NewPCG(w.rng.Uint64(), 2)) }
	for i := range workers {
		c := &worker{i, w.apis, &w.history, random()}
		group.Go(func() { c.run(ctx) })
	}
	lister := &worker{workers, w.apis, &w.history, random()}
	group.Go(func() { lister.runLists(ctx) })
	w.breeder.replicas, w.breeder.rng = w.apis, random()
	group.Go(func() { w.breeder.run(ctx) })
	w.balanced.replicas, w.balanced.rng = w.apis, random()
	group.Go(func() { w.balanced.run(ctx) })
	w.pusher.rng, w.pusher.pushed = random(), map[string]v1.Hash{}
	group.Go(func() { w.pusher.run(ctx, w.T) })
	w.lives.start(ctx, group, w.apis, random)
}

// settle waits, without faults, until the queues are empty and every watch has delivered
// the newest version.
func (w *world) settle() {
	w.Helper()
	h := w.servers[0].HTTP()
	w.patiently("the queues", func() error {
		for _, path := range []string{"/exeunt/gc", "/exeunt/registry/gc"} {
			a, err := h.Try(harness.Request{Method: "GET", Path: path})
			if err != nil {
				return err
			}
			if err := queuesEmpty(a.Body); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		return nil
	})
	a := w.apis[0].do(w.Context(), "POST", collection, `{"metadata":{"name":"last"}}`)
	last := a.object().version()
	if a.code != 201 || last == 0 {
		w.Fatalf("after all faults a create answers %d: %s", a.code, a.body)
	}
	w.patiently("the watches", func() error {
		for i, watch := range w.watchers {
			if at := watch.last(); at < last {
				return fmt.Errorf("the watch of replica %d is at %d of %d", i, at, last)
			}
			if err := w.informers[i].has("last"); err != nil {
				return fmt.Errorf("the informer of replica %d: %w", i, err)
			}
		}
		return nil
	})
}

// patiently is harness.Until with a longer deadline: leases of killed replicas expire one
// after the other.
func (w *world) patiently(what string, condition func() error) {
	w.Helper()
	harness.Within(w, 4*harness.Patience, what, condition)
}

func (w *world) check() {
	w.Helper()
	ops := w.history.ops
	began := time.Now()
	result, info := porcupine.CheckOperationsVerbose(model, ops, 5*time.Minute)
	if result != porcupine.Ok {
		w.Errorf("the histories are not linearizable: %v", result)
		w.printShortest(ops)
		if file := w.TempDir() + "/history.html"; porcupine.VisualizePath(model, info, file) == nil {
			w.Logf("the history is in %s", file)
		}
	}
	w.Logf("checked in %v", time.Since(began).Round(time.Millisecond))
	events := compareWatches(w.T, w.watchers)
	checkLists(w.T, w.watchers[0].from, events, w.history.lists)
	w.checkVersions(events)
	w.breeder.check(w.T, w.servers[0].HTTP(), events)
	w.pusher.check(w.T, w.servers[0], w.storage)
	w.lives.check(w.T)
	for i, f := range w.informers {
		f.check(w.T, i, w.apis[i])
	}
	w.report(events)
}

// printShortest prints the shortest history of one object that is wrong.
func (w *world) printShortest(ops []porcupine.Operation) {
	var shortest []porcupine.Operation
	for _, part := range model.Partition(ops) {
		if porcupine.CheckOperations(model, part) {
			continue
		}
		for len(part) > 1 && !porcupine.CheckOperations(model, part[:len(part)-1]) {
			part = part[:len(part)-1] // what came later is not needed
		}
		if shortest == nil || len(part) < len(shortest) {
			shortest = part
		}
	}
	for _, op := range shortest {
		w.Logf("client %d, %v to %v: %s", op.ClientId, time.Duration(op.Call), time.Duration(op.Return), model.DescribeOperation(op.Input, op.Output))
	}
}

// checkVersions: the events have every acknowledged write, and a write that began after
// another was acknowledged has a higher version.
func (w *world) checkVersions(events []event) {
	w.Helper()
	seen := map[int64]string{}
	for _, e := range events {
		seen[e.Version] = e.Name
	}
	type write struct {
		call, back, version int64
	}
	var writes []write
	for _, op := range w.history.ops {
		in, out := op.Input.(request), op.Output.(outcome)
		if in.Verb == doGet || in.Verb == doDelete || out.Unknown || out.Code >= 300 {
			continue
		}
		if seen[out.Version] != in.Name {
			w.Errorf("%+v was acknowledged with version %d, and the events do not have it", in, out.Version)
		}
		writes = append(writes, write{op.Call, op.Return, out.Version})
	}
	byEnd := slices.Clone(writes)
	slices.SortFunc(byEnd, func(a, b write) int { return int(a.back - b.back) })
	slices.SortFunc(writes, func(a, b write) int { return int(a.call - b.call) })
	highest, next := int64(0), 0
	for _, x := range writes {
		for ; next < len(byEnd) && byEnd[next].back < x.call; next++ {
			highest = max(highest, byEnd[next].version)
		}
		if x.version <= highest {
			w.Errorf("a write got version %d after one with %d was acknowledged", x.version, highest)
		}
	}
}
