package builtin

import (
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
)

func volumeAttributesClassTable() table[*storagev1.VolumeAttributesClass] {
	return table[*storagev1.VolumeAttributesClass]{
		columns: columns(text("DriverName", "The CSI driver.")),
		row: func(c *storagev1.VolumeAttributesClass, now time.Time) []any {
			return []any{c.Name, c.DriverName, age(c, now)}
		},
	}
}

func volumeAttachmentTable() table[*storagev1.VolumeAttachment] {
	return table[*storagev1.VolumeAttachment]{
		columns: columns(
			text("Attacher", "The driver that attaches the volume."),
			text("PV", "The persistent volume."),
			text("Node", "The node that the volume is attached to."),
			boolean("Attached", "Whether the volume is attached."),
		),
		row: func(a *storagev1.VolumeAttachment, now time.Time) []any {
			return []any{a.Name, a.Spec.Attacher, deref(a.Spec.Source.PersistentVolumeName, ""), a.Spec.NodeName, a.Status.Attached, age(a, now)}
		},
	}
}

func csiNodeTable() table[*storagev1.CSINode] {
	return table[*storagev1.CSINode]{
		columns: columns(number("Drivers", "The number of CSI drivers on the node.")),
		row: func(n *storagev1.CSINode, now time.Time) []any {
			return []any{n.Name, int64(len(n.Spec.Drivers)), age(n, now)}
		},
	}
}

func csiDriverTable() table[*storagev1.CSIDriver] {
	return table[*storagev1.CSIDriver]{
		columns: columns(
			boolean("AttachRequired", "Whether volumes must be attached before they are mounted."),
			boolean("PodInfoOnMount", "Whether the driver gets the pod's name with a mount."),
			boolean("StorageCapacity", "Whether the scheduler considers the capacity that the driver reports."),
			text("TokenRequests", "The audiences of the service account tokens that the driver gets."),
			boolean("RequiresRepublish", "Whether mounted volumes are published again and again."),
			text("Modes", "The volumes that the driver supports."),
		),
		row: func(d *storagev1.CSIDriver, now time.Time) []any {
			tokens := unset
			if d.Spec.TokenRequests != nil {
				var audiences []string
				for _, t := range d.Spec.TokenRequests {
					audiences = append(audiences, t.Audience)
				}
				tokens = strings.Join(audiences, ",")
			}
			var modes []string
			for _, mode := range d.Spec.VolumeLifecycleModes {
				modes = append(modes, string(mode))
			}
			return []any{
				d.Name, deref(d.Spec.AttachRequired, true), deref(d.Spec.PodInfoOnMount, false), deref(d.Spec.StorageCapacity, false),
				tokens, deref(d.Spec.RequiresRepublish, false), or(strings.Join(modes, ","), none), age(d, now),
			}
		},
	}
}

// storageCapacityTable has no age, as in Kubernetes.
func storageCapacityTable() table[*storagev1.CSIStorageCapacity] {
	return table[*storagev1.CSIStorageCapacity]{
		columns: named(
			text("StorageClassName", "The class that the capacity is for."),
			text("Capacity", "The capacity that the driver reported."),
		),
		row: func(c *storagev1.CSIStorageCapacity, _ time.Time) []any {
			capacity := unset
			if c.Capacity != nil {
				capacity = c.Capacity.String()
			}
			return []any{c.Name, c.StorageClassName, capacity}
		},
	}
}
