package expiry

import (
	"bytes"
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

// Policy is why an object expires, and how it is deleted then.
type Policy struct {
	At time.Time
	// By is the annotation or the field that says so; empty if the object does not expire.
	By string
	// Propagation is empty for an object whose finalizers say it.
	Propagation metav1.DeletionPropagation
}

// ours begins all annotations of this server, as stored bodies have them.
var ours = []byte(`"lifecycle.exeunt.dev/`)

// Due is Of, for each write of an object: the zero time if it does not expire.
func Due(key object.Key, body []byte) time.Time {
	p, err := Of(key, body)
	if err != nil {
		return time.Time{} // metadata that cannot be read has no annotations
	}
	return p.At
}

// Of reads from its body when an object expires. It parses only bodies of Jobs, and those with annotations of this server.
func Of(key object.Key, body []byte) (p Policy, err error) {
	annotated := bytes.Contains(body, ours)
	if !annotated && key.Kind != jobs {
		return p, nil
	}
	m, err := object.ParseMeta(body)
	if err != nil {
		return p, err
	}
	if !slices.Contains(m.Finalizers, metav1.FinalizerDeleteDependents) && !slices.Contains(m.Finalizers, metav1.FinalizerOrphanDependents) {
		p.Propagation = metav1.DeletePropagationBackground
	}
	p.At, p.By = lifecycle.Expiry(&m)
	if key.Kind != jobs {
		return p, nil
	}
	var job batchv1.Job
	if err := json.Unmarshal(body, &job); err != nil {
		return p, err
	}
	at, ends := finished(&job)
	if !ends {
		return p, nil
	}
	if at, by := lifecycle.Kept(&m, at, "spec.ttlSecondsAfterFinished"); by != "" && (p.By == "" || at.Before(p.At)) {
		p = Policy{at, by, metav1.DeletePropagationForeground} // as kube-controller-manager does
	}
	return p, nil
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
