package quota

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// ofClass is between the name of a storage class and a name of claimNames.
const ofClass = ".storageclass.storage.k8s.io/"

func createOrUpdate(a admission.Attributes) bool {
	if a.GetSubresource() != "" {
		return false
	}
	return a.GetOperation() == admission.Create || a.GetOperation() == admission.Update
}

var serviceEvaluator = &evaluator{
	resource: services,
	handles:  createOrUpdate,
	matching: func(name corev1.ResourceName) bool {
		switch name {
		case "count/services", corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers:
			return true
		}
		return false
	},
	scope: generic.MatchesNoScopeFunc,
	usage: func(obj runtime.Object) corev1.ResourceList { return serviceUsage(obj.(*corev1.Service)) },
}

func serviceUsage(svc *corev1.Service) corev1.ResourceList {
	ports, balancers := 0, 0
	switch svc.Spec.Type {
	case corev1.ServiceTypeNodePort:
		ports = len(svc.Spec.Ports)
	case corev1.ServiceTypeLoadBalancer:
		ports, balancers = len(svc.Spec.Ports), 1
		if allocate := svc.Spec.AllocateLoadBalancerNodePorts; allocate != nil && !*allocate {
			ports = 0
			for _, p := range svc.Spec.Ports {
				if p.NodePort != 0 {
					ports++
				}
			}
		}
	}
	return corev1.ResourceList{
		"count/services": one(), corev1.ResourceServices: one(),
		corev1.ResourceServicesNodePorts: number(ports), corev1.ResourceServicesLoadBalancers: number(balancers),
	}
}

var claimEvaluator = &evaluator{
	resource: claims,
	handles: func(a admission.Attributes) bool {
		return createOrUpdate(a)
	},
	matching: func(name corev1.ResourceName) bool {
		if _, of, ok := strings.Cut(string(name), ofClass); ok {
			name = corev1.ResourceName(of)
		}
		return name == "count/persistentvolumeclaims" || name == corev1.ResourcePersistentVolumeClaims || name == corev1.ResourceRequestsStorage
	},
	scope: claimInScope,
	usage: func(obj runtime.Object) corev1.ResourceList { return claimUsage(obj.(*corev1.PersistentVolumeClaim)) },
}

func claimUsage(pvc *corev1.PersistentVolumeClaim) corev1.ResourceList {
	used := corev1.ResourceList{"count/persistentvolumeclaims": one(), corev1.ResourcePersistentVolumeClaims: one()}
	class, ok := pvc.Annotations[corev1.BetaStorageClassAnnotation]
	if !ok && pvc.Spec.StorageClassName != nil {
		class = *pvc.Spec.StorageClassName
	}
	if class != "" {
		used[corev1.ResourceName(class+ofClass)+corev1.ResourcePersistentVolumeClaims] = one()
	}
	asked, ok := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		return used
	}
	asked = wholeBytes(asked)
	// A claim that was given more than it now asks for still has it.
	if given, ok := pvc.Status.AllocatedResources[corev1.ResourceStorage]; ok && given.Cmp(asked) > 0 {
		asked = wholeBytes(given)
	}
	used[corev1.ResourceRequestsStorage] = asked
	if class != "" {
		used[corev1.ResourceName(class+ofClass)+corev1.ResourceRequestsStorage] = asked
	}
	return used
}

func wholeBytes(q resource.Quantity) resource.Quantity {
	rounded := q.DeepCopy()
	if rounded.RoundUp(0) {
		return q
	}
	return rounded
}

func claimInScope(s corev1.ScopedResourceSelectorRequirement, obj runtime.Object) (bool, error) {
	if s.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
		return false, nil
	}
	pvc := obj.(*corev1.PersistentVolumeClaim)
	named := []*string{pvc.Spec.VolumeAttributesClassName, pvc.Status.CurrentVolumeAttributesClassName}
	if m := pvc.Status.ModifyVolumeStatus; m != nil {
		named = append(named, &m.TargetVolumeAttributesClassName)
	}
	none := true
	for _, name := range named {
		if name == nil || *name == "" {
			continue
		}
		none = false
		if match, err := selects(s, *name); match || err != nil {
			return match, err
		}
	}
	if !none {
		return false, nil
	}
	return selects(s, "")
}
