package builtin

import (
	"fmt"
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
)

// jobOrphanWarning is sent with the delete of a Job whose options name no policy: its
// pods are then orphaned, which users do not expect.
const jobOrphanWarning = "child pods are preserved by default when jobs are deleted; " +
	"set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning"

func batchKinds() []*kind.Kind {
	return []*kind.Kind{
		jobDef().kind(),
		def[batchv1.CronJob, *batchv1.CronJob]{
			gv: batchv1.SchemeGroupVersion, plural: "cronjobs", short: []string{"cj"}, all: true,
			parts:          func(c *batchv1.CronJob) (any, any) { return &c.Spec, &c.Status },
			generation:     true,
			validate:       validateCronJob,
			validateCreate: validateCronJobName,
			table:          cronJobTable,
		}.kind(),
	}
}

func jobDef() def[batchv1.Job, *batchv1.Job] {
	return def[batchv1.Job, *batchv1.Job]{
		gv: batchv1.SchemeGroupVersion, plural: "jobs", all: true,
		rules:          lifecycle.Rules{DefaultPolicy: metav1.DeletePropagationOrphan},
		orphanWarning:  jobOrphanWarning,
		parts:          func(j *batchv1.Job) (any, any) { return &j.Spec, &j.Status },
		generation:     true,
		prepareCreate:  selectOwnPods,
		validate:       validateJob,
		validateUpdate: validateJobUpdate,
		validateStatus: validateJobStatus,
		warn: func(j *batchv1.Job) []string {
			if msgs := validation.IsDNS1123Label(j.Name); len(msgs) > 0 {
				return []string{fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", msgs)}
			}
			return nil
		},
		table: jobTable,
	}
}

// The labels that connect pods to their job, under the old and the new names.
const (
	oldJobNameLabel = "job-name"
	oldJobUIDLabel  = "controller-uid"
)

// selectOwnPods gives a job a selector that only its own pods match, by its uid. Name and
// uid must be set. Labels that the user has set stay; validation refuses wrong ones.
func selectOwnPods(job *batchv1.Job) {
	if deref(job.Spec.ManualSelector, false) {
		return
	}
	template := &job.Spec.Template
	// A job without labels of its own has those of its pods, the new ones too.
	if len(job.Labels) == 0 || maps.Equal(job.Labels, template.Labels) {
		defer func() { job.Labels = maps.Clone(template.Labels) }()
	}
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	for label, value := range map[string]string{
		oldJobNameLabel:            job.Name,
		batchv1.JobNameLabel:       job.Name,
		oldJobUIDLabel:             string(job.UID),
		batchv1.ControllerUidLabel: string(job.UID),
	} {
		if _, set := template.Labels[label]; !set {
			template.Labels[label] = value
		}
	}
	fillPtr(&job.Spec.Selector, metav1.LabelSelector{})
	if job.Spec.Selector.MatchLabels == nil {
		job.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, set := job.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel]; !set {
		job.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = string(job.UID)
	}
}
