package builtin

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/resolver"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/coordination/lease"
	"k8s.io/kubernetes/pkg/registry/discovery/endpointslice"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/flowschema"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/prioritylevelconfiguration"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/networking/ingressclass"
	"k8s.io/kubernetes/pkg/registry/networking/ipaddress"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/networking/servicecidr"
	"k8s.io/kubernetes/pkg/registry/node/runtimeclass"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrole"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding"
	"k8s.io/kubernetes/pkg/registry/rbac/role"
	"k8s.io/kubernetes/pkg/registry/rbac/rolebinding"
	"k8s.io/kubernetes/pkg/registry/resource/deviceclass"
	"k8s.io/kubernetes/pkg/registry/resource/devicetaintrule"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaim"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaimtemplate"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
	"k8s.io/kubernetes/pkg/registry/storage/csidriver"
	"k8s.io/kubernetes/pkg/registry/storage/csinode"
	"k8s.io/kubernetes/pkg/registry/storage/csistoragecapacity"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattachment"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattributesclass"
	"k8s.io/kubernetes/pkg/registry/storagemigration/storagemigration"
)

// networkDefs are the kinds of networks and of what coordinates their members.
func networkDefs() []def {
	return []def{
		{obj: &coordinationv1.Lease{}, plural: "leases", strategy: lease.Strategy, undeclared: true},
		{obj: &discoveryv1.EndpointSlice{}, plural: "endpointslices", strategy: endpointslice.Strategy, forgives: isLoopback},
		{obj: &networkingv1.Ingress{}, plural: "ingresses", short: []string{"ing"}, strategy: ingress.Strategy, status: ingress.StatusStrategy},
		{obj: &networkingv1.NetworkPolicy{}, plural: "networkpolicies", short: []string{"netpol"}, strategy: networkpolicy.Strategy},
		{obj: &networkingv1.IngressClass{}, plural: "ingressclasses", strategy: ingressclass.Strategy},
		{obj: &networkingv1.IPAddress{}, plural: "ipaddresses", short: []string{"ip"}, strategy: ipaddress.Strategy},
		{obj: &networkingv1.ServiceCIDR{}, plural: "servicecidrs", strategy: servicecidr.Strategy, status: servicecidr.StatusStrategy},
		{obj: &nodev1.RuntimeClass{}, plural: "runtimeclasses", strategy: runtimeclass.Strategy},
	}
}

// rbacDefs give an empty list of rules as none: Kubernetes answers "rules": null for both.
func rbacDefs() []def {
	return []def{
		{
			obj: &rbacv1.Role{}, plural: "roles", plain: true, strategy: role.Strategy,
			prepare: hook(func(r, _ *rbacv1.Role) { r.Rules = withoutEmpty(r.Rules) }),
		},
		{
			obj: &rbacv1.ClusterRole{}, plural: "clusterroles", plain: true, strategy: clusterrole.Strategy,
			prepare: hook(func(r, _ *rbacv1.ClusterRole) { r.Rules = withoutEmpty(r.Rules) }),
		},
		{obj: &rbacv1.RoleBinding{}, plural: "rolebindings", strategy: rolebinding.Strategy},
		{obj: &rbacv1.ClusterRoleBinding{}, plural: "clusterrolebindings", strategy: clusterrolebinding.Strategy},
	}
}

func withoutEmpty(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	if len(rules) == 0 {
		return nil
	}
	return rules
}

// admissionDefs configure webhooks and policies, which package admission runs. Package access
// checks the rights to read the parameters of a policy.
func admissionDefs() []def {
	var unresolved resolver.ResourceResolverFunc = func(schema.GroupVersionKind) (schema.GroupVersionResource, error) {
		return schema.GroupVersionResource{}, errors.New("not asked for without an authorizer")
	}
	policy := validatingadmissionpolicy.NewStrategy(nil, unresolved)
	return []def{
		{obj: &admissionv1.MutatingWebhookConfiguration{}, plural: "mutatingwebhookconfigurations", extends: true, strategy: mutatingwebhookconfiguration.Strategy},
		{obj: &admissionv1.ValidatingWebhookConfiguration{}, plural: "validatingwebhookconfigurations", extends: true, strategy: validatingwebhookconfiguration.Strategy},
		{
			obj: &admissionv1.ValidatingAdmissionPolicy{}, plural: "validatingadmissionpolicies", extends: true,
			strategy: policy, status: validatingadmissionpolicy.NewStatusStrategy(policy),
		},
		{
			obj: &admissionv1.ValidatingAdmissionPolicyBinding{}, plural: "validatingadmissionpolicybindings", extends: true,
			strategy: validatingadmissionpolicybinding.NewStrategy(nil, nil, unresolved),
		},
		{
			obj: &admissionv1.MutatingAdmissionPolicy{}, plural: "mutatingadmissionpolicies", extends: true,
			strategy: mutatingadmissionpolicy.NewStrategy(nil, unresolved),
		},
		{
			obj: &admissionv1.MutatingAdmissionPolicyBinding{}, plural: "mutatingadmissionpolicybindings", extends: true,
			strategy: mutatingadmissionpolicybinding.NewStrategy(nil, nil, unresolved),
		},
	}
}

// storageDefs are the kinds of storage.k8s.io: classes, and what CSI drivers and nodes report.
func storageDefs() []def {
	return []def{
		{obj: &storagev1.StorageClass{}, plural: "storageclasses", short: []string{"sc"}, returnsDeleted: true, strategy: storageclass.Strategy},
		{obj: &storagev1.VolumeAttributesClass{}, plural: "volumeattributesclasses", short: []string{"vac"}, returnsDeleted: true, strategy: volumeattributesclass.Strategy},
		{
			obj: &storagev1.VolumeAttachment{}, plural: "volumeattachments", returnsDeleted: true,
			strategy: volumeattachment.Strategy, status: volumeattachment.StatusStrategy,
		},
		{obj: &storagev1.CSINode{}, plural: "csinodes", returnsDeleted: true, strategy: csinode.Strategy, status: csinode.StatusStrategy},
		{obj: &storagev1.CSIDriver{}, plural: "csidrivers", returnsDeleted: true, strategy: csidriver.Strategy},
		{obj: &storagev1.CSIStorageCapacity{}, plural: "csistoragecapacities", strategy: csistoragecapacity.Strategy},
		{
			obj: &storagemigrationv1.StorageVersionMigration{}, plural: "storageversionmigrations",
			strategy: storagemigration.Strategy, status: storagemigration.StatusStrategy,
		},
	}
}

// flowWarning says what the kinds are worth here: clients that manage them work, and
// nothing follows from them.
const flowWarning = "this server stores flow control objects and does not apply them: its clients share the limit of --max-requests-inflight equally"

func flowDefs() []def {
	return []def{
		{
			obj: &flowcontrolv1.FlowSchema{}, plural: "flowschemas", warning: flowWarning,
			strategy: flowschema.Strategy, status: flowschema.StatusStrategy,
		},
		{
			obj: &flowcontrolv1.PriorityLevelConfiguration{}, plural: "prioritylevelconfigurations", warning: flowWarning,
			strategy: prioritylevelconfiguration.Strategy, status: prioritylevelconfiguration.StatusStrategy,
		},
	}
}

// deviceDefs are the kinds of resource.k8s.io: devices, and claims on them.
func deviceDefs() []def {
	claim := resourceclaim.NewStrategy(adminNamespaces{}, allow{})
	return []def{
		{obj: &resourcev1.DeviceClass{}, plural: "deviceclasses", returnsDeleted: true, strategy: deviceclass.Strategy},
		{
			obj: &resourcev1.ResourceClaim{}, plural: "resourceclaims", returnsDeleted: true,
			strategy: claim, status: resourceclaim.NewStatusStrategy(claim),
		},
		{
			obj: &resourcev1.ResourceClaimTemplate{}, plural: "resourceclaimtemplates", returnsDeleted: true,
			strategy: resourceclaimtemplate.NewStrategy(adminNamespaces{}),
		},
		{obj: &resourcev1.ResourceSlice{}, plural: "resourceslices", returnsDeleted: true, strategy: resourceslice.Strategy},
		{
			obj: &resourcev1.DeviceTaintRule{}, plural: "devicetaintrules", returnsDeleted: true,
			strategy: devicetaintrule.Strategy, status: devicetaintrule.StatusStrategy,
		},
	}
}

// adminNamespaces lets every namespace claim devices with adminAccess: no driver reads the
// claims here, and a strategy reads no other objects.
type adminNamespaces struct {
	clientcorev1.NamespaceInterface
}

func (adminNamespaces) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{resourcev1.DRAAdminNamespaceLabelKey: "true"}}}, nil
}
