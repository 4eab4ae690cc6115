package controllers

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// kubelet acts for the kubelets of all nodes. It runs nothing.
type kubelet struct {
	client  kubernetes.Interface
	end     func(context.Context, *corev1.Pod)
	ending  map[types.UID]bool // owned by the informer's one handler
	running sync.WaitGroup
}

// RunKubelet reports every pod that has a node as running, and ends the pods that are
// being deleted, until ctx ends. end returns when a pod has ended; its context ends with
// the pod's grace period, and then the pod is removed in any case.
func RunKubelet(ctx context.Context, client kubernetes.Interface, end func(context.Context, *corev1.Pod)) error {
	k := &kubelet{client: client, end: end, ending: map[types.UID]bool{}}
	factory := informers.NewSharedInformerFactory(client, again)
	look := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
			k.look(ctx, pod)
		}
	}
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	k.running.Wait()
	return nil
}

func (k *kubelet) look(ctx context.Context, pod *corev1.Pod) {
	if pod.DeletionTimestamp == nil {
		delete(k.ending, pod.UID) // a restored pod has the uid of the one that ended
	}
	switch {
	case pod.DeletionTimestamp != nil && !k.ending[pod.UID]:
		k.ending[pod.UID] = true
		k.running.Go(func() { k.finish(ctx, pod) })
	case pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodPending:
		up := pod.DeepCopy()
		up.Status.Phase = corev1.PodRunning
		up.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		for _, c := range pod.Spec.Containers {
			up.Status.ContainerStatuses = append(up.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: c.Name, Image: c.Image, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			})
		}
		// If this fails, the next event for the pod retries it.
		_, _ = k.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, up, metav1.UpdateOptions{})
	}
}

// finish ends a pod within its grace period and deletes it with grace period 0, which
// reports that it has ended.
func (k *kubelet) finish(ctx context.Context, pod *corev1.Pod) {
	bounded, cancel := context.WithDeadline(ctx, pod.DeletionTimestamp.Time)
	k.end(bounded, pod)
	cancel()
	now := int64(0)
	for ctx.Err() == nil {
		err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // conflict: another pod has the name
			return
		}
		time.Sleep(again / 10)
	}
}
