// Package controllers has a minimal Deployment and ReplicaSet controller. They do what
// matters to a garbage collector: they own what they create, adopt what matches and has no
// owner, and report observedGeneration, also for an object that is being deleted.
//
// There are no rollouts: a Deployment has one ReplicaSet. Pods run nothing; RunKubelet
// ends pods with their grace period, and RunApps implements the kind that examples/shop
// defines.
package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// key names an object to reconcile.
type key struct{ kind, namespace, name string }

const (
	deployments = "deployments"
	replicaSets = "replicasets"
)

// Controllers are both controllers, with one queue and one worker.
type Controllers struct {
	client  kubernetes.Interface
	queue   workqueue.TypedRateLimitingInterface[key]
	factory informers.SharedInformerFactory
}

// New returns controllers that have not started.
func New(client kubernetes.Interface) *Controllers {
	return &Controllers{
		client:  client,
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](5*time.Millisecond, time.Second)),
		factory: informers.NewSharedInformerFactory(client, 0),
	}
}

// Run works until ctx ends.
func (c *Controllers) Run(ctx context.Context) error {
	watched := map[string]cache.SharedIndexInformer{
		deployments: c.factory.Apps().V1().Deployments().Informer(),
		replicaSets: c.factory.Apps().V1().ReplicaSets().Informer(),
		"pods":      c.factory.Core().V1().Pods().Informer(),
	}
	for kind, informer := range watched {
		look := func(obj any) { c.look(kind, obj) }
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }, DeleteFunc: look,
		})
		if err != nil {
			return err
		}
	}
	c.factory.Start(ctx.Done())
	defer c.factory.Shutdown()
	for _, informer := range watched {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return errors.New("the caches did not fill")
		}
	}
	go func() {
		<-ctx.Done()
		c.queue.ShutDown()
	}()
	for c.work(ctx) {
	}
	return nil
}

// look queues the objects that an event can affect: the object, its controller, and every
// object that could adopt it.
func (c *Controllers) look(kind string, obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return
	}
	parent := map[string]string{replicaSets: deployments, "pods": replicaSets}[kind]
	switch owner := metav1.GetControllerOf(m); {
	case parent == "":
	case owner != nil:
		c.queue.Add(key{parent, m.GetNamespace(), owner.Name})
	default:
		c.lookForParents(parent, m.GetNamespace())
	}
	if kind != "pods" {
		c.queue.Add(key{kind, m.GetNamespace(), m.GetName()})
	}
}

func (c *Controllers) lookForParents(kind, namespace string) {
	store := c.factory.Apps().V1().Deployments().Informer().GetStore()
	if kind == replicaSets {
		store = c.factory.Apps().V1().ReplicaSets().Informer().GetStore()
	}
	for _, obj := range store.List() {
		if m, err := meta.Accessor(obj); err == nil && m.GetNamespace() == namespace {
			c.queue.Add(key{kind, namespace, m.GetName()})
		}
	}
}

func (c *Controllers) work(ctx context.Context) bool {
	k, quit := c.queue.Get()
	if quit {
		return false
	}
	defer c.queue.Done(k)
	sync := c.syncDeployment
	if k.kind == replicaSets {
		sync = c.syncReplicaSet
	}
	err := sync(ctx, k.namespace, k.name)
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		c.queue.AddRateLimited(k)
		return true
	}
	c.queue.Forget(k)
	return true
}

func (c *Controllers) syncDeployment(ctx context.Context, namespace, name string) error {
	api := c.client.AppsV1()
	d, err := api.Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	owned := int32(0)
	if d.DeletionTimestamp == nil { // an object that is being deleted creates and adopts nothing
		selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
		if err != nil {
			return err
		}
		sets, err := api.ReplicaSets(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
		if err != nil {
			return err
		}
		for i := range sets.Items {
			rs := &sets.Items[i]
			mine, adopt := claims(d, appsv1.SchemeGroupVersion.WithKind("Deployment"), rs)
			if adopt {
				if _, err := api.ReplicaSets(namespace).Update(ctx, rs, metav1.UpdateOptions{}); err != nil {
					return fmt.Errorf("adopt %s: %w", rs.Name, err)
				}
			}
			if mine {
				owned++
			}
		}
		if owned == 0 {
			now, err := api.Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil || !stays(d, now) {
				return err
			}
			if err := c.createReplicaSet(ctx, d); err != nil {
				return err
			}
		}
	}
	if d.Status.ObservedGeneration == d.Generation {
		return nil
	}
	d.Status.ObservedGeneration = d.Generation
	_, err = api.Deployments(namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
	return err
}

// stays reports whether an owner, read again after a part of it was found missing, should
// still have that part. A cascade removes the parts after the owner was deleted or marked.
// A controller that reads the owner first and the parts later finds them missing, and
// would create them for an owner that is gone.
func stays(owner, now metav1.Object) bool {
	return now.GetUID() == owner.GetUID() && now.GetDeletionTimestamp() == nil
}

// claims reports whether an object belongs to an owner. An object without a controller gets
// this one as its controller (adopt), and must be written.
func claims(owner metav1.Object, kind schema.GroupVersionKind, obj metav1.Object) (mine, adopt bool) {
	if obj.GetDeletionTimestamp() != nil {
		return false, false
	}
	if c := metav1.GetControllerOf(obj); c != nil {
		return c.UID == owner.GetUID(), false
	}
	obj.SetOwnerReferences(append(obj.GetOwnerReferences(), *metav1.NewControllerRef(owner, kind)))
	return true, true
}

func (c *Controllers) createReplicaSet(ctx context.Context, d *appsv1.Deployment) error {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: d.Name + "-1", Namespace: d.Namespace, Labels: d.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector, Template: d.Spec.Template},
	}
	_, err := c.client.AppsV1().ReplicaSets(d.Namespace).Create(ctx, rs, metav1.CreateOptions{})
	return err
}

func (c *Controllers) syncReplicaSet(ctx context.Context, namespace, name string) error {
	rs, err := c.client.AppsV1().ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	owned := int32(0)
	if rs.DeletionTimestamp == nil {
		if owned, err = c.fillReplicaSet(ctx, rs); err != nil {
			return err
		}
	}
	if rs.Status.ObservedGeneration == rs.Generation && rs.Status.Replicas == owned {
		return nil
	}
	rs.Status.ObservedGeneration, rs.Status.Replicas = rs.Generation, owned
	_, err = c.client.AppsV1().ReplicaSets(namespace).UpdateStatus(ctx, rs, metav1.UpdateOptions{})
	return err
}

// fillReplicaSet adopts matching pods and creates the missing ones.
func (c *Controllers) fillReplicaSet(ctx context.Context, rs *appsv1.ReplicaSet) (owned int32, err error) {
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil {
		return 0, err
	}
	api := c.client.CoreV1().Pods(rs.Namespace)
	pods, err := api.List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return 0, err
	}
	kind := appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	for i := range pods.Items {
		mine, adopt := claims(rs, kind, &pods.Items[i])
		if adopt {
			if _, err := api.Update(ctx, &pods.Items[i], metav1.UpdateOptions{}); err != nil {
				return owned, fmt.Errorf("adopt %s: %w", pods.Items[i].Name, err)
			}
		}
		if mine {
			owned++
		}
	}
	if owned < *rs.Spec.Replicas {
		now, err := c.client.AppsV1().ReplicaSets(rs.Namespace).Get(ctx, rs.Name, metav1.GetOptions{})
		if err != nil || !stays(rs, now) {
			return owned, err
		}
	}
	for ; owned < *rs.Spec.Replicas; owned++ {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				GenerateName: rs.Name + "-", Namespace: rs.Namespace, Labels: rs.Spec.Template.Labels,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, kind)},
			},
			Spec: rs.Spec.Template.Spec,
		}
		if _, err := api.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return owned, err
		}
	}
	return owned, nil
}
