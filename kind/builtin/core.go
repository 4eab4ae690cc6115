package builtin

import (
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1 "k8s.io/api/core/v1"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
)

func coreKinds() []*kind.Kind {
	return []*kind.Kind{
		namespaceDef().kind(),
		podDef().kind(),
		def[corev1.ConfigMap, *corev1.ConfigMap]{
			gv: corev1.SchemeGroupVersion, plural: "configmaps", short: []string{"cm"},
			validate:       validateConfigMap,
			validateUpdate: validateConfigMapUpdate,
			table:          configMapTable,
		}.kind(),
		def[corev1.Secret, *corev1.Secret]{
			gv: corev1.SchemeGroupVersion, plural: "secrets",
			prepareCreate: defaultSecret,
			prepareUpdate: func(obj, old *corev1.Secret) {
				fill(&obj.Type, old.Type)
				defaultSecret(obj)
			},
			validate:       validateSecret,
			validateUpdate: validateSecretUpdate,
			table:          secretTable,
		}.kind(),
		def[corev1.ServiceAccount, *corev1.ServiceAccount]{
			gv: corev1.SchemeGroupVersion, plural: "serviceaccounts", returnsDeleted: true, short: []string{"sa"},
		}.kind(),
		def[corev1.Binding, *corev1.Binding]{
			gv: corev1.SchemeGroupVersion, plural: "bindings", ephemeral: true, // the api package answers
		}.kind(),
		serviceDef().kind(),
		def[corev1.Endpoints, *corev1.Endpoints]{
			gv: corev1.SchemeGroupVersion, plural: "endpoints", short: []string{"ep"},
			deprecation:    "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
			createOnUpdate: true,
			validate:       validateEndpoints,
			table:          endpointsTable,
		}.kind(),
		def[corev1.Node, *corev1.Node]{
			gv: corev1.SchemeGroupVersion, plural: "nodes", short: []string{"no"}, cluster: true,
			parts:          func(n *corev1.Node) (any, any) { return &n.Spec, &n.Status },
			keepStatus:     true, // a node registers itself with its status
			validate:       validateNode,
			validateUpdate: validateNodeUpdate,
			table:          nodeTable,
		}.kind(),
		replicationControllerDef().kind(),
		def[corev1.PodTemplate, *corev1.PodTemplate]{
			gv: corev1.SchemeGroupVersion, plural: "podtemplates", returnsDeleted: true,
			parts:      func(t *corev1.PodTemplate) (any, any) { return &t.Template, nil },
			noStatus:   true,
			generation: true,
			validate:   validatePodTemplate,
			table:      podTemplateTable,
		}.kind(),
	}
}

func serviceDef() def[corev1.Service, *corev1.Service] {
	return def[corev1.Service, *corev1.Service]{
		gv: corev1.SchemeGroupVersion, plural: "services", returnsDeleted: true, short: []string{"svc"}, all: true,
		createOnUpdate: true,
		name:           apivalidation.NameIsDNS1035Label,
		parts:          func(s *corev1.Service) (any, any) { return &s.Spec, &s.Status },
		prepareCreate:  func(s *corev1.Service) { mirrorClusterIP(&s.Spec) },
		prepareUpdate: func(obj, old *corev1.Service) {
			keepClusterIP(&obj.Spec, &old.Spec)
			mirrorClusterIP(&obj.Spec)
			keepNodePorts(&obj.Spec, &old.Spec)
		},
		validate:       validateService,
		validateUpdate: validateServiceUpdate,
		table:          serviceTable,
	}
}

// mirrorClusterIP fills clusterIPs from clusterIP, which is the only one that older
// clients set.
func mirrorClusterIP(spec *corev1.ServiceSpec) {
	if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
}

// keepClusterIP keeps the stored address if the client omits it.
func keepClusterIP(spec, old *corev1.ServiceSpec) {
	if spec.Type == corev1.ServiceTypeExternalName || old.Type == corev1.ServiceTypeExternalName {
		return
	}
	if spec.ClusterIP == "" && len(spec.ClusterIPs) == 0 {
		spec.ClusterIP, spec.ClusterIPs = old.ClusterIP, old.ClusterIPs
	}
}

func replicationControllerDef() def[corev1.ReplicationController, *corev1.ReplicationController] {
	return def[corev1.ReplicationController, *corev1.ReplicationController]{
		gv: corev1.SchemeGroupVersion, plural: "replicationcontrollers", short: []string{"rc"}, all: true,
		rules:      lifecycle.Rules{DefaultPolicy: metav1.DeletePropagationOrphan},
		parts:      func(r *corev1.ReplicationController) (any, any) { return &r.Spec, &r.Status },
		generation: true,
		validate:   validateReplicationController,
		validateStatus: func(obj, _ *corev1.ReplicationController) field.ErrorList {
			return validateReplicaCounts(obj.Status.Replicas, map[string]int32{
				"fullyLabeledReplicas": obj.Status.FullyLabeledReplicas,
				"readyReplicas":        obj.Status.ReadyReplicas,
				"availableReplicas":    obj.Status.AvailableReplicas,
			})
		},
		scale: replicaScale(),
		table: replicationControllerTable,
	}
}
