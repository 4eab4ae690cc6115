package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/exeunt/exeunt/kind/builtin"
)

var budgets = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")

const (
	// maxDisrupted is how many evictions of one budget may wait until the controller
	// has seen them.
	maxDisrupted = 2000
	// evictAgainAfter is what a client should wait, in seconds, while the controller
	// has not seen the newest budget.
	evictAgainAfter = 10
)

// evictions serves pods/eviction: a delete that a disruption budget may refuse.
//
// A budget is exact because each eviction takes one disruption from the budget's status
// with a compare-and-swap, and only then deletes: of two evictions that read the same
// status, one takes and the other reads again. A server that stops between the two steps
// has taken one too many, never one too few; the controller gives it back when the pod's
// entry in disruptedPods expires.
type evictions struct{ pods *resource }

func (e *evictions) New() runtime.Object { return &policyv1.Eviction{} }

func (e *evictions) Destroy() {}

func (e *evictions) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if err := admitted(ctx, obj, validate); err != nil {
		return nil, err
	}
	eviction, ok := obj.(*policyv1.Eviction)
	if !ok {
		return nil, e.pods.internalError(fmt.Errorf("got a %T", obj))
	}
	if eviction.Name != name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	how := eviction.DeleteOptions
	if how == nil {
		how = &metav1.DeleteOptions{}
	}
	if len(how.DryRun) == 0 {
		how.DryRun = options.DryRun
	} else if len(options.DryRun) > 0 && !slices.Equal(options.DryRun, how.DryRun) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("Non-matching dry-run options in request and content: %v and %v", options.DryRun, how.DryRun))
	}
	for {
		again, err := e.evict(ctx, name, *how)
		if again && ctx.Err() == nil {
			continue // the pod changed since it was read
		}
		if err != nil {
			return nil, err
		}
		return &metav1.Status{Status: metav1.StatusSuccess}, nil
	}
}

// evict reads the pod, asks its budget, and deletes the pod. It returns again if the pod
// changed after a decision that depends on its state, unless the client named a version.
func (e *evictions) evict(ctx context.Context, name string, how metav1.DeleteOptions) (again bool, err error) {
	obj, err := e.pods.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	pod := obj.(*corev1.Pod)
	named := how.Preconditions != nil && how.Preconditions.ResourceVersion != nil
	free, err := e.take(ctx, pod, dryrun.IsDryRun(how.DryRun))
	if err != nil {
		return false, err
	}
	if free && !named {
		// The pod costs nothing because of the state that was read: only that state
		// may be deleted.
		p := metav1.Preconditions{}
		if how.Preconditions != nil {
			p = *how.Preconditions
		}
		p.ResourceVersion, how.Preconditions = &pod.ResourceVersion, &p
	}
	err = e.remove(ctx, name, &how)
	return free && !named && apierrors.IsConflict(err), err
}

// take asks the budget of a pod and takes one disruption. It returns free if the pod
// needs none: it has ended, it does not run yet, or it is not healthy.
func (e *evictions) take(ctx context.Context, pod *corev1.Pod, dryRun bool) (free bool, err error) {
	if phase := pod.Status.Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed || pod.DeletionTimestamp != nil {
		return false, nil // nothing can make it healthy again
	} else if phase == corev1.PodPending {
		return true, nil
	}
	budget, err := e.budgetOf(ctx, pod)
	if err != nil || budget == nil {
		return false, err
	}
	if !isReady(pod) {
		always := budget.Spec.UnhealthyPodEvictionPolicy != nil && *budget.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow
		if always || budget.Status.DesiredHealthy > 0 && budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy {
			return true, nil
		}
	}
	v, _ := e.pods.api.Kinds.Snapshot().Lookup(budgets)
	r := e.pods.api.newResource(v, v.Status)
	info := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, live runtime.Object) (runtime.Object, error) {
		b := live.(*policyv1.PodDisruptionBudget).DeepCopy()
		if err := refuseDisruption(b); err != nil {
			return nil, err
		}
		b.Status.DisruptionsAllowed--
		if b.Status.DisruptedPods == nil {
			b.Status.DisruptedPods = map[string]metav1.Time{}
		}
		b.Status.DisruptedPods[pod.Name] = metav1.NewTime(e.pods.api.Now())
		return b, nil
	})
	_, _, err = r.update(ctx, r.key(ctx, budget.Name), updating{UpdatedObjectInfo: info, dryRun: dryRun})
	return false, err
}

// budgetOf finds the one budget that selects the pod, or nil.
func (e *evictions) budgetOf(ctx context.Context, pod *corev1.Pod) (*policyv1.PodDisruptionBudget, error) {
	v, ok := e.pods.api.Kinds.Snapshot().Lookup(budgets)
	if !ok {
		return nil, nil
	}
	r := e.pods.api.newResource(v, v.Strategy)
	all, err := r.list(ctx, &metainternal.ListOptions{})
	if err != nil {
		return nil, err
	}
	var found *policyv1.PodDisruptionBudget
	for _, o := range all.objects {
		obj, err := r.decode(o)
		if err != nil {
			return nil, err
		}
		b := obj.(*policyv1.PodDisruptionBudget)
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if found != nil {
			return nil, twoBudgets()
		}
		found = b
	}
	return found, nil
}

// twoBudgets is the Status of Kubernetes for a pod that two budgets select: 500, and no reason.
func twoBudgets() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
		Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
	}}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// refuseDisruption says why a budget allows no disruption now, or nil.
func refuseDisruption(b *policyv1.PodDisruptionBudget) error {
	because := func(err *apierrors.StatusError, text string) error {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: text})
		return err
	}
	const violates = "Cannot evict pod as it would violate the pod's disruption budget."
	status, gr := b.Status, schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudget"}
	condition := meta.FindStatusCondition(status.Conditions, policyv1.DisruptionAllowedCondition)
	failed := condition != nil && condition.Status == metav1.ConditionFalse && condition.Message != ""
	switch {
	case status.ObservedGeneration < b.Generation:
		return because(apierrors.NewTooManyRequests(violates, evictAgainAfter), fmt.Sprintf("The disruption budget %s is still being processed by the server.", b.Name))
	case status.DisruptionsAllowed < 0:
		return because(apierrors.NewForbidden(gr, b.Name, errors.New("pdb disruptions allowed is negative")),
			fmt.Sprintf("The disruption budget %s does not allow evicting pods currently: pdb disruptions allowed is negative", b.Name))
	case len(status.DisruptedPods) > maxDisrupted:
		return because(apierrors.NewForbidden(gr, b.Name, errors.New("DisruptedPods map too big - too many evictions not confirmed by PDB controller")),
			fmt.Sprintf("The disruption budget %s does not allow evicting pods currently: too many pending evictions not confirmed by PDB controller", b.Name))
	case status.DisruptionsAllowed > 0:
		return nil
	case failed && condition.Reason == policyv1.SyncFailedReason:
		return because(apierrors.NewTooManyRequests(violates, 0), fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %s", b.Name, condition.Message))
	case status.CurrentHealthy <= status.DesiredHealthy:
		return because(apierrors.NewTooManyRequests(violates, 0), fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, status.DesiredHealthy, status.CurrentHealthy))
	case failed:
		return because(apierrors.NewTooManyRequests(violates, 0), fmt.Sprintf("The disruption budget %s does not allow evicting pods currently (%s): %s", b.Name, condition.Reason, condition.Message))
	}
	return because(apierrors.NewTooManyRequests(violates, 0), fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", b.Name))
}

// remove marks the pod as evicted, for controllers, and deletes it.
func (e *evictions) remove(ctx context.Context, name string, how *metav1.DeleteOptions) error {
	if dryrun.IsDryRun(how.DryRun) {
		_, _, err := e.pods.Delete(ctx, name, nil, how)
		return err
	}
	pods := *e.pods
	pods.strategy = builtin.PodBindingStrategy()
	info := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, live runtime.Object) (runtime.Object, error) {
		pod := live.(*corev1.Pod).DeepCopy()
		if p := how.Preconditions; p != nil {
			if err := checkUID(p, pod.UID); err != nil {
				return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, err)
			}
			if v := p.ResourceVersion; v != nil && *v != pod.ResourceVersion {
				return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *v, pod.ResourceVersion))
			}
		}
		podutil.UpdatePodCondition(&pod.Status, &corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
		})
		return pod, nil
	})
	w, _, err := pods.update(ctx, pods.key(ctx, name), updating{UpdatedObjectInfo: info})
	if err != nil {
		return err
	}
	if how.Preconditions != nil && how.Preconditions.ResourceVersion != nil {
		version := w.stored.ResourceVersion()
		how.Preconditions.ResourceVersion = &version
	}
	_, _, err = e.pods.Delete(ctx, name, nil, how)
	return err
}
