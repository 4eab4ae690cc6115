package builtin

import (
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// tooMany refuses a list above a limit.
func tooMany(at *field.Path, n, limit int) field.ErrorList {
	if n <= limit {
		return nil
	}
	return field.ErrorList{field.TooMany(at, n, limit)}
}

func validateDeviceClass(c *resourcev1.DeviceClass) field.ErrorList {
	errs := validateDeviceSelectors(specPath.Child("selectors"), c.Spec.Selectors)
	at := specPath.Child("config")
	errs = append(errs, tooMany(at, len(c.Spec.Config), resourcev1.DeviceConfigMaxSize)...)
	for i, config := range c.Spec.Config {
		errs = append(errs, validateDeviceConfig(at.Index(i), config.DeviceConfiguration)...)
	}
	if name := c.Spec.ExtendedResourceName; name != nil && (!strings.Contains(*name, "/") || len(validation.IsQualifiedName(*name)) > 0) {
		errs = append(errs, field.Invalid(specPath.Child("extendedResourceName"), *name, "must be a valid extended resource name"))
	}
	return errs
}

// validateDeviceSelectors checks the size of expressions. It does not compile them: the
// scheduler does.
func validateDeviceSelectors(at *field.Path, selectors []resourcev1.DeviceSelector) field.ErrorList {
	errs := tooMany(at, len(selectors), resourcev1.DeviceSelectorsMaxSize)
	for i, s := range selectors {
		switch {
		case s.CEL == nil:
			errs = append(errs, field.Required(at.Index(i).Child("cel"), ""))
		case s.CEL.Expression == "":
			errs = append(errs, field.Required(at.Index(i).Child("cel", "expression"), ""))
		case len(s.CEL.Expression) > resourcev1.CELSelectorExpressionMaxLength:
			errs = append(errs, field.TooLong(at.Index(i).Child("cel", "expression"), "", resourcev1.CELSelectorExpressionMaxLength))
		}
	}
	return errs
}

func validateDeviceConfig(at *field.Path, c resourcev1.DeviceConfiguration) field.ErrorList {
	if c.Opaque == nil {
		return field.ErrorList{field.Required(at.Child("opaque"), "")}
	}
	errs := driverName(at.Child("opaque", "driver"), c.Opaque.Driver)
	switch parameters := at.Child("opaque", "parameters"); {
	case len(c.Opaque.Parameters.Raw) == 0:
		errs = append(errs, field.Required(parameters, ""))
	case len(c.Opaque.Parameters.Raw) > resourcev1.OpaqueParametersMaxLength:
		errs = append(errs, field.TooLong(parameters, "", resourcev1.OpaqueParametersMaxLength))
	}
	return errs
}

// validateDeviceClaim validates the spec at a path. Configurations and constraints name
// requests of the claim, or their subrequests as request/subrequest.
func validateDeviceClaim(spec *field.Path, c *resourcev1.DeviceClaim) field.ErrorList {
	at := spec.Child("devices")
	errs := tooMany(at.Child("requests"), len(c.Requests), resourcev1.DeviceRequestsMaxSize)
	names := map[string]bool{}
	for i := range c.Requests {
		errs = append(errs, validateDeviceRequest(at.Child("requests").Index(i), &c.Requests[i], names)...)
	}
	named := func(at *field.Path, requests []string) field.ErrorList {
		var errs field.ErrorList
		for i, name := range requests {
			if !names[name] {
				errs = append(errs, field.Invalid(at.Index(i), name, "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"))
			}
		}
		return errs
	}
	errs = append(errs, tooMany(at.Child("constraints"), len(c.Constraints), resourcev1.DeviceConstraintsMaxSize)...)
	for i, constraint := range c.Constraints {
		at := at.Child("constraints").Index(i)
		errs = append(errs, named(at.Child("requests"), constraint.Requests)...)
		if (constraint.MatchAttribute == nil) == (constraint.DistinctAttribute == nil) {
			errs = append(errs, field.Required(at, "exactly one of `matchAttribute` and `distinctAttribute` is required"))
		}
	}
	errs = append(errs, tooMany(at.Child("config"), len(c.Config), resourcev1.DeviceConfigMaxSize)...)
	for i, config := range c.Config {
		at := at.Child("config").Index(i)
		errs = append(errs, named(at.Child("requests"), config.Requests)...)
		errs = append(errs, validateDeviceConfig(at, config.DeviceConfiguration)...)
	}
	return errs
}

// validateDeviceRequest adds the names of the request to names.
func validateDeviceRequest(at *field.Path, r *resourcev1.DeviceRequest, names map[string]bool) field.ErrorList {
	errs := requiredName(at.Child("name"), r.Name, validation.IsDNS1123Label)
	if names[r.Name] {
		errs = append(errs, field.Duplicate(at, r.Name))
	}
	names[r.Name] = true
	if r.Exactly == nil && len(r.FirstAvailable) == 0 {
		return append(errs, field.Required(at, "exactly one of `exactly` or `firstAvailable` is required"))
	}
	if r.Exactly != nil && len(r.FirstAvailable) > 0 {
		return append(errs, field.Invalid(at, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"))
	}
	if e := r.Exactly; e != nil {
		return append(errs, validateDeviceDemand(at.Child("exactly"), e.DeviceClassName, e.Selectors, e.AllocationMode, e.Count)...)
	}
	at = at.Child("firstAvailable")
	errs = append(errs, tooMany(at, len(r.FirstAvailable), resourcev1.FirstAvailableDeviceRequestMaxSize)...)
	for i, s := range r.FirstAvailable {
		errs = append(errs, requiredName(at.Index(i).Child("name"), s.Name, validation.IsDNS1123Label)...)
		name := r.Name + "/" + s.Name
		if names[name] {
			errs = append(errs, field.Duplicate(at.Index(i), s.Name))
		}
		names[name] = true
		errs = append(errs, validateDeviceDemand(at.Index(i), s.DeviceClassName, s.Selectors, s.AllocationMode, s.Count)...)
	}
	return errs
}

func validateDeviceDemand(at *field.Path, class string, selectors []resourcev1.DeviceSelector, mode resourcev1.DeviceAllocationMode, count int64) field.ErrorList {
	errs := requiredName(at.Child("deviceClassName"), class, validation.IsDNS1123Subdomain)
	errs = append(errs, validateDeviceSelectors(at.Child("selectors"), selectors)...)
	errs = append(errs, oneOf(at.Child("allocationMode"), mode, resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount)...)
	switch {
	case mode == resourcev1.DeviceAllocationModeAll && count != 0:
		errs = append(errs, field.Invalid(at.Child("count"), count, fmt.Sprintf("must not be specified when allocationMode is '%s'", mode)))
	case mode == resourcev1.DeviceAllocationModeExactCount && count <= 0:
		errs = append(errs, field.Invalid(at.Child("count"), count, "must be greater than zero"))
	}
	return errs
}

// validateResourceClaimStatus: an allocation does not change while it exists, and only an
// allocated claim can be reserved.
func validateResourceClaimStatus(obj, old *resourcev1.ResourceClaim) field.ErrorList {
	at := field.NewPath("status")
	s := &obj.Status
	errs := tooMany(at.Child("reservedFor"), len(s.ReservedFor), resourcev1.ResourceClaimReservedForMaxSize)
	for i, user := range s.ReservedFor {
		at := at.Child("reservedFor").Index(i)
		errs = append(errs, required(at.Child("resource"), user.Resource)...)
		errs = append(errs, required(at.Child("name"), user.Name)...)
		errs = append(errs, required(at.Child("uid"), string(user.UID))...)
		if obj.DeletionTimestamp != nil && !slices.Contains(old.Status.ReservedFor, user) {
			errs = append(errs, field.Forbidden(at, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"))
		}
	}
	if len(s.ReservedFor) > 0 && s.Allocation == nil {
		errs = append(errs, field.Forbidden(at.Child("reservedFor"), "may not be specified when `allocated` is not set"))
	}
	if s.Allocation != nil && old.Status.Allocation != nil {
		errs = append(errs, unchanged(at.Child("allocation"), s.Allocation, old.Status.Allocation)...)
	}
	return errs
}

func validateResourceSlice(s *resourcev1.ResourceSlice) field.ErrorList {
	spec := &s.Spec
	errs := driverName(specPath.Child("driver"), spec.Driver)
	pool := specPath.Child("pool")
	for _, part := range strings.Split(spec.Pool.Name, "/") {
		errs = append(errs, requiredName(pool.Child("name"), part, validation.IsDNS1123Subdomain)...)
	}
	errs = append(errs, positive(pool.Child("resourceSliceCount"), &spec.Pool.ResourceSliceCount)...)
	errs = append(errs, notNegative(pool.Child("generation"), &spec.Pool.Generation)...)
	nodes := 0
	for _, set := range []bool{deref(spec.NodeName, "") != "", spec.NodeSelector != nil, deref(spec.AllNodes, false), deref(spec.PerDeviceNodeSelection, false)} {
		if set {
			nodes++
		}
	}
	if nodes != 1 {
		errs = append(errs, field.Required(specPath, "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"))
	}
	if spec.SharedCounters != nil && spec.Devices != nil {
		errs = append(errs, field.Invalid(specPath, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	at := specPath.Child("devices")
	errs = append(errs, tooMany(at, len(spec.Devices), resourcev1.ResourceSliceMaxDevices)...)
	names := map[string]bool{}
	for i := range spec.Devices {
		errs = append(errs, validateDevice(at.Index(i), &spec.Devices[i], deref(spec.PerDeviceNodeSelection, false))...)
		if names[spec.Devices[i].Name] {
			errs = append(errs, field.Duplicate(at.Index(i), spec.Devices[i].Name))
		}
		names[spec.Devices[i].Name] = true
	}
	return append(errs, tooMany(specPath.Child("sharedCounters"), len(spec.SharedCounters), resourcev1.ResourceSliceMaxCounterSets)...)
}

func validateDevice(at *field.Path, d *resourcev1.Device, ownNodes bool) field.ErrorList {
	errs := requiredName(at.Child("name"), d.Name, validation.IsDNS1123Label)
	if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		errs = append(errs, field.Invalid(at, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice)))
	}
	errs = append(errs, tooMany(at.Child("taints"), len(d.Taints), resourcev1.DeviceTaintsMaxLength)...)
	for i, taint := range d.Taints {
		errs = append(errs, validateDeviceTaint(at.Child("taints").Index(i), taint)...)
	}
	if !ownNodes && (d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil) {
		errs = append(errs, field.Invalid(at, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"))
	}
	return errs
}

func validateDeviceTaint(at *field.Path, t resourcev1.DeviceTaint) field.ErrorList {
	errs := invalids(at.Child("key"), t.Key, validation.IsQualifiedName(t.Key))
	errs = append(errs, invalids(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
	return append(errs, oneOf(at.Child("effect"), t.Effect,
		resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone)...)
}

func validateResourceSliceUpdate(obj, old *resourcev1.ResourceSlice) field.ErrorList {
	errs := unchanged(specPath.Child("pool", "name"), obj.Spec.Pool.Name, old.Spec.Pool.Name)
	errs = append(errs, unchanged(specPath.Child("driver"), obj.Spec.Driver, old.Spec.Driver)...)
	return append(errs, unchanged(specPath.Child("nodeName"), obj.Spec.NodeName, old.Spec.NodeName)...)
}
