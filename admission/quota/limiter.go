package quota

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// settleTime is how long a review waits for more changes. The status follows within 100 ms.
const settleTime = 75 * time.Millisecond

// limiter is the Ledger in one transaction. It implements store.Limiter.
type limiter struct {
	ledger  *Ledger
	at      store.Locked
	own     map[string]*space // the namespaces of this transaction, with its own changes
	written map[string]bool   // namespaces that this transaction has changed
	reviews map[string]bool   // uids of quotas
	changed bool
}

// Prepare copies the usage of a namespace, so that the changes of this transaction are
// counted, and forgotten if it does not commit.
//
// If the transaction has changed the namespace, a count in it would see that, and the
// ledger must not: another transaction would count the same changes twice, or keep those of
// a transaction that failed. Then the count is for this transaction alone.
func (t *limiter) Prepare(ctx context.Context, namespace string) error {
	if t.own[namespace] != nil {
		return nil
	}
	t.ledger.mu.Lock()
	defer t.ledger.mu.Unlock()
	s := t.ledger.spaces[namespace]
	if s == nil {
		return nil
	}
	if err := t.ledger.catchUp(ctx, t.at); err != nil {
		return err
	}
	if t.written[namespace] {
		s = s.copy()
		s.loaded = false
	}
	if !s.loaded {
		if err := s.load(ctx, t.at.Reader, namespace); err != nil {
			return err
		}
	}
	if t.own == nil {
		t.own = map[string]*space{}
	}
	t.own[namespace] = s.copy()
	return nil
}

// Check asks the library's rules about a create or an update.
func (t *limiter) Check(c store.Change) error {
	s := t.own[c.Key.Namespace]
	if s == nil || !s.counts(c.Key.Kind) || c.Type == store.Updated && !hasContent(c.Key.Kind) {
		return nil
	}
	after, before := decode(c.Key.Kind, c.After), decode(c.Key.Kind, c.Before)
	if after == nil {
		return object.BadRequestf("%s cannot be measured for a quota", c.Key)
	}
	operation, part := admission.Create, ""
	if c.Type == store.Updated {
		operation, part = admission.Update, partOf(before, after)
		if m, ok := before.(metav1.Object); ok {
			m.SetResourceVersion("1") // says to the rules that it exists
		}
	}
	var quotas []corev1.ResourceQuota
	for _, e := range s.entries {
		q := e.quota
		q.Status.Used = s.usedAt(e, t.at.Now)
		quotas = append(quotas, q)
	}
	resource := schema.ParseGroupResource(c.Key.Kind)
	attributes := admission.NewAttributesRecord(after, before, schema.GroupVersionKind{Group: resource.Group}, c.Key.Namespace, c.Key.Name,
		resource.WithVersion(""), part, operation, nil, false, nil)
	_, err := resourcequota.CheckRequest(quotas, attributes, evaluatorFor(c.Key.Kind), nil)
	return refusal(err)
}

// refusal turns the library's answer into an error of the store.
func refusal(err error) error {
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return err
	}
	_, text, found := strings.Cut(status.ErrStatus.Message, " is forbidden: ")
	if !found {
		text = status.ErrStatus.Message
	}
	return object.Errorf(object.Forbidden, "%s", text)
}

// Accept implements store.Limiter.
func (t *limiter) Accept(c store.Change) {
	if c.Key.Namespace == "" {
		return
	}
	if c.Key.Kind == storage && changesSpec(c) {
		t.changed = true
		if c.Type != store.Removed {
			t.review(c.UID)
		}
	}
	s := t.own[c.Key.Namespace]
	if s == nil {
		if s = t.ledger.quotasOf(c.Key.Namespace); s == nil {
			return
		}
	}
	if t.written == nil {
		t.written = map[string]bool{}
	}
	t.written[c.Key.Namespace] = true
	for _, uid := range s.change(c) {
		t.review(uid)
	}
}

// quotasOf returns the quotas of a namespace, without their usage, or nil.
func (l *Ledger) quotasOf(namespace string) *space {
	if !l.active.Load() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.spaces[namespace]
	if s == nil {
		return nil
	}
	out := &space{}
	for _, e := range s.entries {
		out.entries = append(out.entries, &entry{uid: e.uid, quota: e.quota, names: e.names})
	}
	return out
}

func changesSpec(c store.Change) bool {
	if c.Type != store.Updated {
		return true
	}
	var before, after corev1.ResourceQuota
	if json.Unmarshal(c.Before, &before) != nil || json.Unmarshal(c.After, &after) != nil {
		return true
	}
	return !equality.Semantic.DeepEqual(before.Spec, after.Spec)
}

func (t *limiter) review(uid string) {
	if t.reviews == nil {
		t.reviews = map[string]bool{}
	}
	t.reviews[uid] = true
}

// Changed implements store.Limiter.
func (t *limiter) Changed() bool { return t.changed }

// Queue puts the quotas whose usage changes under review, in the order of their uids, so
// that two transactions cannot deadlock.
func (t *limiter) Queue(b *sqldb.Batch) {
	for _, uid := range slices.Sorted(maps.Keys(t.reviews)) {
		t.ledger.engine.Enqueue(b, uid, "usage", t.at.Now.Add(settleTime))
	}
}
