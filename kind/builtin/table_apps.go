package builtin

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
)

// workload adds the -o wide columns of a pod template.
func workload(cols []metav1.TableColumnDefinition) []metav1.TableColumnDefinition {
	return append(cols,
		wide(text("Containers", "The names of the template's containers.")),
		wide(text("Images", "The images of the template's containers.")),
		wide(text("Selector", "Which pods belong to the object.")),
	)
}

// workloadCells returns the cells of those columns.
func workloadCells(spec *corev1.PodSpec, selector string) []any {
	names, images := containerCells(spec)
	return []any{names, images, selector}
}

func containerCells(spec *corev1.PodSpec) (names, images string) {
	var n, i []string
	for _, c := range spec.Containers {
		n, i = append(n, c.Name), append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}

func deploymentTable() table[*appsv1.Deployment] {
	return table[*appsv1.Deployment]{
		columns: workload(columns(
			text("Ready", "How many replicas are ready, of how many wanted."),
			text("Up-to-date", "How many replicas run the current template."),
			text("Available", "How many replicas have been ready for long enough."),
		)),
		row: func(d *appsv1.Deployment, now time.Time) []any {
			return append([]any{
				d.Name, fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, deref(d.Spec.Replicas, 0)),
				int64(d.Status.UpdatedReplicas), int64(d.Status.AvailableReplicas), age(d, now),
			}, workloadCells(&d.Spec.Template.Spec, metav1.FormatLabelSelector(d.Spec.Selector))...)
		},
	}
}

// replicaColumns are the columns of a ReplicaSet and a ReplicationController.
func replicaColumns() []metav1.TableColumnDefinition {
	return workload(columns(
		number("Desired", "How many replicas are wanted."),
		number("Current", "How many replicas there are."),
		number("Ready", "How many replicas are ready."),
	))
}

func replicaSetTable() table[*appsv1.ReplicaSet] {
	return table[*appsv1.ReplicaSet]{
		columns: replicaColumns(),
		row: func(r *appsv1.ReplicaSet, now time.Time) []any {
			return append([]any{
				r.Name, int64(deref(r.Spec.Replicas, 0)), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas), age(r, now),
			}, workloadCells(&r.Spec.Template.Spec, metav1.FormatLabelSelector(r.Spec.Selector))...)
		},
	}
}

func replicationControllerTable() table[*corev1.ReplicationController] {
	return table[*corev1.ReplicationController]{
		columns: replicaColumns(),
		row: func(r *corev1.ReplicationController, now time.Time) []any {
			template := deref(r.Spec.Template, corev1.PodTemplateSpec{})
			return append([]any{
				r.Name, int64(deref(r.Spec.Replicas, 0)), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas), age(r, now),
			}, workloadCells(&template.Spec, labels.FormatLabels(r.Spec.Selector))...)
		},
	}
}

func statefulSetTable() table[*appsv1.StatefulSet] {
	cols := workload(columns(text("Ready", "How many replicas are ready, of how many wanted.")))
	return table[*appsv1.StatefulSet]{
		columns: cols[:len(cols)-1], // no selector, as in Kubernetes
		row: func(s *appsv1.StatefulSet, now time.Time) []any {
			names, images := containerCells(&s.Spec.Template.Spec)
			return []any{
				s.Name, fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, deref(s.Spec.Replicas, 0)), age(s, now), names, images,
			}
		},
	}
}

func daemonSetTable() table[*appsv1.DaemonSet] {
	return table[*appsv1.DaemonSet]{
		columns: workload(columns(
			number("Desired", "How many nodes should run a pod."),
			number("Current", "How many nodes that should run a pod do."),
			number("Ready", "How many nodes run a ready pod."),
			number("Up-to-date", "How many nodes run a pod of the current template."),
			number("Available", "How many nodes run a pod that has been ready for long enough."),
			text("Node Selector", "Which nodes are meant."),
		)),
		row: func(d *appsv1.DaemonSet, now time.Time) []any {
			s := &d.Status
			return append([]any{
				d.Name, int64(s.DesiredNumberScheduled), int64(s.CurrentNumberScheduled), int64(s.NumberReady),
				int64(s.UpdatedNumberScheduled), int64(s.NumberAvailable),
				labels.FormatLabels(d.Spec.Template.Spec.NodeSelector), age(d, now),
			}, workloadCells(&d.Spec.Template.Spec, metav1.FormatLabelSelector(d.Spec.Selector))...)
		},
	}
}

func controllerRevisionTable() table[*appsv1.ControllerRevision] {
	return table[*appsv1.ControllerRevision]{
		columns: columns(
			text("Controller", "The object whose state this is."),
			text("Revision", "The number of the revision."),
		),
		row: func(r *appsv1.ControllerRevision, now time.Time) []any {
			controller := none
			if ref := metav1.GetControllerOf(r); ref != nil {
				group := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
				controller = strings.ToLower(group.String()) + "/" + ref.Name
			}
			return []any{r.Name, controller, r.Revision, age(r, now)}
		},
	}
}

func jobTable() table[*batchv1.Job] {
	return table[*batchv1.Job]{
		columns: workload(columns(
			text("Status", "How the job is doing."),
			text("Completions", "How many pods succeeded, of how many needed."),
			text("Duration", "How long the job took, or has been running."),
		)),
		row: func(j *batchv1.Job, now time.Time) []any {
			return append([]any{j.Name, jobStatus(j), jobCompletions(j), jobDuration(j, now), age(j, now)},
				workloadCells(&j.Spec.Template.Spec, metav1.FormatLabelSelector(j.Spec.Selector))...)
		},
	}
}

func jobStatus(j *batchv1.Job) string {
	has := map[batchv1.JobConditionType]bool{}
	for _, c := range j.Status.Conditions {
		has[c.Type] = has[c.Type] || c.Status == corev1.ConditionTrue
	}
	switch {
	case has[batchv1.JobComplete]:
		return "Complete"
	case has[batchv1.JobFailed]:
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case has[batchv1.JobSuspended]:
		return "Suspended"
	case has[batchv1.JobFailureTarget]:
		return "FailureTarget"
	case has[batchv1.JobSuccessCriteriaMet]:
		return "SuccessCriteriaMet"
	}
	return "Running"
}

func jobCompletions(j *batchv1.Job) string {
	if j.Spec.Completions != nil {
		return fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	}
	if p := deref(j.Spec.Parallelism, 0); p > 1 {
		return fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, p)
	}
	return fmt.Sprintf("%d/1", j.Status.Succeeded)
}

func jobDuration(j *batchv1.Job, now time.Time) string {
	if j.Status.StartTime == nil {
		return ""
	}
	if end := j.Status.CompletionTime; end != nil {
		now = end.Time
	}
	return duration.HumanDuration(now.Sub(j.Status.StartTime.Time))
}

func cronJobTable() table[*batchv1.CronJob] {
	return table[*batchv1.CronJob]{
		columns: workload(columns(
			text("Schedule", "When jobs are started."),
			text("Timezone", "The time zone of the schedule."),
			boolean("Suspend", "Whether no more jobs are started."),
			number("Active", "How many jobs are running."),
			text("Last Schedule", "How long ago a job was started."),
		)),
		row: func(c *batchv1.CronJob, now time.Time) []any {
			last := none
			if c.Status.LastScheduleTime != nil {
				last = since(c.Status.LastScheduleTime.Time, now)
			}
			suspend := unset
			if c.Spec.Suspend != nil {
				suspend = map[bool]string{true: "True", false: "False"}[*c.Spec.Suspend]
			}
			template := &c.Spec.JobTemplate.Spec
			return append([]any{
				c.Name, c.Spec.Schedule, deref(c.Spec.TimeZone, none), suspend, int64(len(c.Status.Active)), last, age(c, now),
			}, workloadCells(&template.Template.Spec, metav1.FormatLabelSelector(template.Selector))...)
		},
	}
}
