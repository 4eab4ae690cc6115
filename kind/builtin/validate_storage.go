package builtin

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateAccessModes(at *field.Path, modes []corev1.PersistentVolumeAccessMode) field.ErrorList {
	if len(modes) == 0 {
		return field.ErrorList{field.Required(at, "at least 1 access mode is required")}
	}
	var errs field.ErrorList
	for i, mode := range modes {
		errs = append(errs, oneOf(at.Index(i), mode,
			corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)...)
	}
	return errs
}

func validateVolumeMode(mode *corev1.PersistentVolumeMode) field.ErrorList {
	return oneOfPtr(specPath.Child("volumeMode"), mode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
}

func validatePersistentVolume(v *corev1.PersistentVolume) field.ErrorList {
	errs := validateAccessModes(specPath.Child("accessModes"), v.Spec.AccessModes)
	errs = append(errs, validateVolumeMode(v.Spec.VolumeMode)...)
	capacity := specPath.Child("capacity")
	if size, set := v.Spec.Capacity[corev1.ResourceStorage]; !set || len(v.Spec.Capacity) > 1 {
		errs = append(errs, field.NotSupported(capacity, v.Spec.Capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	} else if size.Sign() <= 0 {
		errs = append(errs, field.Invalid(capacity.Key("storage"), size.String(), "must be greater than zero"))
	}
	if v.Spec.PersistentVolumeSource == (corev1.PersistentVolumeSource{}) {
		errs = append(errs, field.Required(specPath, "must specify a volume type"))
	}
	return append(errs, oneOf(specPath.Child("persistentVolumeReclaimPolicy"), v.Spec.PersistentVolumeReclaimPolicy,
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)...)
}

func validatePersistentVolumeUpdate(obj, old *corev1.PersistentVolume) field.ErrorList {
	errs := unchanged(specPath.Child("volumeMode"), obj.Spec.VolumeMode, old.Spec.VolumeMode)
	if len(unchanged(specPath, obj.Spec.PersistentVolumeSource, old.Spec.PersistentVolumeSource)) > 0 {
		errs = append(errs, field.Forbidden(specPath.Child("persistentvolumesource"), "spec.persistentvolumesource is immutable after creation"))
	}
	return errs
}

func validateClaim(c *corev1.PersistentVolumeClaim) field.ErrorList {
	errs := validateAccessModes(specPath.Child("accessModes"), c.Spec.AccessModes)
	errs = append(errs, validateVolumeMode(c.Spec.VolumeMode)...)
	errs = append(errs, labelSelector(specPath.Child("selector"), c.Spec.Selector)...)
	storage := specPath.Child("resources", "requests").Key("storage")
	if size, set := c.Spec.Resources.Requests[corev1.ResourceStorage]; !set {
		errs = append(errs, field.Required(storage, ""))
	} else if size.Sign() <= 0 {
		errs = append(errs, field.Invalid(storage, size.String(), "must be greater than zero"))
	}
	return errs
}

// validateClaimUpdate allows a claim to be bound once, and a bound claim to grow.
func validateClaimUpdate(obj, old *corev1.PersistentVolumeClaim) field.ErrorList {
	rest := obj.Spec.DeepCopy()
	if old.Spec.VolumeName == "" {
		rest.VolumeName = ""
	}
	if old.Spec.StorageClassName == nil {
		rest.StorageClassName = nil // a default class may be set later
	}
	rest.VolumeAttributesClassName = old.Spec.VolumeAttributesClassName
	size, was := obj.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if old.Status.Phase == corev1.ClaimBound && rest.Resources.Requests != nil {
		rest.Resources.Requests[corev1.ResourceStorage] = was
	}
	if len(unchanged(specPath, *rest, old.Spec)) > 0 {
		return field.ErrorList{field.Forbidden(specPath, "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims")}
	}
	if size.Cmp(was) < 0 {
		return field.ErrorList{field.Forbidden(specPath.Child("resources", "requests", "storage"), "field can not be less than previous value")}
	}
	return nil
}

func validateLimitRange(l *corev1.LimitRange) field.ErrorList {
	var errs field.ErrorList
	for i, item := range l.Spec.Limits {
		at := specPath.Child("limits").Index(i)
		errs = append(errs, required(at.Child("type"), string(item.Type))...)
		for _, name := range sortedKeys(item.Min) {
			least, most := item.Min[name], item.Max[name]
			if _, set := item.Max[name]; set && least.Cmp(most) > 0 {
				errs = append(errs, field.Invalid(at.Child("min").Key(string(name)), least.String(), "min value "+least.String()+" is greater than max value "+most.String()))
			}
		}
		for name, list := range map[string]corev1.ResourceList{
			"min": item.Min, "max": item.Max, "default": item.Default, "defaultRequest": item.DefaultRequest,
		} {
			for _, r := range sortedKeys(list) {
				errs = append(errs, quantityNotNegative(at.Child(name).Key(string(r)), list[r])...)
			}
		}
	}
	return errs
}

func validateResourceQuota(q *corev1.ResourceQuota) field.ErrorList {
	var errs field.ErrorList
	for _, name := range sortedKeys(q.Spec.Hard) {
		errs = append(errs, quantityNotNegative(specPath.Child("hard").Key(string(name)), q.Spec.Hard[name])...)
	}
	return errs
}
