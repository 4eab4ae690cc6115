package builtin

import (
	"fmt"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/object"
)

// maxPrecedence and maxQueues are the limits of Kubernetes.
const (
	maxPrecedence = 10000
	maxQueues     = 10000000
)

func validateFlowSchema(s *flowcontrolv1.FlowSchema) field.ErrorList {
	var errs field.ErrorList
	at := specPath.Child("matchingPrecedence")
	switch precedence := s.Spec.MatchingPrecedence; {
	case precedence <= 0:
		errs = append(errs, field.Invalid(at, precedence, "must be a positive value"))
	case precedence > maxPrecedence:
		errs = append(errs, field.Invalid(at, precedence, fmt.Sprintf("must not be greater than %v", maxPrecedence)))
	case precedence == 1 && s.Name != flowcontrolv1.FlowSchemaNameExempt:
		errs = append(errs, field.Invalid(at, precedence, "only the schema named 'exempt' may have matchingPrecedence 1"))
	}
	if d := s.Spec.DistinguisherMethod; d != nil {
		errs = append(errs, oneOf(specPath.Child("distinguisherMethod", "type"), d.Type,
			flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType)...)
	}
	if level := s.Spec.PriorityLevelConfiguration.Name; level == "" {
		errs = append(errs, field.Required(specPath.Child("priorityLevelConfiguration", "name"), "must reference a priority level"))
	} else {
		errs = append(errs, invalids(specPath.Child("priorityLevelConfiguration", "name"), level, validation.IsDNS1123Subdomain(level))...)
	}
	for i := range s.Spec.Rules {
		errs = append(errs, validateFlowRule(specPath.Child("rules").Index(i), &s.Spec.Rules[i])...)
	}
	return errs
}

func validateFlowRule(at *field.Path, r *flowcontrolv1.PolicyRulesWithSubjects) field.ErrorList {
	var errs field.ErrorList
	if len(r.Subjects) == 0 {
		errs = append(errs, field.Required(at.Child("subjects"), "subjects must contain at least one value"))
	}
	for i := range r.Subjects {
		errs = append(errs, validateFlowSubject(at.Child("subjects").Index(i), &r.Subjects[i])...)
	}
	if len(r.ResourceRules)+len(r.NonResourceRules) == 0 {
		errs = append(errs, field.Required(at, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	for i, rule := range r.ResourceRules {
		at := at.Child("resourceRules").Index(i)
		errs = append(errs, validateFlowList(at.Child("verbs"), rule.Verbs, "resource rules must supply at least one verb")...)
		errs = append(errs, validateFlowList(at.Child("apiGroups"), rule.APIGroups, "resource rules must supply at least one api group")...)
		errs = append(errs, validateFlowList(at.Child("resources"), rule.Resources, "resource rules must supply at least one resource")...)
		if len(rule.Namespaces) > 0 || !rule.ClusterScope {
			errs = append(errs, validateFlowList(at.Child("namespaces"), rule.Namespaces, "resource rules that are not cluster scoped must supply at least one namespace")...)
		}
	}
	for i, rule := range r.NonResourceRules {
		at := at.Child("nonResourceRules").Index(i)
		errs = append(errs, validateFlowList(at.Child("verbs"), rule.Verbs, "non-resource rules must supply at least one verb")...)
		errs = append(errs, validateFlowList(at.Child("nonResourceURLs"), rule.NonResourceURLs, "non-resource rules must supply at least one url")...)
		for j, url := range rule.NonResourceURLs {
			if url != "*" && !strings.HasPrefix(url, "/") {
				errs = append(errs, field.Invalid(at.Child("nonResourceURLs").Index(j), url, "must start with slash"))
			}
		}
	}
	return errs
}

// validateFlowList requires values, or "*" alone.
func validateFlowList(at *field.Path, list []string, absent string) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(at, absent)}
	}
	if len(list) > 1 && slices.Contains(list, "*") {
		return field.ErrorList{field.Invalid(at, list, "if '*' is present, must not specify other values")}
	}
	return nil
}

func validateFlowSubject(at *field.Path, s *flowcontrolv1.Subject) field.ErrorList {
	errs := oneOf(at.Child("kind"), s.Kind, flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser)
	for _, part := range []struct {
		name string
		kind flowcontrolv1.SubjectKind
		set  bool
	}{
		{"group", flowcontrolv1.SubjectKindGroup, s.Group != nil},
		{"serviceAccount", flowcontrolv1.SubjectKindServiceAccount, s.ServiceAccount != nil},
		{"user", flowcontrolv1.SubjectKindUser, s.User != nil},
	} {
		switch {
		case part.set && part.kind != s.Kind:
			errs = append(errs, field.Forbidden(at.Child(part.name), fmt.Sprintf("%s is forbidden when subject kind is not '%s'", part.name, part.kind)))
		case !part.set && part.kind == s.Kind:
			errs = append(errs, field.Required(at.Child(part.name), fmt.Sprintf("%s is required when subject kind is '%s'", part.name, part.kind)))
		}
	}
	if s.ServiceAccount != nil {
		errs = append(errs, required(at.Child("serviceAccount", "name"), s.ServiceAccount.Name)...)
		errs = append(errs, required(at.Child("serviceAccount", "namespace"), s.ServiceAccount.Namespace)...)
	}
	if s.Group != nil {
		errs = append(errs, required(at.Child("group", "name"), s.Group.Name)...)
	}
	if s.User != nil {
		errs = append(errs, required(at.Child("user", "name"), s.User.Name)...)
	}
	return errs
}

func validatePriorityLevel(c *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	exempt := c.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt
	errs := oneOf(specPath.Child("type"), c.Spec.Type, flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited)
	if exempt != (c.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt) {
		errs = append(errs, field.Invalid(specPath.Child("type"), c.Spec.Type, "must be 'Exempt' if and only if `name` is 'exempt'"))
	}
	limited := c.Spec.Limited
	switch {
	case exempt && limited != nil:
		return append(errs, field.Forbidden(specPath.Child("limited"), "must be nil if the type is not Limited"))
	case exempt:
		return errs
	case c.Spec.Exempt != nil:
		return append(errs, field.Forbidden(specPath.Child("exempt"), "must be nil if the type is Limited"))
	case limited == nil:
		return append(errs, field.Required(specPath.Child("limited"), "must not be empty when type is Limited"))
	}
	at := specPath.Child("limited")
	errs = append(errs, notNegative(at.Child("nominalConcurrencyShares"), limited.NominalConcurrencyShares)...)
	if p := limited.LendablePercent; p != nil && (*p < 0 || *p > 100) {
		errs = append(errs, field.Invalid(at.Child("lendablePercent"), *p, "must be between 0 and 100, inclusive"))
	}
	errs = append(errs, notNegative(at.Child("borrowingLimitPercent"), limited.BorrowingLimitPercent)...)
	return append(errs, validateLimitResponse(at.Child("limitResponse"), limited.LimitResponse)...)
}

func validateLimitResponse(at *field.Path, r flowcontrolv1.LimitResponse) field.ErrorList {
	errs := oneOf(at.Child("type"), r.Type, flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject)
	at = at.Child("queuing")
	switch q := r.Queuing; {
	case r.Type == flowcontrolv1.LimitResponseTypeReject && q != nil:
		errs = append(errs, field.Forbidden(at, "must be nil if limited.limitResponse.type is not Limited"))
	case r.Type != flowcontrolv1.LimitResponseTypeQueue:
	case q == nil:
		errs = append(errs, field.Required(at, "must not be empty if limited.limitResponse.type is Limited"))
	default:
		errs = append(errs, positive(at.Child("queueLengthLimit"), &q.QueueLengthLimit)...)
		errs = append(errs, positive(at.Child("queues"), &q.Queues)...)
		errs = append(errs, positive(at.Child("handSize"), &q.HandSize)...)
		if q.Queues > maxQueues {
			errs = append(errs, field.Invalid(at.Child("queues"), q.Queues, fmt.Sprintf("must not be greater than %d", maxQueues)))
		}
		if q.HandSize > q.Queues {
			errs = append(errs, field.Invalid(at.Child("handSize"), q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues)))
		}
	}
	return errs
}

func validateMigration(m *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	at, r := specPath.Child("resource"), m.Spec.Resource
	var errs field.ErrorList
	if r.Resource == "" {
		errs = append(errs, field.Required(at.Child("resource"), "resource is required to be set"))
	} else {
		errs = append(errs, invalids(at.Child("resource"), r.Resource, validation.IsDNS1035Label(r.Resource))...)
	}
	if r.Group != "" {
		errs = append(errs, invalids(at.Child("group"), r.Group, validation.IsDNS1123Subdomain(r.Group))...)
	}
	return errs
}

// validateMigrationStatus: a migration ends once, as a success or as a failure.
func validateMigrationStatus(obj, old *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	at := field.NewPath("status")
	errs := metav1validation.ValidateConditions(obj.Status.Conditions, at.Child("conditions"))
	if version := obj.Status.ResourceVersion; version != old.Status.ResourceVersion && old.Status.ResourceVersion != "" {
		errs = append(errs, field.Invalid(at.Child("resourceVersion"), version, "field is immutable"))
	} else if _, err := object.ParseResourceVersion(version); err != nil {
		errs = append(errs, field.Invalid(at.Child("resourceVersion"), version, err.Error()))
	}
	is := func(m *storagemigrationv1.StorageVersionMigration, t storagemigrationv1.MigrationConditionType) bool {
		return meta.IsStatusConditionPresentAndEqual(m.Status.Conditions, string(t), metav1.ConditionTrue)
	}
	for _, t := range []storagemigrationv1.MigrationConditionType{storagemigrationv1.MigrationSucceeded, storagemigrationv1.MigrationFailed} {
		if is(old, t) && !is(obj, t) {
			errs = append(errs, field.Invalid(at.Child("conditions"), obj.Status.Conditions, fmt.Sprintf("%s condition cannot be set to false once it is true", t)))
		}
	}
	if is(obj, storagemigrationv1.MigrationSucceeded) && is(obj, storagemigrationv1.MigrationFailed) {
		errs = append(errs, field.Invalid(at.Child("conditions"), obj.Status.Conditions, "Both success and failed conditions cannot be true at the same time"))
	}
	return errs
}
