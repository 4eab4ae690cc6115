package expiry

import (
	"encoding/json"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// jobs is the kind that expires by a field of its own.
const jobs = "jobs.batch"

// Due is when and why an object expires, and how it is deleted then.
type Due struct {
	At time.Time
	// Over is when its time is over. At is later, if the policy takes it in its next window.
	Over time.Time
	// By is the annotation, the field or the policy that says so; empty if the object does not expire.
	By string
	// Propagation is empty for an object whose finalizers say it.
	Propagation metav1.DeletionPropagation
	Policy      *Policy // nil: the object says it itself
}

// ours begins all annotations of this server, as stored bodies have them.
var ours = []byte(`"lifecycle.exeunt.dev/`)

// ofItself returns when an object expires by its own annotations and fields.
func ofItself(key object.Key, m *metav1.ObjectMeta, body []byte) (d Due, err error) {
	d.Propagation = propagation(m)
	d.At, d.By = lifecycle.Expiry(m)
	if key.Kind != jobs {
		return d, nil
	}
	var job batchv1.Job
	if err := json.Unmarshal(body, &job); err != nil {
		return d, err
	}
	at, ends := finished(&job)
	if !ends {
		return d, nil
	}
	if at, by := lifecycle.Kept(m, at, "spec.ttlSecondsAfterFinished"); by != "" && (d.By == "" || at.Before(d.At)) {
		d = Due{At: at, By: by, Propagation: metav1.DeletePropagationForeground} // as kube-controller-manager does
	}
	return d, nil
}

// propagation is that of an object that says nothing else.
func propagation(m *metav1.ObjectMeta) metav1.DeletionPropagation {
	if slices.Contains(m.Finalizers, metav1.FinalizerDeleteDependents) || slices.Contains(m.Finalizers, metav1.FinalizerOrphanDependents) {
		return ""
	}
	return metav1.DeletePropagationBackground
}

// finished returns when the time to live of a Job that has finished ends.
func finished(job *batchv1.Job) (at time.Time, ends bool) {
	ttl := job.Spec.TTLSecondsAfterFinished
	if ttl == nil {
		return at, false
	}
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Add(time.Duration(*ttl) * time.Second), true
		}
	}
	return at, false
}
