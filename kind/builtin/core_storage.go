package builtin

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/exeunt/exeunt/kind"
)

// coreStorageKinds are the core kinds for volumes and quotas.
func coreStorageKinds() []*kind.Kind {
	return []*kind.Kind{
		def[corev1.PersistentVolume, *corev1.PersistentVolume]{
			gv: corev1.SchemeGroupVersion, plural: "persistentvolumes", returnsDeleted: true, short: []string{"pv"}, cluster: true,
			parts:          func(v *corev1.PersistentVolume) (any, any) { return &v.Spec, &v.Status },
			prepareCreate:  func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumePending },
			validate:       validatePersistentVolume,
			validateUpdate: validatePersistentVolumeUpdate,
			table:          persistentVolumeTable,
		}.kind(),
		def[corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaim]{
			gv: corev1.SchemeGroupVersion, plural: "persistentvolumeclaims", returnsDeleted: true, short: []string{"pvc"},
			parts:          func(c *corev1.PersistentVolumeClaim) (any, any) { return &c.Spec, &c.Status },
			prepareCreate:  func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending },
			validate:       validateClaim,
			validateUpdate: validateClaimUpdate,
			table:          claimTable,
		}.kind(),
		def[corev1.LimitRange, *corev1.LimitRange]{
			gv: corev1.SchemeGroupVersion, plural: "limitranges", short: []string{"limits"},
			createOnUpdate: true,
			validate:       validateLimitRange,
			plain:          true,
		}.kind(),
		def[corev1.ResourceQuota, *corev1.ResourceQuota]{
			gv: corev1.SchemeGroupVersion, plural: "resourcequotas", returnsDeleted: true, short: []string{"quota"},
			parts:    func(q *corev1.ResourceQuota) (any, any) { return &q.Spec, &q.Status },
			validate: validateResourceQuota,
			table:    resourceQuotaTable,
		}.kind(),
	}
}
