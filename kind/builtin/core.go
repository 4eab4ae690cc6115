package builtin

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/registry/apps/controllerrevision"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
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
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/core/serviceaccount"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"

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

// jobOrphanWarning is sent with the delete of a Job whose options name no policy: its
// pods are then orphaned, which users do not expect.
const jobOrphanWarning = "child pods are preserved by default when jobs are deleted; " +
	"set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning"

// workloadDefs are the kinds that run pods, and those that say how many and which first.
func workloadDefs() []def {
	return []def{
		{
			obj: &appsv1.Deployment{}, plural: "deployments", short: []string{"deploy"}, all: true,
			strategy: deployment.Strategy, status: deployment.StatusStrategy, scale: replicaScale(),
		},
		{
			obj: &appsv1.ReplicaSet{}, plural: "replicasets", short: []string{"rs"}, all: true,
			strategy: replicaset.Strategy, status: replicaset.StatusStrategy, scale: replicaScale(),
		},
		{
			obj: &appsv1.StatefulSet{}, plural: "statefulsets", short: []string{"sts"}, all: true,
			strategy: statefulset.Strategy, status: statefulset.StatusStrategy, scale: replicaScale(),
		},
		{
			obj: &appsv1.DaemonSet{}, plural: "daemonsets", short: []string{"ds"}, all: true,
			strategy: daemonset.Strategy, status: daemonset.StatusStrategy,
		},
		{obj: &appsv1.ControllerRevision{}, plural: "controllerrevisions", strategy: controllerrevision.Strategy},
		{
			obj: &batchv1.Job{}, plural: "jobs", all: true, strategy: job.Strategy, status: job.StatusStrategy,
			rules: lifecycle.Rules{DefaultPolicy: metav1.DeletePropagationOrphan}, orphanWarning: jobOrphanWarning,
		},
		{
			obj: &batchv1.CronJob{}, plural: "cronjobs", short: []string{"cj"}, all: true,
			strategy: cronjob.Strategy, status: cronjob.StatusStrategy,
		},
		{
			obj: &policyv1.PodDisruptionBudget{}, plural: "poddisruptionbudgets", short: []string{"pdb"},
			strategy: poddisruptionbudget.Strategy, status: poddisruptionbudget.StatusStrategy,
		},
		{obj: &schedulingv1.PriorityClass{}, plural: "priorityclasses", short: []string{"pc"}, strategy: priorityclass.Strategy},
	}
}

// autoscalers is one kind in two versions. v2 is stored. v1 knows one target, the utilization
// of the CPU, and carries all else in annotations.
func autoscalers() *kind.Kind {
	v2 := def{
		obj: &autoscalingv2.HorizontalPodAutoscaler{}, plural: "horizontalpodautoscalers", short: []string{"hpa"}, all: true,
		strategy: horizontalpodautoscaler.Strategy, status: horizontalpodautoscaler.StatusStrategy,
	}
	v1 := v2
	v1.obj, v1.view = &autoscalingv1.HorizontalPodAutoscaler{}, v2.obj
	k := v2.kind()
	k.Versions = append(k.Versions, v1.version(k))
	return k
}

// reviewDefs are questions in the form of objects. They are answered and never stored, so
// they need no name.
func reviewDefs() []def {
	return []def{
		{obj: &authenticationv1.TokenReview{}, plural: "tokenreviews", ephemeral: true},
		{obj: &authenticationv1.SelfSubjectReview{}, plural: "selfsubjectreviews", ephemeral: true},
		{obj: &authorizationv1.SubjectAccessReview{}, plural: "subjectaccessreviews", ephemeral: true},
		{obj: &authorizationv1.LocalSubjectAccessReview{}, plural: "localsubjectaccessreviews", ephemeral: true, namespaced: true},
		{obj: &authorizationv1.SelfSubjectAccessReview{}, plural: "selfsubjectaccessreviews", ephemeral: true},
		{obj: &authorizationv1.SelfSubjectRulesReview{}, plural: "selfsubjectrulesreviews", ephemeral: true},
	}
}

func serviceDef() def {
	return def{
		obj: &corev1.Service{}, plural: "services", short: []string{"svc"}, all: true, returnsDeleted: true,
		strategy: service.Strategy, status: service.StatusStrategy,
		forgives: func(err *field.Error) bool { // Services' attach sets it after validation
			return err.Type == field.ErrorTypeRequired && err.Field == "spec.healthCheckNodePort"
		},
		prepare: hook(func(svc, old *corev1.Service) {
			if old != nil {
				keepClusterIP(&svc.Spec, &old.Spec)
			}
			mirrorClusterIP(&svc.Spec)
			if old != nil {
				keepNodePorts(&svc.Spec, &old.Spec)
			}
		}),
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

// Services returns the kind Service with a source of addresses, for a server that gives
// them. It replaces the one of Kinds in a registry.
func Services(attach func(ctx context.Context, obj, old runtime.Object) (kind.Attachment, error)) *kind.Kind {
	k := serviceDef().kind()
	k.Attach = attach
	return k
}

// isLoopback forgives an endpoint on loopback: there need not be other machines here, and
// webhooks behind a Service may run beside the server.
func isLoopback(err *field.Error) bool {
	return strings.HasPrefix(err.Detail, "may not be in the loopback range")
}

func hasNodePorts(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer
}

// hasHealthCheckPort reports whether a load balancer asks the nodes which of them have a pod.
func hasHealthCheckPort(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer && spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// keepNodePorts keeps the node ports of the ports that have the same name, if the client
// omits them. If the new type has none, it removes those that the client did not change.
func keepNodePorts(spec, old *corev1.ServiceSpec) {
	var had, sent []int32
	byName := map[string]int32{}
	for _, p := range old.Ports {
		had, byName[p.Name] = append(had, p.NodePort), p.NodePort
	}
	for _, p := range spec.Ports {
		sent = append(sent, p.NodePort)
	}
	for i := range spec.Ports {
		p := &spec.Ports[i]
		switch {
		case !hasNodePorts(old):
		case !hasNodePorts(spec) && slices.Contains(had, p.NodePort):
			p.NodePort = 0
		case hasNodePorts(spec) && p.NodePort == 0 && !slices.Contains(sent, byName[p.Name]):
			p.NodePort = byName[p.Name]
		}
	}
	switch {
	case !hasHealthCheckPort(old):
	case !hasHealthCheckPort(spec) && spec.HealthCheckNodePort == old.HealthCheckNodePort:
		spec.HealthCheckNodePort = 0
	case hasHealthCheckPort(spec) && spec.HealthCheckNodePort == 0:
		spec.HealthCheckNodePort = old.HealthCheckNodePort
	}
	if old.Type == corev1.ServiceTypeLoadBalancer && spec.Type != corev1.ServiceTypeLoadBalancer && spec.AllocateLoadBalancerNodePorts != nil &&
		old.AllocateLoadBalancerNodePorts != nil && *spec.AllocateLoadBalancerNodePorts == *old.AllocateLoadBalancerNodePorts {
		spec.AllocateLoadBalancerNodePorts = nil
	}
}
