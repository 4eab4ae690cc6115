package builtin

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func addAppsDefaults(s *runtime.Scheme) {
	defaults(s, defaultDeployment)
	defaults(s, defaultStatefulSet)
	defaults(s, defaultDaemonSet)
	defaults(s, func(rs *appsv1.ReplicaSet) {
		fillPtr(&rs.Spec.Replicas, 1)
		defaultPodSpec(&rs.Spec.Template.Spec)
	})
}

func defaultDeployment(d *appsv1.Deployment) {
	fillPtr(&d.Spec.Replicas, 1)
	fillPtr(&d.Spec.RevisionHistoryLimit, 10)
	fillPtr(&d.Spec.ProgressDeadlineSeconds, 600)
	strategy := &d.Spec.Strategy
	fill(&strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		fillPtr(&strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		fillPtr(&strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		fillPtr(&strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	defaultPodSpec(&d.Spec.Template.Spec)
}

func defaultStatefulSet(set *appsv1.StatefulSet) {
	spec := &set.Spec
	fillPtr(&spec.Replicas, 1)
	fillPtr(&spec.RevisionHistoryLimit, 10)
	fill(&spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	if spec.UpdateStrategy.Type == "" {
		spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		fillPtr(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if rolling := spec.UpdateStrategy.RollingUpdate; rolling != nil &&
		spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		fillPtr(&rolling.Partition, 0)
		fillPtr(&rolling.MaxUnavailable, intstr.FromInt32(1))
	}
	fillPtr(&spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	fill(&spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	fill(&spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	for i := range spec.VolumeClaimTemplates {
		// As in Kubernetes, each template has its apiVersion and kind, so that it can be applied.
		fill(&spec.VolumeClaimTemplates[i].APIVersion, "v1")
		fill(&spec.VolumeClaimTemplates[i].Kind, "PersistentVolumeClaim")
		defaultClaim(&spec.VolumeClaimTemplates[i])
	}
	defaultPodSpec(&spec.Template.Spec)
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	fillPtr(&d.Spec.RevisionHistoryLimit, 10)
	strategy := &d.Spec.UpdateStrategy
	fill(&strategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if strategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		fillPtr(&strategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		fillPtr(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		fillPtr(&strategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	defaultPodSpec(&d.Spec.Template.Spec)
}
