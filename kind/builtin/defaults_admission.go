package builtin

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// webhookTimeout is the default time that a webhook has for its answer, in seconds.
const webhookTimeout = 10

func addAdmissionDefaults(s *runtime.Scheme) {
	defaults(s, func(c *admissionv1.MutatingWebhookConfiguration) {
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			fillPtr(&w.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
			defaultHook(&w.FailurePolicy, &w.MatchPolicy, &w.TimeoutSeconds, &w.ClientConfig)
			defaultSelectors(&w.NamespaceSelector, &w.ObjectSelector)
			defaultRules(w.Rules)
		}
	})
	defaults(s, func(c *admissionv1.ValidatingWebhookConfiguration) {
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			defaultHook(&w.FailurePolicy, &w.MatchPolicy, &w.TimeoutSeconds, &w.ClientConfig)
			defaultSelectors(&w.NamespaceSelector, &w.ObjectSelector)
			defaultRules(w.Rules)
		}
	})
	defaults(s, func(p *admissionv1.ValidatingAdmissionPolicy) {
		fillPtr(&p.Spec.FailurePolicy, admissionv1.Fail)
		defaultMatch(p.Spec.MatchConstraints)
	})
	defaults(s, func(b *admissionv1.ValidatingAdmissionPolicyBinding) { defaultMatch(b.Spec.MatchResources) })
	defaults(s, func(p *admissionv1.MutatingAdmissionPolicy) {
		fillPtr(&p.Spec.FailurePolicy, admissionv1.Fail)
		defaultMatch(p.Spec.MatchConstraints)
	})
	defaults(s, func(b *admissionv1.MutatingAdmissionPolicyBinding) { defaultMatch(b.Spec.MatchResources) })
}

func defaultHook(failure **admissionv1.FailurePolicyType, match **admissionv1.MatchPolicyType, timeout **int32, client *admissionv1.WebhookClientConfig) {
	fillPtr(failure, admissionv1.Fail)
	fillPtr(match, admissionv1.Equivalent)
	fillPtr(timeout, webhookTimeout)
	if client.Service != nil {
		fillPtr(&client.Service.Port, 443)
	}
}

func defaultSelectors(namespaces, objects **metav1.LabelSelector) {
	fillPtr(namespaces, metav1.LabelSelector{})
	fillPtr(objects, metav1.LabelSelector{})
}

func defaultRules(rules []admissionv1.RuleWithOperations) {
	for i := range rules {
		fillPtr(&rules[i].Scope, admissionv1.AllScopes)
	}
}

func defaultMatch(m *admissionv1.MatchResources) {
	if m == nil {
		return
	}
	fillPtr(&m.MatchPolicy, admissionv1.Equivalent)
	defaultSelectors(&m.NamespaceSelector, &m.ObjectSelector)
	for _, rules := range [][]admissionv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			fillPtr(&rules[i].Scope, admissionv1.AllScopes)
		}
	}
}
