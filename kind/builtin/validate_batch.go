package builtin

import (
	"strings"
	"time"
	_ "time/tzdata" // time zones of CronJobs: the container image and Windows have no database of them

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateJob(job *batchv1.Job) field.ErrorList {
	errs := validateJobSpec(specPath, &job.Spec)
	if job.Spec.Selector == nil {
		return append(errs, field.Required(specPath.Child("selector"), ""))
	}
	errs = append(errs, labelSelector(specPath.Child("selector"), job.Spec.Selector)...)
	selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector)
	if err == nil && !selector.Matches(labels.Set(job.Spec.Template.Labels)) {
		errs = append(errs, field.Invalid(specPath.Child("template", "metadata", "labels"), job.Spec.Template.Labels, "`selector` does not match template `labels`"))
	}
	if deref(job.Spec.ManualSelector, false) {
		return errs
	}
	return append(errs, validateGeneratedSelector(job, selector)...)
}

// validateGeneratedSelector requires the labels that selectOwnPods sets: with other labels
// the job would adopt the pods of another job.
func validateGeneratedSelector(job *batchv1.Job, selector labels.Selector) field.ErrorList {
	var errs field.ErrorList
	if job.UID == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "uid"), ""))
	}
	expected := map[string]string{
		oldJobNameLabel: job.Name, batchv1.JobNameLabel: job.Name,
		oldJobUIDLabel: string(job.UID), batchv1.ControllerUidLabel: string(job.UID),
	}
	at := specPath.Child("template", "metadata", "labels")
	for _, label := range sortedKeys(expected) {
		switch actual, set := job.Spec.Template.Labels[label]; {
		case !set:
			errs = append(errs, field.Required(at.Key(label), "must be '"+expected[label]+"'"))
		case actual != expected[label]:
			errs = append(errs, field.Invalid(at.Key(label), job.Spec.Template.Labels, "must be '"+expected[label]+"'"))
		}
	}
	if selector != nil && !selector.Matches(labels.Set(expected)) {
		errs = append(errs, field.Invalid(specPath.Child("selector"), job.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}

// validateJobSpec validates what a Job and a CronJob's template share.
func validateJobSpec(path *field.Path, spec *batchv1.JobSpec) field.ErrorList {
	errs := notNegative(path.Child("parallelism"), spec.Parallelism)
	errs = append(errs, notNegative(path.Child("completions"), spec.Completions)...)
	errs = append(errs, notNegative(path.Child("backoffLimit"), spec.BackoffLimit)...)
	errs = append(errs, notNegative(path.Child("backoffLimitPerIndex"), spec.BackoffLimitPerIndex)...)
	errs = append(errs, notNegative(path.Child("maxFailedIndexes"), spec.MaxFailedIndexes)...)
	errs = append(errs, notNegative(path.Child("activeDeadlineSeconds"), spec.ActiveDeadlineSeconds)...)
	errs = append(errs, notNegative(path.Child("ttlSecondsAfterFinished"), spec.TTLSecondsAfterFinished)...)
	errs = append(errs, oneOfPtr(path.Child("completionMode"), spec.CompletionMode, batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)...)
	errs = append(errs, oneOfPtr(path.Child("podReplacementPolicy"), spec.PodReplacementPolicy, batchv1.Failed, batchv1.TerminatingOrFailed)...)
	indexed := deref(spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
	if indexed && spec.Completions == nil {
		errs = append(errs, field.Required(path.Child("completions"), "when completion mode is Indexed"))
	}
	if !indexed && spec.BackoffLimitPerIndex != nil {
		errs = append(errs, field.Invalid(path.Child("backoffLimitPerIndex"), *spec.BackoffLimitPerIndex, "requires indexed completion mode"))
	}
	errs = append(errs, validateTemplate(path.Child("template"), &spec.Template)...)
	// A job ends, so its pods must be able to end.
	restart := spec.Template.Spec.RestartPolicy
	if restart == "" || restart == corev1.RestartPolicyAlways {
		errs = append(errs, field.Required(path.Child("template", "spec", "restartPolicy"), `valid values: "OnFailure", "Never"`))
	} else if spec.PodFailurePolicy != nil && restart != corev1.RestartPolicyNever {
		errs = append(errs, field.Invalid(path.Child("template", "spec", "restartPolicy"), restart, "only \"Never\" is supported when podFailurePolicy is specified"))
	}
	return errs
}

// validateJobUpdate keeps the selector and the template. The scheduling of a suspended job's
// pods may change.
func validateJobUpdate(job, old *batchv1.Job) field.ErrorList {
	spec, was := &job.Spec, &old.Spec
	errs := unchanged(specPath.Child("selector"), spec.Selector, was.Selector)
	errs = append(errs, unchanged(specPath.Child("completionMode"), spec.CompletionMode, was.CompletionMode)...)
	errs = append(errs, unchanged(specPath.Child("podFailurePolicy"), spec.PodFailurePolicy, was.PodFailurePolicy)...)
	errs = append(errs, unchanged(specPath.Child("successPolicy"), spec.SuccessPolicy, was.SuccessPolicy)...)
	errs = append(errs, unchanged(specPath.Child("backoffLimitPerIndex"), spec.BackoffLimitPerIndex, was.BackoffLimitPerIndex)...)
	errs = append(errs, unchanged(specPath.Child("managedBy"), spec.ManagedBy, was.ManagedBy)...)
	errs = append(errs, validateCompletionsUpdate(spec, was)...)
	template := was.Template.DeepCopy()
	if deref(was.Suspend, false) && old.Status.StartTime == nil {
		template.Annotations, template.Labels = spec.Template.Annotations, spec.Template.Labels
		template.Spec.NodeSelector, template.Spec.Tolerations = spec.Template.Spec.NodeSelector, spec.Template.Spec.Tolerations
		template.Spec.Affinity, template.Spec.SchedulingGates = spec.Template.Spec.Affinity, spec.Template.Spec.SchedulingGates
	}
	return append(errs, unchanged(specPath.Child("template"), spec.Template, *template)...)
}

// validateCompletionsUpdate lets completions change only for an indexed job whose
// completions equal its parallelism.
func validateCompletionsUpdate(spec, was *batchv1.JobSpec) field.ErrorList {
	if deref(spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion &&
		spec.Completions != nil && spec.Parallelism != nil && *spec.Completions == *spec.Parallelism {
		return nil
	}
	return unchanged(specPath.Child("completions"), spec.Completions, was.Completions)
}

func validateJobStatus(job, _ *batchv1.Job) field.ErrorList {
	path := field.NewPath("status")
	errs := notNegative(path.Child("active"), &job.Status.Active)
	errs = append(errs, notNegative(path.Child("succeeded"), &job.Status.Succeeded)...)
	return append(errs, notNegative(path.Child("failed"), &job.Status.Failed)...)
}

func validateCronJob(c *batchv1.CronJob) field.ErrorList {
	spec := &c.Spec
	errs := required(specPath.Child("schedule"), spec.Schedule)
	if spec.Schedule != "" {
		if strings.Contains(spec.Schedule, "TZ") {
			errs = append(errs, field.Invalid(specPath.Child("schedule"), spec.Schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"))
		} else if err := checkSchedule(spec.Schedule); err != nil {
			errs = append(errs, field.Invalid(specPath.Child("schedule"), spec.Schedule, err.Error()))
		}
	}
	errs = append(errs, validateTimeZone(specPath.Child("timeZone"), spec.TimeZone)...)
	errs = append(errs, oneOf(specPath.Child("concurrencyPolicy"), spec.ConcurrencyPolicy,
		batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)...)
	errs = append(errs, notNegative(specPath.Child("startingDeadlineSeconds"), spec.StartingDeadlineSeconds)...)
	errs = append(errs, notNegative(specPath.Child("successfulJobsHistoryLimit"), spec.SuccessfulJobsHistoryLimit)...)
	errs = append(errs, notNegative(specPath.Child("failedJobsHistoryLimit"), spec.FailedJobsHistoryLimit)...)
	template := specPath.Child("jobTemplate", "spec")
	if spec.JobTemplate.Spec.Selector != nil {
		errs = append(errs, field.Invalid(template.Child("selector"), spec.JobTemplate.Spec.Selector, "`selector` will be auto-generated"))
	}
	return append(errs, validateJobSpec(template, &spec.JobTemplate.Spec)...)
}

// validateCronJobName limits the name, because job names append the time to it.
func validateCronJobName(c *batchv1.CronJob) field.ErrorList {
	if len(c.Name) > 52 {
		return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), c.Name, "must be no more than 52 characters")}
	}
	return nil
}

func validateTimeZone(path *field.Path, zone *string) field.ErrorList {
	switch {
	case zone == nil:
		return nil
	case *zone == "":
		return field.ErrorList{field.Invalid(path, *zone, "timeZone must be nil or non-empty string")}
	case strings.EqualFold(*zone, "Local"):
		return field.ErrorList{field.Invalid(path, *zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")}
	}
	if _, err := time.LoadLocation(*zone); err != nil {
		return field.ErrorList{field.Invalid(path, *zone, "unknown time zone "+*zone)}
	}
	return nil
}
