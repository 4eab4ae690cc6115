package builtin

import (
	"fmt"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of storage.k8s.io, in bytes and entries.
const (
	maxParameterBytes  = 256 << 10
	maxParameters      = 512
	maxMetadataBytes   = 256 << 10
	maxVolumeError     = 1024
	maxCSINodeID       = 256
	maxCSIDriverName   = 63
	leastTokenSeconds  = 600
	leastUpdateSeconds = 10
)

func validateVolumeAttributesClass(c *storagev1.VolumeAttributesClass) field.ErrorList {
	errs := requiredName(field.NewPath("driverName"), c.DriverName, func(s string) []string {
		return validation.IsQualifiedName(strings.ToLower(s))
	})
	at := field.NewPath("parameters")
	size := 0
	for key, value := range c.Parameters {
		size += len(key) + len(value)
		if key == "" {
			errs = append(errs, field.Invalid(at, key, "field can not be empty."))
		}
	}
	switch {
	case len(c.Parameters) == 0:
		errs = append(errs, field.Required(at, "must contain at least one key/value pair"))
	case len(c.Parameters) > maxParameters:
		errs = append(errs, field.TooLong(at, "", maxParameters))
	case size > maxParameterBytes:
		errs = append(errs, field.TooLong(at, "", maxParameterBytes))
	}
	return errs
}

func validateVolumeAttributesClassUpdate(obj, old *storagev1.VolumeAttributesClass) field.ErrorList {
	var errs field.ErrorList
	if obj.DriverName != old.DriverName {
		errs = append(errs, field.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden."))
	}
	if !equality.Semantic.DeepEqual(obj.Parameters, old.Parameters) {
		errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
	}
	return errs
}

// driverName requires the name of a CSI or device driver.
func driverName(at *field.Path, name string) field.ErrorList {
	if len(name) > maxCSIDriverName {
		return field.ErrorList{field.TooLong(at, name, maxCSIDriverName)}
	}
	return requiredName(at, name, func(s string) []string { return validation.IsDNS1123Subdomain(strings.ToLower(s)) })
}

func validateVolumeAttachment(a *storagev1.VolumeAttachment) field.ErrorList {
	errs := driverName(specPath.Child("attacher"), a.Spec.Attacher)
	errs = append(errs, invalids(specPath.Child("nodeName"), a.Spec.NodeName, validation.IsDNS1123Subdomain(a.Spec.NodeName))...)
	at, source := specPath.Child("source"), a.Spec.Source
	switch {
	case source.InlineVolumeSpec == nil && source.PersistentVolumeName == nil:
		errs = append(errs, field.Required(at, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case source.InlineVolumeSpec != nil && source.PersistentVolumeName != nil:
		errs = append(errs, field.Forbidden(at, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case source.PersistentVolumeName != nil:
		errs = append(errs, requiredName(at.Child("persistentVolumeName"), *source.PersistentVolumeName, validation.IsDNS1123Subdomain)...)
	}
	return errs
}

func validateVolumeAttachmentUpdate(obj, old *storagev1.VolumeAttachment) field.ErrorList {
	return unchanged(specPath, obj.Spec, old.Spec)
}

func validateAttachmentStatus(s *storagev1.VolumeAttachmentStatus) field.ErrorList {
	var errs field.ErrorList
	at, size := field.NewPath("status"), 0
	for key, value := range s.AttachmentMetadata {
		size += len(key) + len(value)
	}
	if size > maxMetadataBytes {
		errs = append(errs, field.TooLong(at.Child("attachmentMetadata"), "", maxMetadataBytes))
	}
	for _, e := range []struct {
		name string
		err  *storagev1.VolumeError
	}{{"attachError", s.AttachError}, {"detachError", s.DetachError}} {
		if e.err == nil {
			continue
		}
		if len(e.err.Message) > maxVolumeError {
			errs = append(errs, field.TooLong(at.Child(e.name, "message"), "", maxVolumeError))
		}
		errs = append(errs, notNegative(at.Child(e.name, "errorCode"), e.err.ErrorCode)...)
	}
	return errs
}

func validateCSINode(n *storagev1.CSINode) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, d := range n.Spec.Drivers {
		at := specPath.Child("drivers").Index(i)
		errs = append(errs, driverName(at.Child("name"), d.Name)...)
		if names[d.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
		}
		names[d.Name] = true
		errs = append(errs, required(at.Child("nodeID"), d.NodeID)...)
		if len(d.NodeID) > maxCSINodeID {
			errs = append(errs, field.Invalid(at.Child("nodeID"), d.NodeID, fmt.Sprintf("must be %d characters or less", maxCSINodeID)))
		}
		if d.Allocatable != nil {
			errs = append(errs, notNegative(at.Child("allocatable", "count"), d.Allocatable.Count)...)
		}
		keys := map[string]bool{}
		for _, key := range d.TopologyKeys {
			if keys[key] {
				errs = append(errs, field.Duplicate(at, key))
			}
			keys[key] = true
			errs = append(errs, requiredName(at, key, validation.IsQualifiedName)...)
		}
	}
	return errs
}

// validateCSINodeUpdate allows drivers to come and go; of one that stays only the number of
// volumes may change.
func validateCSINodeUpdate(obj, old *storagev1.CSINode) field.ErrorList {
	var errs field.ErrorList
	before := map[string]storagev1.CSINodeDriver{}
	for _, d := range old.Spec.Drivers {
		before[d.Name] = d
	}
	for _, d := range obj.Spec.Drivers {
		was, known := before[d.Name]
		if !known {
			continue
		}
		d.Allocatable, was.Allocatable = nil, nil
		errs = append(errs, unchanged(specPath.Child("drivers"), d, was)...)
	}
	return errs
}

func validateCSIDriver(d *storagev1.CSIDriver) field.ErrorList {
	errs := oneOfPtr(specPath.Child("fsGroupPolicy"), d.Spec.FSGroupPolicy,
		storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	for _, mode := range d.Spec.VolumeLifecycleModes {
		errs = append(errs, oneOf(specPath.Child("volumeLifecycleModes"), mode,
			storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent)...)
	}
	audiences := map[string]bool{}
	for i, token := range d.Spec.TokenRequests {
		at := specPath.Child("tokenRequests").Index(i)
		if audiences[token.Audience] {
			errs = append(errs, field.Duplicate(at.Child("audience"), token.Audience))
		}
		audiences[token.Audience] = true
		switch seconds := token.ExpirationSeconds; {
		case seconds == nil:
		case *seconds < leastTokenSeconds:
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *seconds, "may not specify a duration less than 10 minutes"))
		case *seconds > 1<<32:
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *seconds, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	if period := d.Spec.NodeAllocatableUpdatePeriodSeconds; period != nil && *period < leastUpdateSeconds {
		errs = append(errs, field.Invalid(specPath.Child("nodeAllocatableUpdatePeriodSeconds"), *period, "must be greater than or equal to 10 seconds"))
	}
	if secrets := d.Spec.ServiceAccountTokenInSecrets; secrets != nil && len(d.Spec.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(specPath.Child("serviceAccountTokenInSecrets"), *secrets, "serviceAccountTokenInSecrets is set but no tokenRequests are specified"))
	}
	return errs
}

func validateCSIDriverUpdate(obj, old *storagev1.CSIDriver) field.ErrorList {
	errs := unchanged(specPath.Child("attachedRequired"), obj.Spec.AttachRequired, old.Spec.AttachRequired)
	return append(errs, unchanged(specPath.Child("volumeLifecycleModes"), obj.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes)...)
}

func validateStorageCapacity(c *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := labelSelector(field.NewPath("nodeTopology"), c.NodeTopology)
	errs = append(errs, invalids(field.NewPath("storageClassName"), c.StorageClassName, validation.IsDNS1123Subdomain(c.StorageClassName))...)
	if c.Capacity != nil {
		errs = append(errs, quantityNotNegative(field.NewPath("capacity"), *c.Capacity)...)
	}
	return errs
}

func validateStorageCapacityUpdate(obj, old *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := unchanged(field.NewPath("nodeTopology"), obj.NodeTopology, old.NodeTopology)
	return append(errs, unchanged(field.NewPath("storageClassName"), obj.StorageClassName, old.StorageClassName)...)
}
