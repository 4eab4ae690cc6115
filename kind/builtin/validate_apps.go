package builtin

import (
	"bytes"
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateLongRunning validates the template of a controller that keeps pods running: they
// must restart, and must have no deadline.
func validateLongRunning(path *field.Path, t *corev1.PodTemplateSpec, what string) field.ErrorList {
	errs := validateTemplate(path, t)
	if policy := t.Spec.RestartPolicy; policy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), policy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in "+what+" is not Supported"))
	}
	return errs
}

func validateDeployment(d *appsv1.Deployment) field.ErrorList {
	spec := &d.Spec
	errs := selectorOf(specPath, spec.Selector, spec.Template.Labels, "deployment")
	errs = append(errs, notNegative(specPath.Child("replicas"), spec.Replicas)...)
	errs = append(errs, notNegative(specPath.Child("minReadySeconds"), &spec.MinReadySeconds)...)
	errs = append(errs, notNegative(specPath.Child("revisionHistoryLimit"), spec.RevisionHistoryLimit)...)
	errs = append(errs, notNegative(specPath.Child("progressDeadlineSeconds"), spec.ProgressDeadlineSeconds)...)
	if limit := spec.ProgressDeadlineSeconds; limit != nil && *limit <= spec.MinReadySeconds {
		errs = append(errs, field.Invalid(specPath.Child("progressDeadlineSeconds"), *limit, "must be greater than minReadySeconds"))
	}
	errs = append(errs, validateDeploymentStrategy(specPath.Child("strategy"), &spec.Strategy)...)
	return append(errs, validateLongRunning(specPath.Child("template"), &spec.Template, "ReplicaSet")...)
}

func validateDeploymentStrategy(path *field.Path, s *appsv1.DeploymentStrategy) field.ErrorList {
	errs := oneOf(path.Child("type"), s.Type, appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType)
	if s.Type == appsv1.RecreateDeploymentStrategyType && s.RollingUpdate != nil {
		errs = append(errs, field.Forbidden(path.Child("rollingUpdate"), "may not be specified when strategy `type` is 'Recreate'"))
	}
	if s.RollingUpdate == nil || s.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return errs
	}
	path = path.Child("rollingUpdate")
	errs = append(errs, amountOrPercent(path.Child("maxUnavailable"), s.RollingUpdate.MaxUnavailable)...)
	errs = append(errs, amountOrPercent(path.Child("maxSurge"), s.RollingUpdate.MaxSurge)...)
	errs = append(errs, percentAtMost100(path.Child("maxUnavailable"), s.RollingUpdate.MaxUnavailable)...)
	if isZeroAmount(s.RollingUpdate.MaxUnavailable) && isZeroAmount(s.RollingUpdate.MaxSurge) {
		errs = append(errs, field.Invalid(path.Child("maxUnavailable"), s.RollingUpdate.MaxUnavailable, "may not be 0 when `maxSurge` is 0"))
	}
	return errs
}

func isZeroAmount(v *intstr.IntOrString) bool {
	n, err := intstr.GetScaledValueFromIntOrPercent(v, 100, true)
	return err == nil && n == 0
}

func validateDeploymentUpdate(obj, old *appsv1.Deployment) field.ErrorList {
	return unchanged(specPath.Child("selector"), obj.Spec.Selector, old.Spec.Selector)
}

func validateReplicaSet(r *appsv1.ReplicaSet) field.ErrorList {
	errs := selectorOf(specPath, r.Spec.Selector, r.Spec.Template.Labels, "deployment")
	errs = append(errs, notNegative(specPath.Child("replicas"), r.Spec.Replicas)...)
	errs = append(errs, notNegative(specPath.Child("minReadySeconds"), &r.Spec.MinReadySeconds)...)
	return append(errs, validateLongRunning(specPath.Child("template"), &r.Spec.Template, "ReplicaSet")...)
}

func validateReplicaSetUpdate(obj, old *appsv1.ReplicaSet) field.ErrorList {
	return unchanged(specPath.Child("selector"), obj.Spec.Selector, old.Spec.Selector)
}

// validateReplicationController differs from ReplicaSet: the selector is a plain map, and
// the template is a pointer.
func validateReplicationController(r *corev1.ReplicationController) field.ErrorList {
	errs := notNegative(specPath.Child("replicas"), r.Spec.Replicas)
	errs = append(errs, notNegative(specPath.Child("minReadySeconds"), &r.Spec.MinReadySeconds)...)
	if len(r.Spec.Selector) == 0 {
		errs = append(errs, field.Required(specPath.Child("selector"), ""))
	}
	if r.Spec.Template == nil {
		return append(errs, field.Required(specPath.Child("template"), ""))
	}
	for key, value := range r.Spec.Selector {
		if r.Spec.Template.Labels[key] != value {
			errs = append(errs, field.Invalid(specPath.Child("template", "metadata", "labels"), r.Spec.Template.Labels, "`selector` does not match template `labels`"))
			break
		}
	}
	return append(errs, validateLongRunning(specPath.Child("template"), r.Spec.Template, "ReplicationController")...)
}

func validateStatefulSet(s *appsv1.StatefulSet) field.ErrorList {
	spec := &s.Spec
	errs := selectorOf(specPath, spec.Selector, spec.Template.Labels, "statefulset")
	errs = append(errs, notNegative(specPath.Child("replicas"), spec.Replicas)...)
	errs = append(errs, notNegative(specPath.Child("minReadySeconds"), &spec.MinReadySeconds)...)
	errs = append(errs, notNegative(specPath.Child("revisionHistoryLimit"), spec.RevisionHistoryLimit)...)
	errs = append(errs, oneOf(specPath.Child("podManagementPolicy"), spec.PodManagementPolicy,
		appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)...)
	update := specPath.Child("updateStrategy")
	errs = append(errs, oneOf(update.Child("type"), spec.UpdateStrategy.Type,
		appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType)...)
	if rolling := spec.UpdateStrategy.RollingUpdate; rolling != nil {
		if spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
			errs = append(errs, field.Invalid(update.Child("rollingUpdate"), rolling, "only allowed for updateStrategy 'RollingUpdate'"))
		}
		errs = append(errs, notNegative(update.Child("rollingUpdate", "partition"), rolling.Partition)...)
	}
	if policy := spec.PersistentVolumeClaimRetentionPolicy; policy != nil {
		for name, value := range map[string]appsv1.PersistentVolumeClaimRetentionPolicyType{
			"whenDeleted": policy.WhenDeleted, "whenScaled": policy.WhenScaled,
		} {
			errs = append(errs, oneOf(specPath.Child("persistentVolumeClaimRetentionPolicy", name), value,
				appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType)...)
		}
	}
	template := spec.Template.DeepCopy()
	for i := range spec.VolumeClaimTemplates {
		// Claim templates become volumes of the pods, so mounts may name them.
		template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: spec.VolumeClaimTemplates[i].Name})
	}
	return append(errs, validateLongRunning(specPath.Child("template"), template, "StatefulSet")...)
}

func validateStatefulSetUpdate(obj, old *appsv1.StatefulSet) field.ErrorList {
	rest := obj.Spec.DeepCopy()
	rest.Replicas, rest.Template, rest.UpdateStrategy = old.Spec.Replicas, old.Spec.Template, old.Spec.UpdateStrategy
	rest.MinReadySeconds, rest.Ordinals = old.Spec.MinReadySeconds, old.Spec.Ordinals
	rest.RevisionHistoryLimit = old.Spec.RevisionHistoryLimit
	rest.PersistentVolumeClaimRetentionPolicy = old.Spec.PersistentVolumeClaimRetentionPolicy
	if len(unchanged(specPath, *rest, old.Spec)) > 0 {
		return field.ErrorList{field.Forbidden(specPath, "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "+
			"'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden")}
	}
	return nil
}

func validateDaemonSet(d *appsv1.DaemonSet) field.ErrorList {
	spec := &d.Spec
	errs := selectorOf(specPath, spec.Selector, spec.Template.Labels, "daemonset")
	errs = append(errs, notNegative(specPath.Child("minReadySeconds"), &spec.MinReadySeconds)...)
	errs = append(errs, notNegative(specPath.Child("revisionHistoryLimit"), spec.RevisionHistoryLimit)...)
	update := specPath.Child("updateStrategy")
	errs = append(errs, oneOf(update.Child("type"), spec.UpdateStrategy.Type,
		appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType)...)
	if rolling := spec.UpdateStrategy.RollingUpdate; rolling != nil && spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		at := update.Child("rollingUpdate")
		errs = append(errs, amountOrPercent(at.Child("maxUnavailable"), rolling.MaxUnavailable)...)
		errs = append(errs, amountOrPercent(at.Child("maxSurge"), rolling.MaxSurge)...)
		noneMissing, noSurge := isZeroAmount(rolling.MaxUnavailable), isZeroAmount(rolling.MaxSurge)
		switch {
		case !noneMissing && !noSurge:
			errs = append(errs, field.Invalid(at.Child("maxSurge"), rolling.MaxSurge, "may not be set when maxUnavailable is non-zero"))
		case noneMissing && noSurge:
			errs = append(errs, field.Required(at.Child("maxUnavailable"), "cannot be 0 when maxSurge is 0"))
		}
	}
	return append(errs, validateLongRunning(specPath.Child("template"), &spec.Template, "DaemonSet")...)
}

func validateDaemonSetUpdate(obj, old *appsv1.DaemonSet) field.ErrorList {
	return unchanged(specPath.Child("selector"), obj.Spec.Selector, old.Spec.Selector)
}

func validateControllerRevision(r *appsv1.ControllerRevision) field.ErrorList {
	errs := notNegative(field.NewPath("revision"), &r.Revision)
	raw := r.Data.Raw
	if raw == nil && r.Data.Object != nil {
		encoded, err := json.Marshal(r.Data.Object)
		if err != nil {
			return append(errs, field.Invalid(field.NewPath("data"), "<value omitted>", "error parsing data: "+err.Error()))
		}
		raw = encoded
	}
	if raw = bytes.TrimSpace(raw); len(raw) == 0 {
		return append(errs, field.Required(field.NewPath("data"), "data is mandatory"))
	}
	if raw[0] != '{' || !json.Valid(raw) {
		errs = append(errs, field.Invalid(field.NewPath("data"), "<value omitted>", "data must be a valid JSON object"))
	}
	return errs
}

func validateControllerRevisionUpdate(obj, old *appsv1.ControllerRevision) field.ErrorList {
	return unchanged(field.NewPath("data"), obj.Data, old.Data)
}
