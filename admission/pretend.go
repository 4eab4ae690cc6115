package admission

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
)

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

func (i namespaceInformer) Lister() corelisters.NamespaceLister {
	return namespaceLister{i.TypedNamespaceInformer.Lister(), i.pretended}
}

type namespaceLister struct {
	corelisters.NamespaceLister
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
