package admission

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	coreinformers "k8s.io/client-go/informers/core/v1"
	listers "k8s.io/client-go/listers/admissionregistration/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	podsecurity "k8s.io/pod-security-admission/admission"
)

// rule is one of a webhook or a policy.
type rule struct {
	admissionv1.RuleWithOperations
	of string // what it is a rule of, for people
}

// selections is the union of the rules of all webhooks and policies. It ignores versions,
// scopes, selectors and conditions: the plugins decide those.
type selections struct {
	hooks    hooks // made with the first configuration
	rules    atomic.Pointer[[]rule]
	synced   []cache.InformerSynced
	read     atomic.Bool // all of synced have said yes
	mutating listers.MutatingWebhookConfigurationLister
	checking listers.ValidatingWebhookConfigurationLister
	changing listers.MutatingAdmissionPolicyLister
	policies listers.ValidatingAdmissionPolicyLister
}

// follow rebuilds the selections after every change of a configuration.
func (s *selections) follow(f informers.SharedInformerFactory) error {
	v1 := f.Admissionregistration().V1()
	s.mutating, s.checking = v1.MutatingWebhookConfigurations().Lister(), v1.ValidatingWebhookConfigurations().Lister()
	s.changing, s.policies = v1.MutatingAdmissionPolicies().Lister(), v1.ValidatingAdmissionPolicies().Lister()
	for _, informer := range []cache.SharedIndexInformer{
		v1.MutatingWebhookConfigurations().Informer(), v1.ValidatingWebhookConfigurations().Informer(),
		v1.MutatingAdmissionPolicies().Informer(), v1.ValidatingAdmissionPolicies().Informer(),
		v1.MutatingAdmissionPolicyBindings().Informer(), v1.ValidatingAdmissionPolicyBindings().Informer(),
		f.Core().V1().Namespaces().Informer(), f.Core().V1().LimitRanges().Informer(), f.Core().V1().ServiceAccounts().Informer(), f.Scheduling().V1().PriorityClasses().Informer(), f.Core().V1().Services().Informer(), f.Discovery().V1().EndpointSlices().Informer(),
	} {
		s.synced = append(s.synced, informer.HasSynced)
	}
	changed := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.rebuild() },
		UpdateFunc: func(any, any) { s.rebuild() },
		DeleteFunc: func(any) { s.rebuild() },
	}
	for _, informer := range []cache.SharedIndexInformer{
		v1.MutatingWebhookConfigurations().Informer(), v1.ValidatingWebhookConfigurations().Informer(),
		v1.MutatingAdmissionPolicies().Informer(), v1.ValidatingAdmissionPolicies().Informer(),
	} {
		registration, err := informer.AddEventHandler(changed)
		if err != nil {
			return err
		}
		s.synced = append(s.synced, registration.HasSynced)
	}
	return nil
}

// rebuild reads all configurations. The listers return errors for unusable indexes
// only, which these do not have.
func (s *selections) rebuild() {
	var rules []rule
	add := func(of, name string, more []admissionv1.RuleWithOperations) {
		for _, r := range more {
			rules = append(rules, rule{r, of + " " + name})
		}
	}
	hooks, _ := s.mutating.List(labels.Everything())
	for _, c := range hooks {
		for _, w := range c.Webhooks {
			add("MutatingWebhookConfiguration", c.Name+" (webhook "+w.Name+")", w.Rules)
		}
	}
	checks, _ := s.checking.List(labels.Everything())
	for _, c := range checks {
		for _, w := range c.Webhooks {
			add("ValidatingWebhookConfiguration", c.Name+" (webhook "+w.Name+")", w.Rules)
		}
	}
	changing, _ := s.changing.List(labels.Everything())
	for _, p := range changing {
		add("MutatingAdmissionPolicy", p.Name, policyRules(p.Spec.MatchConstraints))
	}
	policies, _ := s.policies.List(labels.Everything())
	for _, p := range policies {
		add("ValidatingAdmissionPolicy", p.Name, policyRules(p.Spec.MatchConstraints))
	}
	s.rules.Store(&rules)
	if len(hooks) > 0 {
		_, _ = s.hooks.mutating.get() // a request gets its error
	}
	if len(checks) > 0 {
		_, _ = s.hooks.validating.get()
	}
}

func policyRules(m *admissionv1.MatchResources) []admissionv1.RuleWithOperations {
	if m == nil {
		return nil
	}
	rules := make([]admissionv1.RuleWithOperations, len(m.ResourceRules))
	for i, r := range m.ResourceRules {
		rules[i] = r.RuleWithOperations
	}
	return rules
}

func (s *selections) ready() bool {
	if s.read.Load() {
		return true
	}
	for _, synced := range s.synced {
		if !synced() {
			return false
		}
	}
	s.read.Store(true)
	return true
}

// Selects reports whether a webhook or a policy may apply to a request. Before all
// configurations are read it says yes, and the plugins wait for them: the rules of some
// may be there already, without those of the others.
func (c *Chain) Selects(resource schema.GroupResource, subresource string, operation admission.Operation) bool {
	if !c.selected.ready() {
		return true
	}
	rules := c.selected.rules.Load()
	return rules != nil && slices.ContainsFunc(*rules, func(r rule) bool { return selects(&r.RuleWithOperations, resource, subresource, operation) })
}

// Judges names the webhooks and policies whose rules select a request, sorted.
func (c *Chain) Judges(resource schema.GroupResource, operation admission.Operation) (names []string) {
	rules := c.selected.rules.Load()
	if rules == nil {
		return nil
	}
	for i := range *rules {
		if r := &(*rules)[i]; selects(&r.RuleWithOperations, resource, "", operation) {
			names = append(names, r.of)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func selects(r *admissionv1.RuleWithOperations, resource schema.GroupResource, subresource string, operation admission.Operation) bool {
	return has(r.APIGroups, resource.Group) && has(r.Operations, admissionv1.OperationType(operation)) && hasResource(r.Resources, resource.Resource, subresource)
}

func has[T ~string](list []T, value T) bool {
	return slices.Contains(list, "*") || slices.Contains(list, value)
}

// hasResource matches "pods", "*", "pods/*", "*/scale" and "*/*".
func hasResource(list []string, resource, subresource string) bool {
	return slices.ContainsFunc(list, func(s string) bool {
		r, sub, both := strings.Cut(s, "/")
		return (r == "*" || r == resource) && (sub == subresource || both && sub == "*")
	})
}

// builtinRules says which requests need the plugins that every server has: LimitRanger and
// PodSecurity. Its informers are the indexes of those plugins.
type builtinRules struct {
	ranges     cache.Indexer // LimitRanges, by namespace
	namespaces corelisters.NamespaceLister
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
