// Package quota enforces ResourceQuotas, exactly: no two creates, of any replica, get the
// last unit.
//
// A [Ledger] is the store's Limits. It keeps in memory what each namespace with a quota
// uses, at one revision, and moves it along with the change feed. A write is checked in its
// own transaction, which holds the lock on the revision: the ledger first reads the changes
// that it lacks, and is then exact. So the log of changes is the only record of usage; there
// are no counters in the database that could drift, and a removal, by whatever way, gives
// back what it used. A namespace without a quota costs a look-up in a map.
//
// status.used is written later, by a review, and no check reads it.
// evaluate.go says what an object uses; the comparison and its texts are the library's.
// docs/spec/quota.md has the races.
package quota

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	arithmetic "k8s.io/apiserver/pkg/quota/v1"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

const storage = "resourcequotas"

// maxGap is how many changes of other replicas a check reads from the log. Behind more, the
// ledger counts again.
const maxGap = 2000

// Ledger knows the quotas and what they count. It is safe for concurrent use.
type Ledger struct {
	store  *store.Store
	kinds  *kind.Registry
	engine *review.Engine
	active atomic.Bool // a namespace has a quota

	mu       sync.Mutex // guards all below
	known    bool       // the quotas were read
	changed  int64      // store.Locked.Quotas when they were read
	revision int64      // of the usage
	spaces   map[string]*space
}

var queue = review.Queue{Name: "quotas", Table: "quota_reviews", Key: "uid", Batch: 50}

// New makes a Ledger and gives it to the store. It does no I/O.
func New(db *sqldb.DB, st *store.Store, kinds *kind.Registry, log *slog.Logger) (*Ledger, error) {
	if db == nil || st == nil || kinds == nil {
		return nil, errors.New("quota: needs a database, a store and kinds")
	}
	l := &Ledger{store: st, kinds: kinds}
	var err error
	if l.engine, err = review.New(db, queue, l, st.Transact, review.Options{Logger: log}); err != nil {
		return nil, err
	}
	st.SetLimits(l)
	st.OnChange(l.follow)
	return l, nil
}

// Run writes the status of quotas until the context ends.
func (l *Ledger) Run(ctx context.Context) error { return l.engine.Run(ctx) }

// Engine returns the review engine, for metrics.
func (l *Ledger) Engine() *review.Engine { return l.engine }

// follow moves the usage along with the feed.
func (l *Ledger) follow(events []*store.Event) {
	if !l.active.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(events)
	for _, e := range events {
		if l.spaces[e.Object.Namespace] != nil {
			l.engine.Wake()
			return
		}
	}
}

// Begin implements store.Limits.
func (l *Ledger) Begin(ctx context.Context, at store.Locked) (store.Limiter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.known || l.changed != at.Quotas {
		if err := l.readQuotas(ctx, at); err != nil {
			return nil, err
		}
	}
	return &limiter{ledger: l, at: at}, nil
}

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
