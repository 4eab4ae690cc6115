package builtin

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
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
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	certificatesapi "k8s.io/kubernetes/pkg/apis/certificates"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/resolver"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/certificates/certificates"
	"k8s.io/kubernetes/pkg/registry/certificates/clustertrustbundle"
	"k8s.io/kubernetes/pkg/registry/certificates/podcertificaterequest"
	"k8s.io/kubernetes/pkg/registry/coordination/lease"
	"k8s.io/kubernetes/pkg/registry/core/namespace"
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
	"k8s.io/utils/clock"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
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

// A namespace has finalizers in its spec besides those in its metadata. They name who
// must still empty it; only /finalize removes them.
func namespaceDef() def {
	return def{
		obj: &corev1.Namespace{}, plural: "namespaces", short: []string{"ns"}, strategy: namespace.Strategy, status: namespace.StatusStrategy,
		rules: lifecycle.Rules{NoGrace: true, MarkDeleting: markTerminating, MarkActive: markActive, Removable: hasNoSpecFinalizers, Refuse: keepNamespace},
	}
}

func holdContent(n *corev1.Namespace) {
	if !slices.Contains(n.Spec.Finalizers, corev1.FinalizerKubernetes) {
		n.Spec.Finalizers = append(n.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

// NamespaceFinalizeStrategy is the strategy of a namespace's /finalize: it can change the
// spec's finalizers, but not the status.
func NamespaceFinalizeStrategy() lifecycle.Strategy {
	return newStrategy(namespace.FinalizeStrategy, corev1.SchemeGroupVersion.WithResource("namespaces"), "finalize")
}

var namespaceGVK = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}

func markTerminating(body []byte, _ time.Time) ([]byte, error) {
	return withPhase(body, corev1.NamespaceTerminating)
}

func markActive(body []byte) ([]byte, error) { return withPhase(body, corev1.NamespaceActive) }

// withPhase sets the phase when a deletion begins or is called off. It also sets the
// finalizer that stands for the content, which /finalize may have removed: a namespace
// never goes before its content.
func withPhase(body []byte, phase corev1.NamespacePhase) ([]byte, error) {
	ns := &corev1.Namespace{}
	if err := object.DecodeInto(body, "", namespaceGVK, ns); err != nil {
		return nil, err
	}
	ns.Status.Phase = phase
	holdContent(ns)
	return object.Encode(ns)
}

// keepNamespace refuses to delete the namespaces that Kubernetes refuses to delete, with
// the same message. kube-node-lease can be deleted; the server creates it again.
func keepNamespace(name string) error {
	switch name {
	case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic:
		return object.Errorf(object.Forbidden, "this namespace may not be deleted")
	}
	return nil
}

// hasNoSpecFinalizers returns false for a body that cannot be decoded: the namespace then
// stays, which is safer than leaving its contents behind.
func hasNoSpecFinalizers(body []byte) bool {
	left, err := object.SpecFinalizers(body)
	return err == nil && len(left) == 0
}

// SigningRequests is the storage name of CertificateSigningRequest.
const SigningRequests = object.SigningRequests

// certificateDefs are requests for certificates, and the roots to trust. Package access sets who
// asked, and checks the right to sign.
func certificateDefs() []def {
	pods := podcertificaterequest.NewStrategy()
	return []def{
		{
			obj: &certificatesv1.CertificateSigningRequest{}, plural: "certificatesigningrequests", short: []string{"csr"},
			strategy: certificates.Strategy, status: certificates.StatusStrategy,
		},
		{obj: &certificatesv1.ClusterTrustBundle{}, plural: "clustertrustbundles", strategy: clustertrustbundle.Strategy},
		{
			obj: &certificatesv1.PodCertificateRequest{}, plural: "podcertificaterequests",
			strategy: pods, status: podcertificaterequest.NewStatusStrategy(pods, allow{}, clock.RealClock{}),
		},
	}
}

// allow is an authorizer for strategies that ask one. Package access checks the right to sign
// (checkSigning). Nothing checks the rights of drivers to the status of a ResourceClaim.
type allow struct{}

func (allow) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// CertificateApprovalStrategy is the strategy of a CertificateSigningRequest's /approval:
// it changes the conditions and nothing else.
func CertificateApprovalStrategy() lifecycle.Strategy {
	return newStrategy(certificates.ApprovalStrategy, certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"), "approval")
}

// CertificateApprovalResetFields are the fields that /approval keeps.
func CertificateApprovalResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return resetFields(certificates.ApprovalStrategy)
}

// ParseCertificateRequest reads a PKCS#10 request in PEM.
func ParseCertificateRequest(text []byte) (*x509.CertificateRequest, error) {
	return certificatesapi.ParseCSR(text)
}
