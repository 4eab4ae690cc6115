package quota

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	arithmetic "k8s.io/apiserver/pkg/quota/v1"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/store"
)

// Review writes the status of quotas: review.Reviewer. It reads the usage as a check does,
// so that status.used is exact at the revision that writes it.
func (l *Ledger) Review(ctx context.Context, tx *store.Tx, now time.Time, tasks []review.Task) ([]review.Verdict, error) {
	verdicts := make([]review.Verdict, len(tasks))
	for i, task := range tasks {
		var err error
		if verdicts[i], err = l.review(ctx, tx, now, types.UID(task.Key)); err != nil {
			return nil, fmt.Errorf("review quota %s: %w", task.Key, err)
		}
	}
	return verdicts, nil
}

func (l *Ledger) review(ctx context.Context, tx *store.Tx, now time.Time, uid types.UID) (review.Verdict, error) {
	o, err := tx.GetByUID(ctx, uid)
	if err != nil {
		return review.Verdict{}, err
	}
	if o == nil || o.Kind != storage {
		return review.Kept(), nil
	}
	t, ok := tx.Limiter().(*limiter)
	if !ok {
		return review.Verdict{}, errors.New("the store has no limits")
	}
	if err := t.Prepare(ctx, o.Namespace); err != nil {
		return review.Verdict{}, err
	}
	s := t.own[o.Namespace]
	if s == nil {
		return review.Verdict{}, fmt.Errorf("namespace %s has no quota", o.Namespace)
	}
	acted := false
	for _, e := range s.entries {
		if e.uid != string(uid) {
			continue
		}
		status := corev1.ResourceQuotaStatus{Hard: e.quota.Spec.Hard, Used: arithmetic.Mask(s.usedAt(e, now), e.names)}
		if acted, err = l.write(tx, o, status); err != nil {
			return review.Verdict{}, err
		}
	}
	return verdict(acted, s.nextLeave(now)), nil
}

func verdict(acted bool, again time.Duration) review.Verdict {
	switch {
	case acted && again > 0:
		return review.Progressed(again)
	case acted:
		return review.Acted()
	case again > 0:
		return review.Again(again)
	}
	return review.Kept()
}

// write replaces the status, unless it is equal.
func (l *Ledger) write(tx *store.Tx, o *store.Stored, status corev1.ResourceQuotaStatus) (bool, error) {
	v, ok := l.kinds.Snapshot().Lookup(corev1.SchemeGroupVersion.WithResource(storage))
	if !ok {
		return false, errors.New("no kind ResourceQuota")
	}
	obj, err := v.Decode(o.Body, "")
	if err != nil {
		return false, err
	}
	q, ok := obj.(*corev1.ResourceQuota)
	if !ok {
		return false, fmt.Errorf("got a %T", obj)
	}
	if equality.Semantic.DeepEqual(q.Status, status) {
		return false, nil
	}
	q.Status = status
	body, err := v.Encode(q)
	if err != nil {
		return false, err
	}
	meta := object.MetaOf(q)
	_, err = tx.Rewrite(o, &meta, body)
	return err == nil, err
}
