package crash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// fleet has a client for each replica. If one replica does not answer, it sends the
// request to the next, so a request may be executed twice.
type fleet []kubernetes.Interface

// pause is the time between two requests while servers are down.
const pause = 10 * time.Millisecond

// try sends a request until a replica accepts or refuses it.
func (f fleet) try(ctx context.Context, request func(kubernetes.Interface) error) error {
	for i := rand.IntN(len(f)); ; i++ {
		err := request(f[i%len(f)])
		if err == nil || isRefusal(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, and the last answer was %w", ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

// isRefusal reports whether the server answered with a refusal.
func isRefusal(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	return ok && status.Status().Code >= 400 && status.Status().Code < 500 && status.Status().Code != 429
}

// tail watches all ConfigMaps, from replica to replica, always from the last version that
// it received. It records the events, and removes the test's finalizer from objects that
// are being deleted, as a controller does.
type tail struct {
	fleet fleet
	work  chan *corev1.ConfigMap

	mu       sync.Mutex           // guards all below
	version  int64                // of the last event
	alive    map[types.UID]string // names of objects added and not deleted
	deleted  map[types.UID]bool
	resumed  int
	problems []string
}

func newTail(f fleet, version int64) *tail {
	return &tail{fleet: f, work: make(chan *corev1.ConfigMap, 100_000), version: version, alive: map[types.UID]string{}, deleted: map[types.UID]bool{}}
}

// run follows until ctx ends.
func (l *tail) run(ctx context.Context) {
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case cm := <-l.work:
					l.release(ctx, cm)
				}
			}
		})
	}
	for i := 0; ctx.Err() == nil; i++ {
		l.mu.Lock()
		from := fmt.Sprint(l.version)
		l.mu.Unlock()
		w, err := l.fleet[i%len(l.fleet)].CoreV1().ConfigMaps("").Watch(ctx, metav1.ListOptions{ResourceVersion: from})
		if err != nil {
			if isRefusal(err) {
				l.complain("the watch from %s was refused: %v", from, err)
				break
			}
			time.Sleep(pause)
			continue
		}
		l.follow(ctx, w)
	}
	group.Wait()
}

func (l *tail) follow(ctx context.Context, w watch.Interface) {
	defer w.Stop()
	l.mu.Lock()
	l.resumed++
	l.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return
		case e, open := <-w.ResultChan():
			if !open {
				return
			}
			cm, ok := e.Object.(*corev1.ConfigMap)
			if !ok { // the connection broke in the middle of an event, or it is a refusal
				if status, refused := e.Object.(*metav1.Status); refused && status.Code == 410 {
					l.complain("the watch ended with %s", status.Message)
				}
				return
			}
			l.note(e.Type, cm)
		}
	}
}

// note records one event: versions increase, and each object is added once and deleted
// once.
func (l *tail) note(event watch.EventType, cm *corev1.ConfigMap) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var version int64
	if _, err := fmt.Sscan(cm.ResourceVersion, &version); err != nil || version <= l.version {
		l.complainLocked("%s of %s has version %s after %d", event, cm.Name, cm.ResourceVersion, l.version)
	}
	l.version = version
	if cm.Name == "kube-root-ca.crt" {
		return // the server's own, in every namespace: older than the watch
	}
	_, alive := l.alive[cm.UID]
	switch {
	case event == watch.Added && (alive || l.deleted[cm.UID]):
		l.complainLocked("%s was added twice", cm.Name)
	case event != watch.Added && !alive:
		l.complainLocked("%s was %s and is not there", cm.Name, event)
	case event == watch.Deleted:
		delete(l.alive, cm.UID)
		l.deleted[cm.UID] = true
	default:
		l.alive[cm.UID] = cm.Name
	}
	if event == watch.Modified && cm.DeletionTimestamp != nil && slices.Contains(cm.Finalizers, held) {
		l.work <- cm
	}
}

// release removes the finalizer, and retries until no replica shows it.
func (l *tail) release(ctx context.Context, seen *corev1.ConfigMap) {
	err := l.fleet.try(ctx, func(c kubernetes.Interface) error {
		maps := c.CoreV1().ConfigMaps(seen.Namespace)
		cm, err := maps.Get(ctx, seen.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && cm.UID != seen.UID {
			return nil
		}
		if err != nil {
			return err
		}
		cm.Finalizers = slices.DeleteFunc(cm.Finalizers, func(f string) bool { return f == held })
		_, err = maps.Update(ctx, cm, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if apierrors.IsConflict(err) {
			return fmt.Errorf("retry: %v", err)
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		l.complain("release %s: %v", seen.Name, err)
	}
}

func (l *tail) gone() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.deleted)
}

func (l *tail) complain(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.complainLocked(format, args...)
}

func (l *tail) complainLocked(format string, args ...any) {
	if len(l.problems) < 20 {
		l.problems = append(l.problems, fmt.Sprintf(format, args...))
	}
}
