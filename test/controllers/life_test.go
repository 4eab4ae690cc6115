package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/exeunt/exeunt/test/controllers"
	"github.com/exeunt/exeunt/test/harness"
)

// The numbers are those of the garbage collection proposal, "Life of a Deployment and its
// descendants". One step follows today's Kubernetes instead of the proposal: the
// ReplicaSet gets no orphan finalizer, which would orphan its pods.

const (
	namespace = "default"
	replicas  = 3
)

// life is a server with the two controllers, and the events of all their objects.
type life struct {
	*testing.T
	server *harness.Server
	http   *harness.HTTP
	client kubernetes.Interface

	mu     sync.Mutex
	events []event // guarded by mu
}

// event is what a watch delivered for any kind.
type event struct {
	kind, verb string
	version    int64
	object     metav1.Object
	observed   int64 // status.observedGeneration of a Deployment
}

func newLife(t *testing.T, s *harness.Server) *life {
	client, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	l := &life{T: t, server: s, http: s.HTTP(), client: client}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	running.Go(func() {
		if err := controllers.New(client).Run(ctx); err != nil {
			t.Errorf("controllers: %v", err)
		}
	})
	for kind, open := range map[string]func(context.Context, metav1.ListOptions) (watch.Interface, error){
		"Deployment": client.AppsV1().Deployments(namespace).Watch,
		"ReplicaSet": client.AppsV1().ReplicaSets(namespace).Watch,
		"Pod":        client.CoreV1().Pods(namespace).Watch,
	} {
		w, err := open(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { l.record(kind, w) })
		t.Cleanup(w.Stop)
	}
	return l
}

func (l *life) record(kind string, w watch.Interface) {
	for e := range w.ResultChan() {
		m, err := meta.Accessor(e.Object)
		if err != nil {
			continue
		}
		version, _ := strconv.ParseInt(m.GetResourceVersion(), 10, 64)
		recorded := event{kind: kind, verb: string(e.Type), version: version, object: m}
		if d, ok := e.Object.(*appsv1.Deployment); ok {
			recorded.observed = d.Status.ObservedGeneration
		}
		l.mu.Lock()
		l.events = append(l.events, recorded)
		l.mu.Unlock()
	}
}

// find waits for n events that match, and returns them.
func (l *life) find(step, kind, verb string, n int, match func(event) bool) []event {
	l.Helper()
	var found []event
	harness.Until(l, step, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		found = nil
		for _, e := range l.events {
			if e.kind == kind && e.verb == verb && (match == nil || match(e)) {
				found = append(found, e)
			}
		}
		if len(found) < n {
			return fmt.Errorf("%d events %s %s, want %d", len(found), kind, verb, n)
		}
		return nil
	})
	return found
}

// wantOwner checks the one reference of an object.
func (l *life) wantOwner(step string, obj, owner metav1.Object) {
	l.Helper()
	refs := obj.GetOwnerReferences()
	if len(refs) != 1 || refs[0].UID != owner.GetUID() || refs[0].BlockOwnerDeletion == nil || !*refs[0].BlockOwnerDeletion {
		l.Errorf("%s: %s has owners %v, want %s", step, obj.GetName(), refs, owner.GetName())
	}
}

// wantIdle checks that the collector has nothing to do.
func (l *life) wantIdle(step string) {
	l.Helper()
	harness.Until(l, step, func() error {
		if a := l.http.Get(l, "/exeunt/gc"); a.Field("depth") != "0" || a.Field("paused") != "false" {
			return fmt.Errorf("the collector says %s", a.Body)
		}
		return nil
	})
}

func (l *life) createDeployment(name string) *appsv1.Deployment {
	l.Helper()
	n, labels := int32(replicas), map[string]string{"app": "life"}
	d, err := l.client.AppsV1().Deployments(namespace).Create(context.Background(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		l.Fatal(err)
	}
	return d
}

// begin is steps 1 to 6.
func (l *life) begin() (d metav1.Object, rs metav1.Object, pods []event) {
	l.Helper()
	d = l.createDeployment("d1") // 1
	l.find("step 2", "Deployment", "ADDED", 1, nil)
	rs = l.find("step 3", "ReplicaSet", "ADDED", 1, nil)[0].object
	l.wantOwner("step 3", rs, d)
	pods = l.find("step 5", "Pod", "ADDED", replicas, nil)
	for _, p := range pods {
		l.wantOwner("step 5", p.object, rs)
	}
	l.find("the controller has seen the deployment", "Deployment", "MODIFIED", 1, func(e event) bool { return e.observed == 1 })
	l.wantIdle("steps 4 and 6") // all owners exist, so nothing is under review
	return d, rs, pods
}

func (l *life) deleteDeployment(name string, orphan bool) {
	l.Helper()
	err := l.client.AppsV1().Deployments(namespace).Delete(context.Background(), name, metav1.DeleteOptions{OrphanDependents: &orphan})
	if err != nil {
		l.Fatal(err)
	}
}

func TestCascade(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		l := newLife(t, s)
		l.begin()
		l.deleteDeployment("d1", false) // 7: it goes at once
		_, err := l.client.AppsV1().Deployments(namespace).Get(context.Background(), "d1", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			l.Errorf("step 7: the deployment is still there: %v", err)
		}
		d := l.find("step 9", "Deployment", "DELETED", 1, nil)[0]
		if f := d.object.GetFinalizers(); len(f) != 0 {
			l.Errorf("step 8: the deployment had finalizers %v", f)
		}
		rs := l.find("steps 10 and 11", "ReplicaSet", "DELETED", 1, nil)[0]
		pods := l.find("steps 12 to 14", "Pod", "DELETED", replicas, nil)
		if rs.version <= d.version {
			l.Errorf("step 9: the replica set went at %d, its owner at %d", rs.version, d.version)
		}
		for _, p := range pods {
			if p.version <= rs.version {
				l.Errorf("step 12: a pod went at %d, its owner at %d", p.version, rs.version)
			}
		}
		l.wantIdle("the end")
		left, err := l.client.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{})
		if err != nil || len(left.Items) != 0 {
			l.Errorf("step 14: %d pods are left, %v", len(left.Items), err)
		}
	})
}

func TestOrphan(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		l := newLife(t, s)
		d, rs, pods := l.begin()
		l.deleteDeployment("d1", true) // 7

		marked := l.find("step 8", "Deployment", "MODIFIED", 1, func(e event) bool { return e.object.GetDeletionTimestamp() != nil })[0]
		m := marked.object
		if m.GetGeneration() != d.GetGeneration()+1 || !slices.Contains(m.GetFinalizers(), metav1.FinalizerOrphanDependents) ||
			m.GetDeletionGracePeriodSeconds() == nil || *m.GetDeletionGracePeriodSeconds() != 0 {
			l.Errorf("step 8: the deployment is %+v", m)
		}
		seen := l.find("step 9", "Deployment", "MODIFIED", 1, func(e event) bool { return e.observed == d.GetGeneration()+1 })[0]
		freed := l.find("step 10", "ReplicaSet", "MODIFIED", 1, func(e event) bool { return len(e.object.GetOwnerReferences()) == 0 })[0]
		gone := l.find("step 11", "Deployment", "DELETED", 1, nil)[0]
		if !(marked.version < seen.version && seen.version < freed.version && freed.version < gone.version) {
			l.Errorf("steps 8 to 11: marked at %d, seen at %d, let go at %d, gone at %d", marked.version, seen.version, freed.version, gone.version)
		}
		l.wantIdle("steps 12 and 13")
		l.wantSame("step 13", rs, pods, nil)

		// The orphans are adopted by a new owner.
		d2 := l.createDeployment("d2")
		harness.Until(l, "adoption", func() error {
			got, err := l.client.AppsV1().ReplicaSets(namespace).Get(context.Background(), rs.GetName(), metav1.GetOptions{})
			if err == nil && !metav1.IsControlledBy(got, d2) {
				err = errors.New("not adopted yet")
			}
			return err
		})
		l.wantIdle("after the adoption")
		l.wantSame("after the adoption", rs, pods, d2)
	})
}

// wantSame checks that the replica set and its pods are the same objects as before,
// without others, and who owns the replica set.
func (l *life) wantSame(step string, rs metav1.Object, pods []event, owner metav1.Object) {
	l.Helper()
	sets, err := l.client.AppsV1().ReplicaSets(namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		l.Fatal(err)
	}
	if len(sets.Items) != 1 || sets.Items[0].UID != rs.GetUID() || sets.Items[0].DeletionTimestamp != nil {
		l.Fatalf("%s: replica sets %+v", step, sets.Items)
	}
	if owner != nil {
		l.wantOwner(step, &sets.Items[0], owner)
	} else if refs := sets.Items[0].OwnerReferences; len(refs) != 0 {
		l.Errorf("%s: the replica set has owners %v", step, refs)
	}
	left, err := l.client.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		l.Fatal(err)
	}
	var got, want []string
	for i := range left.Items {
		got = append(got, string(left.Items[i].UID))
		l.wantOwner(step, &left.Items[i], rs)
	}
	for _, p := range pods {
		want = append(want, string(p.object.GetUID()))
	}
	slices.Sort(got)
	slices.Sort(want)
	if strings.Join(got, " ") != strings.Join(want, " ") {
		l.Errorf("%s: pods %v, want %v", step, got, want)
	}
}
