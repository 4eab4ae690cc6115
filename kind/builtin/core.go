package builtin

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/registry/core/configmap"
	"k8s.io/kubernetes/pkg/registry/core/endpoint"
	"k8s.io/kubernetes/pkg/registry/core/event"
	"k8s.io/kubernetes/pkg/registry/core/limitrange"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/podtemplate"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
	"k8s.io/kubernetes/pkg/registry/core/resourcequota"
	"k8s.io/kubernetes/pkg/registry/core/secret"
	"k8s.io/kubernetes/pkg/registry/core/serviceaccount"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
)

func coreDefs() []def {
	return []def{
		namespaceDef(),
		podDef(),
		serviceDef(),
		{obj: &corev1.ConfigMap{}, plural: "configmaps", short: []string{"cm"}, strategy: configmap.Strategy, undeclared: true},
		{obj: &corev1.Secret{}, plural: "secrets", strategy: secret.Strategy},
		{obj: &corev1.ServiceAccount{}, plural: "serviceaccounts", short: []string{"sa"}, returnsDeleted: true, strategy: serviceaccount.Strategy},
		{obj: &corev1.Binding{}, plural: "bindings", ephemeral: true, namespaced: true}, // the api package answers
		{
			obj: &corev1.Endpoints{}, plural: "endpoints", short: []string{"ep"}, strategy: endpoint.Strategy, forgives: isLoopback,
			deprecation: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
		},
		{obj: &corev1.Node{}, plural: "nodes", short: []string{"no"}, strategy: node.Strategy, status: node.StatusStrategy},
		{
			obj: &corev1.ReplicationController{}, plural: "replicationcontrollers", short: []string{"rc"}, all: true,
			strategy: replicationcontroller.Strategy, status: replicationcontroller.StatusStrategy,
			rules: lifecycle.Rules{DefaultPolicy: metav1.DeletePropagationOrphan},
			scale: replicaScale(),
		},
		{obj: &corev1.PodTemplate{}, plural: "podtemplates", returnsDeleted: true, strategy: podtemplate.Strategy},
		{
			obj: &corev1.PersistentVolume{}, plural: "persistentvolumes", short: []string{"pv"}, returnsDeleted: true,
			strategy: persistentvolume.Strategy, status: persistentvolume.StatusStrategy,
		},
		{
			obj: &corev1.PersistentVolumeClaim{}, plural: "persistentvolumeclaims", short: []string{"pvc"}, returnsDeleted: true,
			strategy: persistentvolumeclaim.Strategy, status: persistentvolumeclaim.StatusStrategy,
		},
		{obj: &corev1.LimitRange{}, plural: "limitranges", short: []string{"limits"}, plain: true, strategy: limitrange.Strategy},
		{
			obj: &corev1.ResourceQuota{}, plural: "resourcequotas", short: []string{"quota"}, returnsDeleted: true,
			strategy: resourcequota.Strategy, status: resourcequota.StatusStrategy,
		},
		// The two views of the stored Events. The core view equals the stored form.
		{obj: &corev1.Event{}, plural: "events", short: []string{"ev"}, strategy: event.Strategy, undeclared: true},
		{obj: &eventsv1.Event{}, plural: "events", short: []string{"ev"}, strategy: event.Strategy, undeclared: true, view: &corev1.Event{}},
	}
}

// replicaScale is /scale of the kinds that run replicas of a pod.
func replicaScale() *kind.Scale {
	return &kind.Scale{
		SpecReplicasPath: "spec.replicas", StatusReplicasPath: "status.replicas",
		LabelSelectorPath: "spec.selector", SelectorIsObject: true,
	}
}
