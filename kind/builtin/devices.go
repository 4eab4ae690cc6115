package builtin

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/kind"
)

// deviceKinds are the kinds of resource.k8s.io: devices, and claims on them.
func deviceKinds() []*kind.Kind {
	return []*kind.Kind{
		def[resourcev1.DeviceClass, *resourcev1.DeviceClass]{
			gv: resourcev1.SchemeGroupVersion, plural: "deviceclasses", returnsDeleted: true, cluster: true,
			parts:      func(c *resourcev1.DeviceClass) (any, any) { return &c.Spec, nil },
			noStatus:   true,
			generation: true,
			validate:   validateDeviceClass,
		}.kind(),
		def[resourcev1.ResourceClaim, *resourcev1.ResourceClaim]{
			gv: resourcev1.SchemeGroupVersion, plural: "resourceclaims", returnsDeleted: true,
			parts: func(c *resourcev1.ResourceClaim) (any, any) { return &c.Spec, &c.Status },
			validateCreate: func(c *resourcev1.ResourceClaim) field.ErrorList {
				return validateDeviceClaim(specPath, &c.Spec.Devices)
			},
			validateUpdate: func(obj, old *resourcev1.ResourceClaim) field.ErrorList {
				return unchanged(specPath, obj.Spec, old.Spec)
			},
			validateStatus: validateResourceClaimStatus,
			table:          resourceClaimTable,
		}.kind(),
		def[resourcev1.ResourceClaimTemplate, *resourcev1.ResourceClaimTemplate]{
			gv: resourcev1.SchemeGroupVersion, plural: "resourceclaimtemplates", returnsDeleted: true,
			validateCreate: func(t *resourcev1.ResourceClaimTemplate) field.ErrorList {
				return validateDeviceClaim(specPath.Child("spec"), &t.Spec.Spec.Devices)
			},
			validateUpdate: func(obj, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
				return unchanged(specPath, obj.Spec, old.Spec)
			},
		}.kind(),
		def[resourcev1.ResourceSlice, *resourcev1.ResourceSlice]{
			gv: resourcev1.SchemeGroupVersion, plural: "resourceslices", returnsDeleted: true, cluster: true,
			parts:          func(s *resourcev1.ResourceSlice) (any, any) { return &s.Spec, nil },
			noStatus:       true,
			generation:     true,
			validate:       validateResourceSlice,
			validateUpdate: validateResourceSliceUpdate,
			table:          resourceSliceTable,
		}.kind(),
		def[resourcev1.DeviceTaintRule, *resourcev1.DeviceTaintRule]{
			gv: resourcev1.SchemeGroupVersion, plural: "devicetaintrules", returnsDeleted: true, cluster: true,
			parts:      func(r *resourcev1.DeviceTaintRule) (any, any) { return &r.Spec, &r.Status },
			generation: true,
			validate: func(r *resourcev1.DeviceTaintRule) field.ErrorList {
				return validateDeviceTaint(specPath.Child("taint"), r.Spec.Taint)
			},
			validateStatus: func(obj, _ *resourcev1.DeviceTaintRule) field.ErrorList {
				return metav1validation.ValidateConditions(obj.Status.Conditions, field.NewPath("status", "conditions"))
			},
			table: deviceTaintRuleTable,
		}.kind(),
	}
}
