package builtin

import (
	"fmt"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// accessModes returns the usual short forms, in a fixed order.
func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	short := []struct {
		mode corev1.PersistentVolumeAccessMode
		name string
	}{
		{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"},
		{corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"},
	}
	var out []string
	for _, s := range short {
		for _, m := range modes {
			if m == s.mode {
				out = append(out, s.name)
				break
			}
		}
	}
	return strings.Join(out, ",")
}

func persistentVolumeTable() table[*corev1.PersistentVolume] {
	cols := columns(
		text("Capacity", "The size of the volume."),
		text("Access Modes", "How the volume can be mounted."),
		text("Reclaim Policy", "What happens to the volume when its claim goes."),
		text("Status", "Whether the volume is bound to a claim."),
		text("Claim", "The claim that the volume is bound to."),
		text("StorageClass", "The class the volume belongs to."),
		text("VolumeAttributesClass", "The class of the volume's attributes."),
		text("Reason", "Why the volume is in this state."),
	)
	return table[*corev1.PersistentVolume]{
		columns: append(cols, wide(text("VolumeMode", "Whether the volume is a filesystem or a device."))),
		row: func(v *corev1.PersistentVolume, now time.Time) []any {
			claim := ""
			if ref := v.Spec.ClaimRef; ref != nil {
				claim = ref.Namespace + "/" + ref.Name
			}
			status := string(v.Status.Phase)
			if v.DeletionTimestamp != nil {
				status = "Terminating"
			}
			capacity := v.Spec.Capacity[corev1.ResourceStorage]
			return []any{
				v.Name, capacity.String(), accessModes(v.Spec.AccessModes), string(v.Spec.PersistentVolumeReclaimPolicy),
				status, claim, or(v.Annotations[corev1.BetaStorageClassAnnotation], v.Spec.StorageClassName),
				deref(v.Spec.VolumeAttributesClassName, unset), v.Status.Reason, age(v, now),
				string(deref(v.Spec.VolumeMode, unset)),
			}
		},
	}
}

func claimTable() table[*corev1.PersistentVolumeClaim] {
	cols := columns(
		text("Status", "Whether the claim has a volume."),
		text("Volume", "The volume that the claim is bound to."),
		text("Capacity", "The size of that volume."),
		text("Access Modes", "How that volume can be mounted."),
		text("StorageClass", "The class that is asked for."),
		text("VolumeAttributesClass", "The class of attributes that is asked for."),
	)
	return table[*corev1.PersistentVolumeClaim]{
		columns: append(cols, wide(text("VolumeMode", "Whether a filesystem or a device is asked for."))),
		row: func(c *corev1.PersistentVolumeClaim, now time.Time) []any {
			status := string(c.Status.Phase)
			if c.DeletionTimestamp != nil {
				status = "Terminating"
			}
			capacity, modes := "", ""
			if c.Spec.VolumeName != "" {
				size := c.Status.Capacity[corev1.ResourceStorage]
				capacity, modes = size.String(), accessModes(c.Status.AccessModes)
			}
			class := or(c.Annotations[corev1.BetaStorageClassAnnotation], deref(c.Spec.StorageClassName, ""))
			return []any{
				c.Name, status, c.Spec.VolumeName, capacity, modes, class,
				deref(c.Spec.VolumeAttributesClassName, unset), age(c, now), string(deref(c.Spec.VolumeMode, unset)),
			}
		},
	}
}

func resourceQuotaTable() table[*corev1.ResourceQuota] {
	return table[*corev1.ResourceQuota]{
		columns: columns(
			text("Request", "What may be requested, and how much of it is."),
			text("Limit", "Which limits may be set, and how much of them are."),
		),
		row: func(q *corev1.ResourceQuota, now time.Time) []any {
			var requests, limits, names []string
			for name := range q.Status.Hard {
				names = append(names, string(name))
			}
			sort.Strings(names)
			for _, name := range names {
				used, hard := q.Status.Used[corev1.ResourceName(name)], q.Status.Hard[corev1.ResourceName(name)]
				cell := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
				if strings.HasPrefix(name, "limits.") {
					limits = append(limits, cell)
				} else {
					requests = append(requests, cell)
				}
			}
			return []any{q.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), age(q, now)}
		},
	}
}

func storageClassTable() table[*storagev1.StorageClass] {
	return table[*storagev1.StorageClass]{
		columns: columns(
			text("Provisioner", "Who makes the volumes."),
			text("ReclaimPolicy", "What happens to a volume when its claim goes."),
			text("VolumeBindingMode", "When a claim is bound."),
			text("AllowVolumeExpansion", "Whether volumes can grow."),
		),
		row: func(c *storagev1.StorageClass, now time.Time) []any {
			return []any{
				c.Name, c.Provisioner, string(deref(c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)),
				string(deref(c.VolumeBindingMode, storagev1.VolumeBindingImmediate)), deref(c.AllowVolumeExpansion, false), age(c, now),
			}
		},
	}
}

func priorityClassTable() table[*schedulingv1.PriorityClass] {
	return table[*schedulingv1.PriorityClass]{
		columns: append(columns(
			number("Value", "How important pods of the class are."),
			boolean("Global-Default", "Whether pods without a class are of this one."),
		), text("PreemptionPolicy", "Whether pods of the class push others out.")),
		row: func(c *schedulingv1.PriorityClass, now time.Time) []any {
			return []any{c.Name, int64(c.Value), c.GlobalDefault, age(c, now), string(deref(c.PreemptionPolicy, ""))}
		},
	}
}
