package builtin

import (
	"maps"
	"math"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func addBatchDefaults(s *runtime.Scheme) {
	defaults(s, defaultJob)
	defaults(s, defaultCronJob)
}

func defaultJob(job *batchv1.Job) {
	spec := &job.Spec
	// Completions stay unset if only parallelism is given: the job is a work queue.
	if spec.Completions == nil && spec.Parallelism == nil {
		fillPtr(&spec.Completions, 1)
	}
	fillPtr(&spec.Parallelism, 1)
	if spec.BackoffLimitPerIndex != nil {
		fillPtr(&spec.BackoffLimit, math.MaxInt32)
	}
	fillPtr(&spec.BackoffLimit, 6)
	fillPtr(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	fillPtr(&spec.Suspend, false)
	fillPtr(&spec.ManualSelector, false)
	if spec.PodFailurePolicy != nil {
		fillPtr(&spec.PodReplacementPolicy, batchv1.Failed)
	}
	fillPtr(&spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	if len(job.Labels) == 0 {
		job.Labels = maps.Clone(spec.Template.Labels)
	}
	defaultJobSpec(spec)
}

// defaultJobSpec sets the defaults of a Job and of a CronJob's template.
func defaultJobSpec(spec *batchv1.JobSpec) {
	if spec.PodFailurePolicy != nil {
		for i := range spec.PodFailurePolicy.Rules {
			conditions := spec.PodFailurePolicy.Rules[i].OnPodConditions
			for j := range conditions {
				fill(&conditions[j].Status, corev1.ConditionTrue)
			}
		}
	}
	defaultPodSpec(&spec.Template.Spec)
}

func defaultCronJob(c *batchv1.CronJob) {
	fill(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	fillPtr(&c.Spec.Suspend, false)
	fillPtr(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	fillPtr(&c.Spec.FailedJobsHistoryLimit, 1)
	defaultJobSpec(&c.Spec.JobTemplate.Spec)
}
