package builtin

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/kind"
)

// admissionKinds configure webhooks and policies, which package admission runs.
func admissionKinds() []*kind.Kind {
	return append(webhookKinds(), admissionPolicyKinds()...)
}

func webhookKinds() []*kind.Kind {
	gv := admissionv1.SchemeGroupVersion
	return []*kind.Kind{
		def[admissionv1.MutatingWebhookConfiguration, *admissionv1.MutatingWebhookConfiguration]{
			gv: gv, plural: "mutatingwebhookconfigurations", cluster: true, extends: true,
			generation: true, conditional: true,
			moves: func(obj, old *admissionv1.MutatingWebhookConfiguration) bool {
				return !equality.Semantic.DeepEqual(obj.Webhooks, old.Webhooks)
			},
			validate: func(c *admissionv1.MutatingWebhookConfiguration) field.ErrorList {
				return validateHooks(mutatingHooks(c))
			},
			table: func() table[*admissionv1.MutatingWebhookConfiguration] {
				return countTable("Webhooks", func(c *admissionv1.MutatingWebhookConfiguration) int { return len(c.Webhooks) })
			},
		}.kind(),
		def[admissionv1.ValidatingWebhookConfiguration, *admissionv1.ValidatingWebhookConfiguration]{
			gv: gv, plural: "validatingwebhookconfigurations", cluster: true, extends: true,
			generation: true, conditional: true,
			moves: func(obj, old *admissionv1.ValidatingWebhookConfiguration) bool {
				return !equality.Semantic.DeepEqual(obj.Webhooks, old.Webhooks)
			},
			validate: func(c *admissionv1.ValidatingWebhookConfiguration) field.ErrorList {
				return validateHooks(validatingHooks(c))
			},
			table: func() table[*admissionv1.ValidatingWebhookConfiguration] {
				return countTable("Webhooks", func(c *admissionv1.ValidatingWebhookConfiguration) int { return len(c.Webhooks) })
			},
		}.kind(),
	}
}

func admissionPolicyKinds() []*kind.Kind {
	gv := admissionv1.SchemeGroupVersion
	return []*kind.Kind{
		def[admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicy]{
			gv: gv, plural: "validatingadmissionpolicies", cluster: true, extends: true,
			generation: true, conditional: true,
			parts:    func(p *admissionv1.ValidatingAdmissionPolicy) (any, any) { return &p.Spec, &p.Status },
			validate: validateValidatingPolicy,
			table: func() table[*admissionv1.ValidatingAdmissionPolicy] {
				return policyTable("Validations", func(p *admissionv1.ValidatingAdmissionPolicy) (int, *admissionv1.ParamKind) {
					return len(p.Spec.Validations), p.Spec.ParamKind
				})
			},
		}.kind(),
		def[admissionv1.ValidatingAdmissionPolicyBinding, *admissionv1.ValidatingAdmissionPolicyBinding]{
			gv: gv, plural: "validatingadmissionpolicybindings", cluster: true, extends: true,
			generation: true, conditional: true,
			moves: func(obj, old *admissionv1.ValidatingAdmissionPolicyBinding) bool {
				return !equality.Semantic.DeepEqual(obj.Spec, old.Spec)
			},
			validate: validateValidatingPolicyBinding,
			table: func() table[*admissionv1.ValidatingAdmissionPolicyBinding] {
				return policyBindingTable(func(b *admissionv1.ValidatingAdmissionPolicyBinding) (string, *admissionv1.ParamRef) {
					return b.Spec.PolicyName, b.Spec.ParamRef
				})
			},
		}.kind(),
		def[admissionv1.MutatingAdmissionPolicy, *admissionv1.MutatingAdmissionPolicy]{
			gv: gv, plural: "mutatingadmissionpolicies", cluster: true, extends: true,
			generation: true, conditional: true,
			moves: func(obj, old *admissionv1.MutatingAdmissionPolicy) bool {
				return !equality.Semantic.DeepEqual(obj.Spec, old.Spec)
			},
			validate: validateMutatingPolicy,
			table: func() table[*admissionv1.MutatingAdmissionPolicy] {
				return policyTable("Mutations", func(p *admissionv1.MutatingAdmissionPolicy) (int, *admissionv1.ParamKind) {
					return len(p.Spec.Mutations), p.Spec.ParamKind
				})
			},
		}.kind(),
		def[admissionv1.MutatingAdmissionPolicyBinding, *admissionv1.MutatingAdmissionPolicyBinding]{
			gv: gv, plural: "mutatingadmissionpolicybindings", cluster: true, extends: true,
			generation: true, conditional: true,
			moves: func(obj, old *admissionv1.MutatingAdmissionPolicyBinding) bool {
				return !equality.Semantic.DeepEqual(obj.Spec, old.Spec)
			},
			validate: validateMutatingPolicyBinding,
			table: func() table[*admissionv1.MutatingAdmissionPolicyBinding] {
				return policyBindingTable(func(b *admissionv1.MutatingAdmissionPolicyBinding) (string, *admissionv1.ParamRef) {
					return b.Spec.PolicyName, b.Spec.ParamRef
				})
			},
		}.kind(),
	}
}
