package admission

import (
	"context"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	coreinformers "k8s.io/client-go/informers/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	podsecurity "k8s.io/pod-security-admission/admission"
)

// builtinRules says which requests need the plugins that every server has: LimitRanger and
// PodSecurity. Its informers are the indexes of those plugins.
type builtinRules struct {
	ranges     cache.Indexer // LimitRanges, by namespace
	namespaces listers.NamespaceLister
	synced     cache.InformerSynced
}

func newBuiltin(f informers.SharedInformerFactory) builtinRules {
	ranges, namespaces := f.Core().V1().LimitRanges(), f.Core().V1().Namespaces()
	accounts, classes := f.Core().V1().ServiceAccounts(), f.Scheduling().V1().PriorityClasses()
	synced := func() bool {
		return ranges.Informer().HasSynced() && namespaces.Informer().HasSynced() && accounts.Informer().HasSynced() && classes.Informer().HasSynced()
	}
	return builtinRules{ranges.Informer().GetIndexer(), namespaces.Lister(), synced}
}

var (
	podResource       = corev1.Resource("pods")
	claimResource     = corev1.Resource("persistentvolumeclaims")
	namespaceResource = corev1.Resource("namespaces")
)

// podSecurityLabels is how the labels of a Namespace begin that PodSecurity reads.
const podSecurityLabels = "pod-security.kubernetes.io/"

// SelectsIn reports whether a built-in plugin may apply to a request in a namespace: one with
// a LimitRange, or with labels of PodSecurity. Before the informers have read them it says
// yes, and the plugins wait.
func (c *Chain) SelectsIn(namespace string, resource schema.GroupResource, operation admission.Operation) bool {
	if operation != admission.Create && operation != admission.Update {
		return false
	}
	if resource == namespaceResource {
		return true // PodSecurity checks its labels
	}
	if resource == classResource {
		return true // there may be another default
	}
	limited, secured := resource == podResource || resource == claimResource, podsecurity.DefaultPodSpecExtractor{}.HasPodSpec(resource)
	if !limited && !secured {
		return false
	}
	return !c.builtin.synced() || limited && c.builtin.limits(namespace) || secured && c.builtin.secures(namespace)
}

func (b *builtinRules) limits(namespace string) bool {
	found, err := b.ranges.IndexKeys(cache.NamespaceIndex, namespace)
	return err != nil || len(found) > 0
}

func (b *builtinRules) secures(namespace string) bool {
	ns, err := b.namespaces.Get(namespace)
	if err != nil {
		return true // it was created a moment ago: the plugin reads it from the store
	}
	for label := range ns.Labels {
		if strings.HasPrefix(label, podSecurityLabels) {
			return true
		}
	}
	return false
}

// The dry run of a restore asks webhooks and policies about objects of a namespace that the
// restore would create first. The plugins look for the namespace and its labels in a
// lister: this one also has the namespaces of dry runs. Another client that creates in such a
// namespace meanwhile passes the plugins, and the store refuses it.

// pretended are namespaces that dry runs would create. It is safe for concurrent use.
type pretended struct {
	mu    sync.Mutex
	names map[*corev1.Namespace]bool
}

// Pretend makes a namespace exist for webhooks and policies until the context ends.
func (c *Chain) Pretend(ctx context.Context, namespace *corev1.Namespace) {
	p := &c.pretended
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names == nil {
		p.names = map[*corev1.Namespace]bool{}
	}
	p.names[namespace] = true
	context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.names, namespace)
	})
}

// factory is a SharedInformerFactory whose lister of namespaces has the pretended ones too.
type factory struct {
	informers.SharedInformerFactory
	pretended *pretended
}

func (f factory) Core() core.Interface { return coreGroup{f.SharedInformerFactory.Core(), f.pretended} }

type coreGroup struct {
	core.Interface
	pretended *pretended
}

func (g coreGroup) V1() coreinformers.Interface { return coreV1{g.Interface.V1(), g.pretended} }

type coreV1 struct {
	coreinformers.Interface
	pretended *pretended
}

func (v coreV1) Namespaces() coreinformers.TypedNamespaceInformer {
	return namespaceInformer{v.Interface.Namespaces(), v.pretended}
}

type namespaceInformer struct {
	coreinformers.TypedNamespaceInformer
	pretended *pretended
}

func (i namespaceInformer) Lister() listers.NamespaceLister {
	return namespaceLister{i.TypedNamespaceInformer.Lister(), i.pretended}
}

type namespaceLister struct {
	listers.NamespaceLister
	pretended *pretended
}

func (l namespaceLister) Get(name string) (*corev1.Namespace, error) {
	found, err := l.NamespaceLister.Get(name)
	if !apierrors.IsNotFound(err) {
		return found, err
	}
	l.pretended.mu.Lock()
	defer l.pretended.mu.Unlock()
	for namespace := range l.pretended.names {
		if namespace.Name == name {
			return namespace, nil
		}
	}
	return nil, err
}
