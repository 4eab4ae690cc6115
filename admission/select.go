package admission

import (
	"slices"
	"strings"
	"sync/atomic"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/admissionregistration/v1"
	"k8s.io/client-go/tools/cache"
)

// rule is one of a webhook or a policy.
type rule struct {
	admissionv1.RuleWithOperations
	of string // what it is a rule of, for people
}

// selections is the union of the rules of all webhooks and policies. It ignores versions,
// scopes, selectors and conditions: the plugins decide those.
type selections struct {
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
