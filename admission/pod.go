package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/object"
)

// podPlugin completes new pods as Kubernetes' plugins ServiceAccount, Priority and
// DefaultTolerationSeconds do, and new nodes as TaintNodesByCondition. It runs before the webhooks, which see its result.
type podPlugin struct {
	*admission.Handler // waits until the informers have read accounts and classes
	get                Getter
	accounts           corelisters.ServiceAccountLister
	classes            schedulinglisters.PriorityClassLister
	noAccounts         bool
}

// Getter reads an object from the store. Error: NotFound. A request to this server's own API
// would wait for a free place among the requests in flight, while the client's request keeps one.
type Getter func(context.Context, object.Key) (object.Object, error)

func newPodPlugin(c Config, f informers.SharedInformerFactory) podPlugin {
	accounts, classes := f.Core().V1().ServiceAccounts(), f.Scheduling().V1().PriorityClasses()
	p := podPlugin{admission.NewHandler(admission.Create), c.Get, accounts.Lister(), classes.Lister(), c.NoAccounts}
	p.SetReadyFunc(func() bool { return accounts.Informer().HasSynced() && classes.Informer().HasSynced() })
	return p
}

func (p *podPlugin) admit(ctx context.Context, a admission.Attributes) error {
	if a.GetOperation() != admission.Create || a.GetSubresource() != "" || kind.IsRestoring(ctx) {
		return nil // a restored pod is complete, and its service account may come back after it
	}
	if a.GetResource().GroupResource() == podResource && !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	if err := p.complete(ctx, a.GetNamespace(), a.GetObject()); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// Complete completes a new object that no plugin sees. Its error is a reason to forbid it.
func (c *Chain) Complete(ctx context.Context, namespace string, obj runtime.Object) error {
	return c.pods.complete(ctx, namespace, obj)
}

// notReady is the taint of a new node, until its controller finds it ready.
var notReady = corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}

func (p *podPlugin) complete(ctx context.Context, namespace string, obj runtime.Object) error {
	switch obj := obj.(type) {
	case *corev1.Pod:
		return p.completePod(ctx, namespace, obj)
	case *corev1.Node:
		if !slices.ContainsFunc(obj.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&notReady) }) {
			obj.Spec.Taints = append(obj.Spec.Taints, notReady)
		}
	}
	return nil
}

func (p *podPlugin) completePod(ctx context.Context, namespace string, pod *corev1.Pod) error {
	builtin.TolerateNodes(&pod.Spec)
	class, err := p.class(pod.Spec.PriorityClassName)
	if err != nil {
		return err
	}
	if err := builtin.Prioritize(&pod.Spec, class); err != nil {
		return err
	}
	if p.noAccounts || builtin.IsMirror(pod) {
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
	name = cmp.Or(name, "default")
	account, err := p.accounts.ServiceAccounts(namespace).Get(name)
	if err == nil {
		return account, nil
	}
	if name == "default" {
		return &corev1.ServiceAccount{}, nil
	}
	// It may have been created a moment ago.
	o, err := p.get(ctx, object.Key{Kind: "serviceaccounts", Namespace: namespace, Name: name})
	if err == nil {
		account = &corev1.ServiceAccount{}
		return account, object.DecodeInto(o.Body, o.ResourceVersion(), corev1.SchemeGroupVersion.WithKind("ServiceAccount"), account)
	}
	if !object.Is(err, object.NotFound) {
		return nil, err
	}
	if gone, err := p.ends(ctx, namespace); gone || err != nil {
		return &corev1.ServiceAccount{}, err
	}
	return nil, fmt.Errorf("error looking up service account %s/%s: serviceaccount %q not found", namespace, name, name)
}

// ends reports whether a namespace is missing or terminates.
func (p *podPlugin) ends(ctx context.Context, namespace string) (bool, error) {
	o, err := p.get(ctx, object.Key{Kind: object.Namespaces, Name: namespace})
	if err != nil {
		return object.Is(err, object.NotFound), ignoreNotFound(err)
	}
	m, err := object.ParseMeta(o.Body)
	return m.DeletionTimestamp != nil, err
}

func ignoreNotFound(err error) error {
	if object.Is(err, object.NotFound) {
		return nil
	}
	return err
}

var classResource = schedulingv1.Resource("priorityclasses")

// validateClass refuses a second default PriorityClass, as Kubernetes does. Of two that are
// created in the same moment both may pass, as in Kubernetes: then the lower one counts.
func (p *podPlugin) validateClass(a admission.Attributes) error {
	class, ok := a.GetObject().(*schedulingv1.PriorityClass)
	if !ok || !class.GlobalDefault || a.GetSubresource() != "" || a.GetOperation() != admission.Create && a.GetOperation() != admission.Update {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	other, err := p.class("")
	if err != nil {
		return err
	}
	if other != nil && (a.GetOperation() == admission.Create || other.Name != class.Name) {
		return admission.NewForbidden(a, fmt.Errorf("PriorityClass %v is already marked as default. Only one default can exist", other.Name))
	}
	return nil
}
