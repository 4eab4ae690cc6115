package builtin

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/kind"
)

// storageKinds are the kinds of storage.k8s.io: classes, and what CSI drivers and nodes report.
func storageKinds() []*kind.Kind {
	return []*kind.Kind{
		def[storagev1.StorageClass, *storagev1.StorageClass]{
			gv: storagev1.SchemeGroupVersion, plural: "storageclasses", returnsDeleted: true, short: []string{"sc"}, cluster: true,
			validate:       validateStorageClass,
			validateUpdate: validateStorageClassUpdate,
			table:          storageClassTable,
		}.kind(),
		def[storagev1.VolumeAttributesClass, *storagev1.VolumeAttributesClass]{
			gv: storagev1.SchemeGroupVersion, plural: "volumeattributesclasses", returnsDeleted: true, short: []string{"vac"}, cluster: true,
			validate:       validateVolumeAttributesClass,
			validateUpdate: validateVolumeAttributesClassUpdate,
			table:          volumeAttributesClassTable,
		}.kind(),
		def[storagev1.VolumeAttachment, *storagev1.VolumeAttachment]{
			gv: storagev1.SchemeGroupVersion, plural: "volumeattachments", returnsDeleted: true, cluster: true,
			conditional:    true,
			parts:          func(a *storagev1.VolumeAttachment) (any, any) { return &a.Spec, &a.Status },
			validate:       validateVolumeAttachment,
			validateUpdate: validateVolumeAttachmentUpdate,
			validateStatus: func(obj, _ *storagev1.VolumeAttachment) field.ErrorList { return validateAttachmentStatus(&obj.Status) },
			table:          volumeAttachmentTable,
		}.kind(),
		def[storagev1.CSINode, *storagev1.CSINode]{
			gv: storagev1.SchemeGroupVersion, plural: "csinodes", returnsDeleted: true, cluster: true,
			conditional:    true,
			parts:          func(n *storagev1.CSINode) (any, any) { return &n.Spec, &n.Status },
			validate:       validateCSINode,
			validateUpdate: validateCSINodeUpdate,
			table:          csiNodeTable,
		}.kind(),
		def[storagev1.CSIDriver, *storagev1.CSIDriver]{
			gv: storagev1.SchemeGroupVersion, plural: "csidrivers", returnsDeleted: true, cluster: true,
			conditional:    true,
			parts:          func(d *storagev1.CSIDriver) (any, any) { return &d.Spec, nil },
			noStatus:       true,
			generation:     true,
			validate:       validateCSIDriver,
			validateUpdate: validateCSIDriverUpdate,
			table:          csiDriverTable,
		}.kind(),
		def[storagev1.CSIStorageCapacity, *storagev1.CSIStorageCapacity]{
			gv: storagev1.SchemeGroupVersion, plural: "csistoragecapacities",
			conditional:    true,
			validate:       validateStorageCapacity,
			validateUpdate: validateStorageCapacityUpdate,
			table:          storageCapacityTable,
		}.kind(),
	}
}
