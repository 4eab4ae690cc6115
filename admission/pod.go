package admission

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"

	"github.com/exeunt/exeunt/kind/builtin"
)

// podPlugin completes new pods as Kubernetes' plugins ServiceAccount, Priority and
// DefaultTolerationSeconds do. It runs before the webhooks, which see its result.
type podPlugin struct {
	*admission.Handler // waits until the informers have read accounts and classes
	client             kubernetes.Interface
	accounts           corelisters.ServiceAccountLister
	classes            schedulinglisters.PriorityClassLister
}

func newPodPlugin(client kubernetes.Interface, f informers.SharedInformerFactory) podPlugin {
	accounts, classes := f.Core().V1().ServiceAccounts(), f.Scheduling().V1().PriorityClasses()
	p := podPlugin{admission.NewHandler(admission.Create), client, accounts.Lister(), classes.Lister()}
	p.SetReadyFunc(func() bool { return accounts.Informer().HasSynced() && classes.Informer().HasSynced() })
	return p
}

func (p *podPlugin) admit(ctx context.Context, a admission.Attributes) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetOperation() != admission.Create || a.GetSubresource() != "" {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	if err := p.complete(ctx, a.GetNamespace(), pod); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// CompletePod completes a new pod that no plugin sees. Its error is a reason to forbid the
// pod.
func (c *Chain) CompletePod(ctx context.Context, namespace string, pod *corev1.Pod) error {
	return c.pods.complete(ctx, namespace, pod)
}

func (p *podPlugin) complete(ctx context.Context, namespace string, pod *corev1.Pod) error {
	builtin.TolerateNodes(&pod.Spec)
	class, err := p.class(pod.Spec.PriorityClassName)
	if err != nil {
		return err
	}
	if err := builtin.Prioritize(&pod.Spec, class); err != nil {
		return err
	}
	if builtin.IsMirror(pod) {
		return nil
	}
	account, err := p.account(ctx, namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return err
	}
	builtin.UseAccount(pod, account, rand.String(5))
	return nil
}

// class returns the named class, or the default one. With two defaults the lower one counts.
func (p *podPlugin) class(name string) (*schedulingv1.PriorityClass, error) {
	if name != "" {
		class, err := p.classes.Get(name)
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("no PriorityClass with name %v was found", name)
		}
		return class, err
	}
	all, err := p.classes.List(labels.Everything())
	var found *schedulingv1.PriorityClass
	for _, class := range all {
		if class.GlobalDefault && (found == nil || class.Value < found.Value) {
			found = class
		}
	}
	return found, err
}

// account returns the service account of a pod. A namespace gets its account "default"
// right after it is created, with no settings, so a missing one is that one. In a
// namespace that is missing or terminating the store refuses the pod.
func (p *podPlugin) account(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	if name == "" {
		name = "default"
	}
	account, err := p.accounts.ServiceAccounts(namespace).Get(name)
	if err == nil {
		return account, nil
	}
	if name == "default" {
		return &corev1.ServiceAccount{}, nil
	}
	// It may have been created a moment ago.
	account, err = p.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return account, err
	}
	ns, nsErr := p.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(nsErr) || nsErr == nil && ns.DeletionTimestamp != nil {
		return &corev1.ServiceAccount{}, nil
	}
	return nil, fmt.Errorf("error looking up service account %s/%s: serviceaccount %q not found", namespace, name, name)
}
