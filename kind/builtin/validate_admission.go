package builtin

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
)

// hook is what mutating and validating webhooks share.
type hook struct {
	name       string
	client     *admissionv1.WebhookClientConfig
	rules      []admissionv1.RuleWithOperations
	failure    *admissionv1.FailurePolicyType
	match      *admissionv1.MatchPolicyType
	effects    *admissionv1.SideEffectClass
	timeout    *int32
	reviews    []string // AdmissionReviewVersions
	namespaces *metav1.LabelSelector
	objects    *metav1.LabelSelector
	conditions []admissionv1.MatchCondition
	reinvoke   *admissionv1.ReinvocationPolicyType // nil for validating webhooks
}

func mutatingHooks(c *admissionv1.MutatingWebhookConfiguration) []hook {
	hooks := make([]hook, len(c.Webhooks))
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		hooks[i] = hook{
			w.Name, &w.ClientConfig, w.Rules, w.FailurePolicy, w.MatchPolicy, w.SideEffects, w.TimeoutSeconds,
			w.AdmissionReviewVersions, w.NamespaceSelector, w.ObjectSelector, w.MatchConditions, w.ReinvocationPolicy,
		}
	}
	return hooks
}

func validatingHooks(c *admissionv1.ValidatingWebhookConfiguration) []hook {
	hooks := make([]hook, len(c.Webhooks))
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		hooks[i] = hook{
			w.Name, &w.ClientConfig, w.Rules, w.FailurePolicy, w.MatchPolicy, w.SideEffects, w.TimeoutSeconds,
			w.AdmissionReviewVersions, w.NamespaceSelector, w.ObjectSelector, w.MatchConditions, nil,
		}
	}
	return hooks
}

// maxWebhookTimeout is the longest time that a webhook may take, in seconds.
const maxWebhookTimeout = 30

func validateHooks(hooks []hook) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, h := range hooks {
		at := field.NewPath("webhooks").Index(i)
		if names.Has(h.name) {
			errs = append(errs, field.Duplicate(at.Child("name"), h.name))
		}
		names.Insert(h.name)
		errs = append(errs, validateHook(at, h)...)
	}
	return errs
}

func validateHook(at *field.Path, h hook) field.ErrorList {
	errs := validation.IsFullyQualifiedName(at.Child("name"), h.name)
	errs = append(errs, oneOfPtr(at.Child("failurePolicy"), h.failure, admissionv1.Fail, admissionv1.Ignore)...)
	errs = append(errs, oneOfPtr(at.Child("matchPolicy"), h.match, admissionv1.Exact, admissionv1.Equivalent)...)
	errs = append(errs, oneOfPtr(at.Child("reinvocationPolicy"), h.reinvoke, admissionv1.NeverReinvocationPolicy, admissionv1.IfNeededReinvocationPolicy)...)
	if h.effects == nil {
		errs = append(errs, field.Required(at.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
	} else {
		errs = append(errs, oneOf(at.Child("sideEffects"), *h.effects, admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun)...)
	}
	if h.timeout != nil && (*h.timeout < 1 || *h.timeout > maxWebhookTimeout) {
		errs = append(errs, field.Invalid(at.Child("timeoutSeconds"), *h.timeout, "the timeout value must be between 1 and 30 seconds"))
	}
	errs = append(errs, validateReviewVersions(at.Child("admissionReviewVersions"), h.reviews)...)
	for i, rule := range h.rules {
		errs = append(errs, validateAdmissionRule(at.Child("rules").Index(i), rule)...)
	}
	errs = append(errs, validateSelectors(at, h.namespaces, h.objects)...)
	errs = append(errs, validateWebhookClient(at.Child("clientConfig"), h.client)...)
	if len(h.conditions) == 0 {
		return errs
	}
	return append(errs, validateMatchConditions(at.Child("matchConditions"), h.conditions, newExpressions(false))...)
}

func validateSelectors(at *field.Path, namespaces, objects *metav1.LabelSelector) field.ErrorList {
	var errs field.ErrorList
	if namespaces != nil {
		errs = append(errs, labelSelector(at.Child("namespaceSelector"), namespaces)...)
	}
	if objects != nil {
		errs = append(errs, labelSelector(at.Child("objectSelector"), objects)...)
	}
	return errs
}

// validateReviewVersions requires one version of AdmissionReview that the server speaks.
func validateReviewVersions(at *field.Path, versions []string) field.ErrorList {
	if len(versions) == 0 {
		return field.ErrorList{field.Required(at, "must specify one of v1, v1beta1")}
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, v := range versions {
		errs = append(errs, invalids(at.Index(i), v, validation.IsDNS1035Label(v))...)
		if seen.Has(v) {
			errs = append(errs, field.Invalid(at.Index(i), v, "duplicate version"))
		}
		seen.Insert(v)
	}
	if len(errs) == 0 && !seen.HasAny("v1", "v1beta1") {
		errs = append(errs, field.Invalid(at, versions, "must include at least one of v1, v1beta1"))
	}
	return errs
}

func validateWebhookClient(at *field.Path, c *admissionv1.WebhookClientConfig) field.ErrorList {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		return field.ErrorList{field.Required(at, "exactly one of url or service is required")}
	case c.URL != nil:
		return webhookutil.ValidateWebhookURL(at.Child("url"), *c.URL, true)
	}
	return webhookutil.ValidateWebhookService(at.Child("service"), c.Service.Namespace, c.Service.Name, c.Service.Path, deref(c.Service.Port, 443))
}

func validateAdmissionRule(at *field.Path, r admissionv1.RuleWithOperations) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name   string
		values []string
	}{{"apiGroups", r.APIGroups}, {"apiVersions", r.APIVersions}, {"resources", r.Resources}} {
		if len(list.values) == 0 {
			errs = append(errs, field.Required(at.Child(list.name), ""))
		}
		if list.name != "resources" && len(list.values) > 1 && slices.Contains(list.values, "*") {
			errs = append(errs, field.Invalid(at.Child(list.name), list.values, "if '*' is present, must not specify other values"))
		}
	}
	for i, v := range r.APIVersions {
		if v == "" {
			errs = append(errs, field.Required(at.Child("apiVersions").Index(i), ""))
		}
	}
	for i, name := range r.Resources {
		if name == "" {
			errs = append(errs, field.Required(at.Child("resources").Index(i), ""))
		}
	}
	errs = append(errs, validateOperations(at.Child("operations"), r.Operations)...)
	return append(errs, oneOfPtr(at.Child("scope"), r.Scope, admissionv1.ClusterScope, admissionv1.NamespacedScope, admissionv1.AllScopes)...)
}

func validateOperations(at *field.Path, operations []admissionv1.OperationType) field.ErrorList {
	if len(operations) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	if len(operations) > 1 && slices.Contains(operations, admissionv1.OperationAll) {
		return field.ErrorList{field.Invalid(at, operations, "if '*' is present, must not specify other operations")}
	}
	var errs field.ErrorList
	for i, o := range operations {
		errs = append(errs, oneOf(at.Index(i), o, admissionv1.OperationAll, admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect)...)
	}
	return errs
}

// maxMatchConditions limits the conditions of a webhook or a policy.
const maxMatchConditions = 64

func validateMatchConditions(at *field.Path, conditions []admissionv1.MatchCondition, compile *expressions) field.ErrorList {
	var errs field.ErrorList
	if len(conditions) > maxMatchConditions {
		errs = append(errs, field.TooMany(at, len(conditions), maxMatchConditions))
	}
	names := sets.New[string]()
	for i := range conditions {
		c := &conditions[i]
		name := at.Index(i).Child("name")
		errs = append(errs, requiredName(name, c.Name, validation.IsQualifiedName)...)
		if names.Has(c.Name) {
			errs = append(errs, field.Duplicate(name, c.Name))
		}
		names.Insert(c.Name)
		errs = append(errs, compile.condition(at.Index(i).Child("expression"), c)...)
	}
	return errs
}

func validateParamKind(at *field.Path, k *admissionv1.ParamKind) field.ErrorList {
	if k == nil {
		return nil
	}
	errs := required(at.Child("kind"), k.Kind)
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	if err != nil || gv.Version == "" {
		errs = append(errs, field.Invalid(at.Child("apiVersion"), k.APIVersion, "must be GROUP/VERSION, or VERSION for the core group"))
	}
	return errs
}

// validateMatch checks what a policy or a binding matches. A policy must match
// something.
func validateMatch(at *field.Path, m *admissionv1.MatchResources, policy bool) field.ErrorList {
	if m == nil {
		if policy {
			return field.ErrorList{field.Required(at, "")}
		}
		return nil
	}
	errs := validateSelectors(at, m.NamespaceSelector, m.ObjectSelector)
	errs = append(errs, oneOfPtr(at.Child("matchPolicy"), m.MatchPolicy, admissionv1.Exact, admissionv1.Equivalent)...)
	if policy && len(m.ResourceRules) == 0 {
		errs = append(errs, field.Required(at.Child("resourceRules"), ""))
	}
	for i, r := range m.ResourceRules {
		errs = append(errs, validateAdmissionRule(at.Child("resourceRules").Index(i), r.RuleWithOperations)...)
	}
	for i, r := range m.ExcludeResourceRules {
		errs = append(errs, validateAdmissionRule(at.Child("excludeResourceRules").Index(i), r.RuleWithOperations)...)
	}
	return errs
}

func validateParamRef(at *field.Path, r *admissionv1.ParamRef) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	if (r.Name == "") == (r.Selector == nil) {
		errs = append(errs, field.Required(at.Child("name"), "exactly one of name or selector must be specified"))
	}
	if r.Selector != nil {
		errs = append(errs, labelSelector(at.Child("selector"), r.Selector)...)
	}
	if r.ParameterNotFoundAction == nil {
		return append(errs, field.Required(at.Child("parameterNotFoundAction"), ""))
	}
	return append(errs, oneOf(at.Child("parameterNotFoundAction"), *r.ParameterNotFoundAction, admissionv1.AllowAction, admissionv1.DenyAction)...)
}

func validateValidatingPolicyBinding(b *admissionv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	at := field.NewPath("spec")
	errs := required(at.Child("policyName"), b.Spec.PolicyName)
	errs = append(errs, validateParamRef(at.Child("paramRef"), b.Spec.ParamRef)...)
	errs = append(errs, validateMatch(at.Child("matchResources"), b.Spec.MatchResources, false)...)
	actions := at.Child("validationActions")
	if len(b.Spec.ValidationActions) == 0 {
		errs = append(errs, field.Required(actions, "at least one validation action is required"))
	}
	seen := sets.New[admissionv1.ValidationAction]()
	for i, a := range b.Spec.ValidationActions {
		errs = append(errs, oneOf(actions.Index(i), a, admissionv1.Audit, admissionv1.Deny, admissionv1.Warn)...)
		if seen.Has(a) {
			errs = append(errs, field.Duplicate(actions.Index(i), a))
		}
		seen.Insert(a)
	}
	if seen.HasAll(admissionv1.Deny, admissionv1.Warn) {
		errs = append(errs, field.Invalid(actions, b.Spec.ValidationActions, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	return errs
}

func validateMutatingPolicyBinding(b *admissionv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	at := field.NewPath("spec")
	errs := required(at.Child("policyName"), b.Spec.PolicyName)
	errs = append(errs, validateParamRef(at.Child("paramRef"), b.Spec.ParamRef)...)
	return append(errs, validateMatch(at.Child("matchResources"), b.Spec.MatchResources, false)...)
}

// policy checks what both kinds of policies have. It makes the variables known to the
// expressions that follow.
func (e *expressions) policy(at *field.Path, params *admissionv1.ParamKind, match *admissionv1.MatchResources, failure *admissionv1.FailurePolicyType, variables []admissionv1.Variable, conditions []admissionv1.MatchCondition) field.ErrorList {
	errs := validateParamKind(at.Child("paramKind"), params)
	errs = append(errs, validateMatch(at.Child("matchConstraints"), match, true)...)
	errs = append(errs, oneOfPtr(at.Child("failurePolicy"), failure, admissionv1.Fail, admissionv1.Ignore)...)
	errs = append(errs, e.variables(at.Child("variables"), variables)...)
	return append(errs, validateMatchConditions(at.Child("matchConditions"), conditions, e)...)
}

func validateValidatingPolicy(p *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	at := field.NewPath("spec")
	s := &p.Spec
	compile := newExpressions(s.ParamKind != nil)
	errs := compile.policy(at, s.ParamKind, s.MatchConstraints, s.FailurePolicy, s.Variables, s.MatchConditions)
	if len(s.Validations)+len(s.AuditAnnotations) == 0 {
		errs = append(errs, field.Required(at.Child("validations"), "validations or auditAnnotations must contain at least one item"))
	}
	for i, v := range s.Validations {
		errs = append(errs, compile.validation(at.Child("validations").Index(i), v)...)
	}
	keys := sets.New[string]()
	for i, a := range s.AuditAnnotations {
		item := at.Child("auditAnnotations").Index(i)
		errs = append(errs, invalids(item.Child("key"), a.Key, validation.IsQualifiedName(p.Name+"/"+a.Key))...)
		if keys.Has(a.Key) {
			errs = append(errs, field.Duplicate(item.Child("key"), a.Key))
		}
		keys.Insert(a.Key)
		errs = append(errs, compile.annotation(item.Child("valueExpression"), a)...)
	}
	return errs
}

func validateMutatingPolicy(p *admissionv1.MutatingAdmissionPolicy) field.ErrorList {
	at := field.NewPath("spec")
	s := &p.Spec
	compile := newExpressions(s.ParamKind != nil)
	errs := compile.policy(at, s.ParamKind, s.MatchConstraints, s.FailurePolicy, s.Variables, s.MatchConditions)
	errs = append(errs, oneOf(at.Child("reinvocationPolicy"), s.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy, admissionv1.IfNeededReinvocationPolicy)...)
	if len(s.Mutations) == 0 {
		errs = append(errs, field.Required(at.Child("mutations"), "mutations must contain at least one item"))
	}
	for i, m := range s.Mutations {
		errs = append(errs, compile.mutation(at.Child("mutations").Index(i), m)...)
	}
	return errs
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
