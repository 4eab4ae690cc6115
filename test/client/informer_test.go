package client_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/exeunt/exeunt/test/harness"
)

// journal records the events that an informer delivers.
type journal struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

// add leaves out the ConfigMap that the server writes into every namespace.
func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if line := fmt.Sprintf(format, args...); !strings.Contains(line, "kube-root-ca.crt") {
		j.lines = append(j.lines, line)
	}
}

func (j *journal) read() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.lines...)
}

func (j *journal) OnAdd(obj any, _ bool) { j.add("add %s", state(obj)) }
func (j *journal) OnUpdate(old, obj any) { j.add("update %s to %s", state(old), state(obj)) }
func (j *journal) OnDelete(obj any)      { j.add("delete %s", state(obj)) }

func state(obj any) string {
	cm, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return fmt.Sprintf("%T", obj)
	}
	return cm.Name + "=" + cm.Data["n"]
}

// TestInformerSurvivesRestarts: an informer with its defaults (a streaming initial list)
// continues after the server restarts and after it crashes: it delivers each change once,
// in order.
func TestInformerSurvivesRestarts(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		client := typed(t, s.Config())
		maps := client.CoreV1().ConfigMaps("default")
		var want []string
		write := func(n int) {
			t.Helper()
			name := fmt.Sprint("cm-", n)
			_, err := maps.Create(t.Context(), configMap(name, map[string]string{"n": "1"}), metav1.CreateOptions{})
			check(t, err)
			_, err = maps.Update(t.Context(), configMap(name, map[string]string{"n": "2"}), metav1.UpdateOptions{})
			check(t, err)
			want = append(want, "add "+name+"=1", "update "+name+"=1 to "+name+"=2")
			if n > 0 {
				old := fmt.Sprint("cm-", n-1)
				check(t, maps.Delete(t.Context(), old, metav1.DeleteOptions{}))
				want = append(want, "delete "+old+"=2")
			}
		}
		var got journal
		factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace("default"))
		informer := factory.Core().V1().ConfigMaps().Informer()
		_, err := informer.AddEventHandler(&got)
		check(t, err)
		factory.Start(t.Context().Done())
		if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
			t.Fatal("the informer never synced")
		}
		agree := func(when string) {
			t.Helper()
			harness.Until(t, "the informer "+when, func() error {
				if lines := got.read(); fmt.Sprint(lines) != fmt.Sprint(want) {
					return fmt.Errorf("got\n%q, want\n%q", lines, want)
				}
				return nil
			})
		}
		write(0)
		agree("before any restart")
		s.Restart()
		write(1)
		agree("after a restart")
		write(2)
		s.Kill() // perhaps before the informer received the last writes
		s.Start()
		write(3)
		agree("after a crash")
	})
}

// TestLeaderElection: of two candidates one leads; when it steps down, the other one
// leads.
func TestLeaderElection(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		client := typed(t, s.Config())
		leading := make(chan string, 2)
		one, stopOne := context.WithCancel(t.Context())
		defer stopOne()
		campaign(t, one, client, "one", leading)
		if who := next(t, leading); who != "one" {
			t.Fatalf("%s leads, want one", who)
		}
		two, stopTwo := context.WithCancel(t.Context())
		defer stopTwo()
		campaign(t, two, client, "two", leading)
		lease, err := client.CoordinationV1().Leases("default").Get(t.Context(), "chair", metav1.GetOptions{})
		check(t, err)
		if *lease.Spec.HolderIdentity != "one" {
			t.Fatalf("the lease is held by %s, want one", *lease.Spec.HolderIdentity)
		}
		stopOne()
		if who := next(t, leading); who != "two" {
			t.Fatalf("%s leads, want two", who)
		}
	})
}

func campaign(t *testing.T, ctx context.Context, client kubernetes.Interface, name string, leading chan<- string) {
	t.Helper()
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "default", "chair",
		client.CoreV1(), client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: name})
	check(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, ReleaseOnCancel: true, Name: name,
			LeaseDuration: 4 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: 200 * time.Millisecond,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { leading <- name },
				OnStoppedLeading: func() {},
			},
		})
	}()
	t.Cleanup(func() { <-done })
}

func next(t *testing.T, leading <-chan string) string {
	t.Helper()
	select {
	case who := <-leading:
		return who
	case <-time.After(harness.Patience):
		t.Fatalf("no leader after %v", harness.Patience)
		return ""
	}
}
