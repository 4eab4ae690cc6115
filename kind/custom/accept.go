package custom

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// Accept decides which status a definition should have, given the others, and
// whether it differs from the present one. others may include the definition itself
// and definitions of other groups; see [Reserve] for built-in kinds.
//
// The definition that had a name accepted first holds it. A definition gets each
// name that is free. It is established once it has all its names, and stays
// established if it later asks for a name that is taken. A change or removal of one
// definition may free names for others: call Accept again for the others of its
// group.
//
// A definition that is being deleted gets no new names.
func Accept(crd *apiextensionsv1.CustomResourceDefinition, others []*apiextensionsv1.CustomResourceDefinition, now time.Time) (apiextensionsv1.CustomResourceDefinitionStatus, bool) {
	status := *crd.Status.DeepCopy()
	at := metav1.NewTime(now).Rfc3339Copy() // the precision of the stored form
	if crd.DeletionTimestamp != nil {
		acceptDeletion(&status, lifecycle.GuardOf(&crd.ObjectMeta).Held, at)
		return status, !equality.Semantic.DeepEqual(status, crd.Status)
	}
	if v := storageVersion(crd); v != "" && !slices.Contains(status.StoredVersions, v) {
		status.StoredVersions = append(status.StoredVersions, v)
	}
	verdict := acceptNames(&status.AcceptedNames, crd.Spec.Names, takenBy(crd, others))
	set(&status, verdict, at)
	if !Established(crd) {
		set(&status, establish(verdict), at)
	}
	if c := approval(crd); c != nil {
		set(&status, *c, at)
	}
	return status, !equality.Semantic.DeepEqual(status, crd.Status)
}

const deletionPending = "InstanceDeletionPending"

// acceptDeletion sets the condition Terminating: pending while the guard holds the
// deletion, then in progress. A more exact reason stays.
func acceptDeletion(status *apiextensionsv1.CustomResourceDefinitionStatus, held bool, at metav1.Time) {
	c := condition(status.Conditions, apiextensionsv1.Terminating)
	switch {
	case c == nil && held:
		set(status, pendingDeletion(), at)
	case c == nil || c.Reason == deletionPending && !held:
		set(status, apiextensionsv1.CustomResourceDefinitionCondition{
			Type:    apiextensionsv1.Terminating,
			Status:  apiextensionsv1.ConditionTrue,
			Reason:  "InstanceDeletionInProgress",
			Message: "CustomResource deletion is in progress",
		}, at)
	}
}

// pendingDeletion is the condition that the DELETE of a definition sets.
func pendingDeletion() apiextensionsv1.CustomResourceDefinitionCondition {
	return apiextensionsv1.CustomResourceDefinitionCondition{
		Type:    apiextensionsv1.Terminating,
		Status:  apiextensionsv1.ConditionTrue,
		Reason:  deletionPending,
		Message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
	}
}

// markTerminating sets the condition in a stored definition as its deletion begins.
func markTerminating(body []byte, now time.Time) ([]byte, error) {
	return withStatus(body, func(status *apiextensionsv1.CustomResourceDefinitionStatus) {
		set(status, pendingDeletion(), metav1.NewTime(now).Rfc3339Copy())
	})
}

// markActive removes the condition when a deletion is called off.
func markActive(body []byte) ([]byte, error) {
	return withStatus(body, func(status *apiextensionsv1.CustomResourceDefinitionStatus) {
		status.Conditions = slices.DeleteFunc(status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Terminating
		})
	})
}

func withStatus(body []byte, change func(*apiextensionsv1.CustomResourceDefinitionStatus)) ([]byte, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := object.DecodeInto(body, "", apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), crd); err != nil {
		return nil, err
	}
	change(&crd.Status)
	return object.Encode(crd)
}

// taken are the names that other definitions of the group hold. Plurals, singulars and
// short names share one namespace, since clients may use any of them.
type taken struct{ resources, kinds sets.Set[string] }

func takenBy(crd *apiextensionsv1.CustomResourceDefinition, others []*apiextensionsv1.CustomResourceDefinition) taken {
	t := taken{resources: sets.New[string](), kinds: sets.New[string]()}
	for _, other := range others {
		if other.Spec.Group != crd.Spec.Group || other.Name == crd.Name {
			continue
		}
		names := other.Status.AcceptedNames
		t.resources.Insert(names.Plural, names.Singular)
		t.resources.Insert(names.ShortNames...)
		t.kinds.Insert(names.Kind, names.ListKind)
	}
	return t
}

// acceptNames copies every wanted name that is free, or already held, into names. The
// condition reports one conflict; of several, the last in the order of the fields, as
// in Kubernetes.
func acceptNames(names *apiextensionsv1.CustomResourceDefinitionNames, wanted apiextensionsv1.CustomResourceDefinitionNames, t taken) apiextensionsv1.CustomResourceDefinitionCondition {
	verdict := apiextensionsv1.CustomResourceDefinitionCondition{
		Type:    apiextensionsv1.NamesAccepted,
		Status:  apiextensionsv1.ConditionTrue,
		Reason:  "NoConflicts",
		Message: "no conflicts found",
	}
	refuse := func(reason string, err error) {
		verdict.Status, verdict.Reason, verdict.Message = apiextensionsv1.ConditionFalse, reason, err.Error()
	}
	one := func(held *string, want, reason string, used sets.Set[string]) {
		if want != *held && used.Has(want) {
			refuse(reason, inUse(want))
			return
		}
		*held = want
	}
	one(&names.Plural, wanted.Plural, "PluralConflict", t.resources)
	one(&names.Singular, wanted.Singular, "SingularConflict", t.resources)
	var conflicts []error
	for _, short := range wanted.ShortNames {
		if !slices.Contains(names.ShortNames, short) && t.resources.Has(short) {
			conflicts = append(conflicts, inUse(short))
		}
	}
	if err := utilerrors.NewAggregate(conflicts); err != nil {
		refuse("ShortNamesConflict", err)
	} else {
		names.ShortNames = slices.Clone(wanted.ShortNames)
	}
	one(&names.Kind, wanted.Kind, "KindConflict", t.kinds)
	one(&names.ListKind, wanted.ListKind, "ListKindConflict", t.kinds)
	names.Categories = slices.Clone(wanted.Categories)
	return verdict
}

func inUse(name string) error { return fmt.Errorf("%q is already in use", name) }

// establish returns the Established condition of a definition without one.
func establish(names apiextensionsv1.CustomResourceDefinitionCondition) apiextensionsv1.CustomResourceDefinitionCondition {
	out := apiextensionsv1.CustomResourceDefinitionCondition{
		Type:    apiextensionsv1.Established,
		Status:  apiextensionsv1.ConditionFalse,
		Reason:  "NotAccepted",
		Message: "not all names are accepted",
	}
	if names.Status == apiextensionsv1.ConditionTrue {
		out.Status = apiextensionsv1.ConditionTrue
		out.Reason = "InitialNamesAccepted"
		out.Message = "the initial names have been accepted"
	}
	return out
}

// approval returns the condition of definitions in Kubernetes' own groups, and nil for
// all others.
func approval(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionCondition {
	if !apihelpers.IsProtectedCommunityGroup(crd.Spec.Group) {
		return nil
	}
	state, message := apihelpers.GetAPIApprovalState(crd.Annotations)
	out := &apiextensionsv1.CustomResourceDefinitionCondition{
		Type:    apiextensionsv1.KubernetesAPIApprovalPolicyConformant,
		Status:  apiextensionsv1.ConditionFalse,
		Message: message,
	}
	switch state {
	case apihelpers.APIApproved:
		out.Status, out.Reason = apiextensionsv1.ConditionTrue, "ApprovedAnnotation"
	case apihelpers.APIApprovalBypassed:
		out.Reason = "UnapprovedAnnotation"
	case apihelpers.APIApprovalMissing:
		out.Reason = "MissingAnnotation"
	default:
		out.Reason = "InvalidAnnotation"
	}
	return out
}

// set replaces or adds a condition. LastTransitionTime changes only with the status.
func set(status *apiextensionsv1.CustomResourceDefinitionStatus, c apiextensionsv1.CustomResourceDefinitionCondition, at metav1.Time) {
	c.LastTransitionTime = at
	old := condition(status.Conditions, c.Type)
	if old == nil {
		status.Conditions = append(status.Conditions, c)
		return
	}
	if old.Status == c.Status && !old.LastTransitionTime.IsZero() {
		c.LastTransitionTime = old.LastTransitionTime
	}
	c.ObservedGeneration = old.ObservedGeneration
	*old = c
}

// condition finds a condition; nil if not found.
func condition(list []apiextensionsv1.CustomResourceDefinitionCondition, t apiextensionsv1.CustomResourceDefinitionConditionType) *apiextensionsv1.CustomResourceDefinitionCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

// Established reports whether a definition's kind is served. A definition that is being
// deleted is served until it is gone.
func Established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
}

// Reserve represents a built-in kind in the others of [Accept], so that no definition
// takes its names.
func Reserve(k *kind.Kind) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = "built-in " + k.Storage // no definition can have this name
	crd.Spec.Group = k.Group
	crd.Status.AcceptedNames = apiextensionsv1.CustomResourceDefinitionNames{
		Plural: k.Plural, Singular: k.Singular, ShortNames: k.ShortNames, Kind: k.Name, ListKind: k.ListName,
	}
	return crd
}
