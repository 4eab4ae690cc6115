package builtin

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/registry/apps/controllerrevision"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
)

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
