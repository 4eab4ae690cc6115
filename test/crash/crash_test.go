// Package crash_test kills the real server while clients write. Afterwards every
// acknowledged write is there, nothing is half-written, and the log has no gap.
package crash_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/exeunt/exeunt/test/harness"
)

const workers = 8

var killRounds = flag.Int("rounds", 3, "how often TestKill kills a server; TestKillRegistry does it twice as often")

// TestKill loops: many clients write, the test kills the process at a random moment,
// starts it again, and compares.
func TestKill(t *testing.T) {
	harness.Both(t, func(t *testing.T, s *harness.Server) {
		first := newest(t, s.HTTP())
		books := make([]*book, workers)
		var written atomic.Int64
		for i := range books {
			books[i] = &book{written: &written, worker: i, believed: map[string]belief{}, rng: rand.New(rand.NewPCG(uint64(i), 1))}
		}
		acknowledged, rounds := 0, *killRounds
		for round := range rounds {
			maps := client(t, s).CoreV1().ConfigMaps("default")
			stop := make(chan struct{})
			var group sync.WaitGroup
			for _, b := range books {
				group.Go(func() { b.write(t, maps, stop) })
			}
			// A random moment, at which each worker can have written something.
			enough := written.Load() + int64(workers+rand.IntN(50*(round+1)))
			harness.Until(t, "acknowledged writes", func() error {
				if n := written.Load(); n < enough {
					return fmt.Errorf("%d, want %d", n, enough)
				}
				return nil
			})
			s.Kill()
			close(stop)
			group.Wait()
			s.Start()
			h := s.HTTP()
			compare(t, h, books)
			for _, b := range books {
				acknowledged += b.acknowledged
				b.acknowledged = 0
			}
		}
		if acknowledged < rounds*workers {
			t.Fatalf("only %d writes were acknowledged: the test is void", acknowledged)
		}
		t.Logf("%d acknowledged writes over %d crashes", acknowledged, rounds)
		checkLog(t, s.HTTP(), first, books)
	})
}

// belief is what a worker knows about one of its objects: the value that was acknowledged
// last ("" if the object does not exist) and, if an answer was lost, the value that it may
// have instead.
type belief struct {
	value   string
	maybe   string
	unsure  bool
	version string // of the acknowledged value
}

// book is one worker. It alone writes its objects, so it knows their state.
type book struct {
	worker       int
	believed     map[string]belief
	versions     []string // of every acknowledged create and update
	acknowledged int
	written      *atomic.Int64 // by all workers
	counter      int
	rng          *rand.Rand
}

// write creates, updates and deletes until stop or until the server is gone.
func (b *book) write(t *testing.T, maps corev1client.ConfigMapInterface, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		name := fmt.Sprintf("w%d-%d", b.worker, b.rng.IntN(10))
		if err := b.writeOne(t, maps, name); err != nil {
			return // the server is gone; the belief records the lost answer
		}
	}
}

func (b *book) writeOne(t *testing.T, maps corev1client.ConfigMapInterface, name string) error {
	b.counter++
	value := fmt.Sprintf("%d-%d", b.worker, b.counter)
	// Two fields and a large one, so that a half-written object shows.
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": value, "z": value, "bulk": fmt.Sprintf("%2000s", value)}}
	now := b.believed[name]
	var got *corev1.ConfigMap
	var err error
	switch {
	case now.value == "":
		got, err = maps.Create(t.Context(), cm, metav1.CreateOptions{})
	case b.rng.IntN(3) == 0:
		value = ""
		err = maps.Delete(t.Context(), name, metav1.DeleteOptions{})
	default:
		got, err = maps.Update(t.Context(), cm, metav1.UpdateOptions{})
	}
	if status := apierrors.APIStatus(nil); asStatus(err, &status) && status.Status().Code < 500 {
		t.Errorf("worker %d: object %s, believed to be %q: %v", b.worker, name, now.value, err)
		return err
	}
	if err != nil {
		b.believed[name] = belief{value: now.value, maybe: value, unsure: true, version: now.version}
		return err
	}
	b.acknowledged++
	b.written.Add(1)
	next := belief{value: value}
	if got != nil {
		next.version = got.ResourceVersion
		b.versions = append(b.versions, got.ResourceVersion)
	}
	b.believed[name] = next
	return nil
}

func asStatus(err error, status *apierrors.APIStatus) bool {
	s, ok := err.(apierrors.APIStatus)
	*status = s
	return ok
}

// compare checks every belief against the server and resolves the uncertain ones.
func compare(t *testing.T, h *harness.HTTP, books []*book) {
	t.Helper()
	found := list(t, h)
	for _, b := range books {
		for name, believed := range b.believed {
			cm := found[name]
			delete(found, name)
			if cm.Data["a"] != cm.Data["z"] || cm.Name != "" && len(cm.Data["bulk"]) != 2000 {
				t.Errorf("%s is half-written: %v", name, cm.Data)
			}
			value := cm.Data["a"]
			switch {
			case value == believed.value && (value == "" || cm.ResourceVersion == believed.version):
			case believed.unsure && value == believed.maybe:
			default:
				t.Errorf("%s is %q at version %s; acknowledged was %q at %s (perhaps %q: %v)",
					name, value, cm.ResourceVersion, believed.value, believed.version, believed.maybe, believed.unsure)
			}
			b.believed[name] = belief{value: value, version: cm.ResourceVersion}
		}
	}
	for name := range found {
		if name != "kube-root-ca.crt" {
			t.Errorf("%s exists, and no client created it", name)
		}
	}
}

// checkLog reads the whole log since a version: every version appears once, in order,
// without a gap; it contains every acknowledged write, and the final state equals the
// list.
func checkLog(t *testing.T, h *harness.HTTP, first string, books []*book) {
	t.Helper()
	last := newest(t, h)
	seen, state := readLog(t, h, first, last)
	for _, b := range books {
		for _, version := range b.versions {
			if !seen[version] {
				t.Errorf("version %s was acknowledged and is not in the log", version)
			}
		}
	}
	found := list(t, h)
	for name, version := range state {
		if found[name].ResourceVersion != version {
			t.Errorf("the log leaves %s at version %s, the list at %q", name, version, found[name].ResourceVersion)
		}
		delete(found, name)
	}
	delete(found, "kube-root-ca.crt") // the server's own, older than the part of the log that was read
	for name := range found {
		t.Errorf("%s is listed and not in the log", name)
	}
}

// addressVersions returns the versions at which a start of the server replaced its own address:
// the other writes during the test.
func addressVersions(t *testing.T, h *harness.HTTP, first string) map[int64]bool {
	t.Helper()
	versions := map[int64]bool{}
	for _, path := range []string{"/apis/discovery.k8s.io/v1/endpointslices", "/api/v1/endpoints"} {
		for line := range strings.Lines(string(h.Get(t, path+"?watch=1&timeoutSeconds=1&resourceVersion="+first).Body)) {
			var event struct{ Object metav1.PartialObjectMetadata }
			if err := json.Unmarshal([]byte(line), &event); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			versions[number(t, event.Object.ResourceVersion)] = true
		}
	}
	return versions
}

// readLog watches from one version to another. It returns the versions that it received
// and the objects that remain, by name.
func readLog(t *testing.T, h *harness.HTTP, first, last string) (seen map[string]bool, state map[string]string) {
	t.Helper()
	addresses := addressVersions(t, h, first)
	stream := h.Watch(t, "/api/v1/configmaps?watch=1&resourceVersion="+first)
	seen, state = map[string]bool{}, map[string]string{}
	for due := number(t, first) + 1; due <= number(t, last); due++ {
		if addresses[due] {
			continue
		}
		e := stream.Next(t)
		version := unquote(e.Field("metadata.resourceVersion"))
		if number(t, version) != due {
			t.Fatalf("the next version in the log is %s, want %d: %v", version, due, e)
		}
		seen[version] = true
		name := unquote(e.Field("metadata.name"))
		_, exists := state[name]
		if exists == (e.Type == "ADDED") {
			t.Fatalf("version %s: %s of %s, which exists: %v", version, e.Type, name, exists)
		}
		if e.Type == "DELETED" {
			delete(state, name)
		} else {
			state[name] = version
		}
	}
	return seen, state
}

func list(t *testing.T, h *harness.HTTP) map[string]corev1.ConfigMap {
	t.Helper()
	var all corev1.ConfigMapList
	decode(t, h.Get(t, "/api/v1/configmaps").Body, &all)
	byName := map[string]corev1.ConfigMap{}
	for _, cm := range all.Items {
		if cm.Namespace != "kube-system" { // the server's own
			byName[cm.Name] = cm
		}
	}
	return byName
}

func client(t *testing.T, s *harness.Server) kubernetes.Interface {
	t.Helper()
	config := s.Config()
	config.Timeout = 20 * time.Second
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newest returns the server's newest revision, which every list carries.
func newest(t *testing.T, h *harness.HTTP) string {
	t.Helper()
	return unquote(h.Get(t, "/api/v1/configmaps?limit=1").Field("metadata.resourceVersion"))
}

func unquote(text string) string {
	if plain, err := strconv.Unquote(text); err == nil {
		return plain
	}
	return text
}

func number(t *testing.T, version string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		t.Fatalf("version %q: %v", version, err)
	}
	return n
}
