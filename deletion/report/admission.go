package report

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/store"
)

// admission returns what webhooks and policies said about the delete of an object that
// the collector would delete. None: the collector does not wait for them.
func (t *reporter) admission(uid types.UID) ([]v1.Reason, error) {
	return t.reviews(gc.AdmissionByUID, uid, t.asked)
}

// asked describes a delete that waits for its admission. The library's errors name the
// webhook or the policy.
func (t *reporter) asked(task task) v1.Reason {
	since := metav1.NewTime(time.UnixMilli(task.created))
	reason := v1.Reason{Type: v1.ReasonAdmission, Since: &since}
	if task.failures == 0 {
		reason.Message = "the collector asks webhooks and policies about its delete"
		return reason
	}
	wait := max(time.UnixMilli(task.due).Sub(t.now).Round(time.Second), 0)
	reason.Message = fmt.Sprintf("its delete is not admitted: %s; asked %d %s, next in %v",
		task.lastError, task.failures, deletion.Plural(task.failures, "time"), wait)
	reason.Resolve = "mend the webhook or policy that the error names, or let it pass deletes of the garbage collector: " +
		"kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations,validatingadmissionpolicies,mutatingadmissionpolicies; the collector asks again by itself"
	return reason
}

// notAdmitted reports objects of a terminating namespace whose delete is not admitted.
func (t *reporter) notAdmitted(kind, namespace string) (out []v1.Reason, err error) {
	active, err := t.r.Select(t.ctx, store.Selection{Kind: kind, Namespace: namespace, State: store.Active, Limit: maxChildren})
	if err != nil {
		return nil, err
	}
	for _, h := range active {
		child, err := t.waiting(v1.ReasonContent, h)
		if err != nil {
			return nil, err
		}
		if len(child.Children) > 0 {
			out = append(out, child)
		}
	}
	return out, nil
}

// waiting describes an object of a cascade that is not DELETING.
func (t *reporter) waiting(sort v1.ReasonType, h *store.Stored) (v1.Reason, error) {
	ref := t.reference(h.Key, h.UID)
	children, err := t.admission(h.UID)
	return v1.Reason{Type: sort, Object: &ref, Message: deletion.Describe(ref) + " is not being deleted yet", Children: children}, err
}
