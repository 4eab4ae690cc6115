package builtin

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/exeunt/exeunt/kind"
)

func appsKinds() []*kind.Kind {
	return []*kind.Kind{
		deploymentDef().kind(),
		replicaSetDef().kind(),
		statefulSetDef().kind(),
		daemonSetDef().kind(),
		def[appsv1.ControllerRevision, *appsv1.ControllerRevision]{
			gv: appsv1.SchemeGroupVersion, plural: "controllerrevisions",
			validate:       validateControllerRevision,
			validateUpdate: validateControllerRevisionUpdate,
			table:          controllerRevisionTable,
		}.kind(),
	}
}

// replicaScale is /scale of the kinds that run replicas of a pod.
func replicaScale() *kind.Scale {
	return &kind.Scale{
		SpecReplicasPath: "spec.replicas", StatusReplicasPath: "status.replicas",
		LabelSelectorPath: "spec.selector", SelectorIsObject: true,
	}
}

func deploymentDef() def[appsv1.Deployment, *appsv1.Deployment] {
	return def[appsv1.Deployment, *appsv1.Deployment]{
		gv: appsv1.SchemeGroupVersion, plural: "deployments", short: []string{"deploy"}, all: true,
		parts:      func(d *appsv1.Deployment) (any, any) { return &d.Spec, &d.Status },
		generation: true,
		// A rollout is recorded in annotations, so the controller looks at them.
		moves: func(obj, old *appsv1.Deployment) bool {
			return !equality.Semantic.DeepEqual(obj.Spec, old.Spec) || !equality.Semantic.DeepEqual(obj.Annotations, old.Annotations)
		},
		prepareStatus:  func(obj, old *appsv1.Deployment) { obj.Labels = old.Labels },
		statusResets:   []fieldpath.Path{fieldpath.MakePathOrDie("metadata", "labels")},
		validate:       validateDeployment,
		validateUpdate: validateDeploymentUpdate,
		validateStatus: func(obj, _ *appsv1.Deployment) field.ErrorList {
			return validateReplicaCounts(obj.Status.Replicas, map[string]int32{
				"updatedReplicas":   obj.Status.UpdatedReplicas,
				"readyReplicas":     obj.Status.ReadyReplicas,
				"availableReplicas": obj.Status.AvailableReplicas,
			})
		},
		scale: replicaScale(),
		table: deploymentTable,
	}
}

func replicaSetDef() def[appsv1.ReplicaSet, *appsv1.ReplicaSet] {
	return def[appsv1.ReplicaSet, *appsv1.ReplicaSet]{
		gv: appsv1.SchemeGroupVersion, plural: "replicasets", short: []string{"rs"}, all: true,
		parts:          func(r *appsv1.ReplicaSet) (any, any) { return &r.Spec, &r.Status },
		generation:     true,
		validate:       validateReplicaSet,
		validateUpdate: validateReplicaSetUpdate,
		validateStatus: func(obj, _ *appsv1.ReplicaSet) field.ErrorList {
			return validateReplicaCounts(obj.Status.Replicas, map[string]int32{
				"fullyLabeledReplicas": obj.Status.FullyLabeledReplicas,
				"readyReplicas":        obj.Status.ReadyReplicas,
				"availableReplicas":    obj.Status.AvailableReplicas,
			})
		},
		scale: replicaScale(),
		table: replicaSetTable,
	}
}

func statefulSetDef() def[appsv1.StatefulSet, *appsv1.StatefulSet] {
	return def[appsv1.StatefulSet, *appsv1.StatefulSet]{
		gv: appsv1.SchemeGroupVersion, plural: "statefulsets", short: []string{"sts"}, all: true,
		parts:          func(s *appsv1.StatefulSet) (any, any) { return &s.Spec, &s.Status },
		generation:     true,
		validate:       validateStatefulSet,
		validateUpdate: validateStatefulSetUpdate,
		validateStatus: func(obj, _ *appsv1.StatefulSet) field.ErrorList {
			return validateReplicaCounts(obj.Status.Replicas, map[string]int32{
				"readyReplicas":     obj.Status.ReadyReplicas,
				"currentReplicas":   obj.Status.CurrentReplicas,
				"updatedReplicas":   obj.Status.UpdatedReplicas,
				"availableReplicas": obj.Status.AvailableReplicas,
			})
		},
		scale: replicaScale(),
		table: statefulSetTable,
	}
}

func daemonSetDef() def[appsv1.DaemonSet, *appsv1.DaemonSet] {
	return def[appsv1.DaemonSet, *appsv1.DaemonSet]{
		gv: appsv1.SchemeGroupVersion, plural: "daemonsets", short: []string{"ds"}, all: true,
		parts:          func(d *appsv1.DaemonSet) (any, any) { return &d.Spec, &d.Status },
		generation:     true,
		validate:       validateDaemonSet,
		validateUpdate: validateDaemonSetUpdate,
		table:          daemonSetTable,
	}
}
