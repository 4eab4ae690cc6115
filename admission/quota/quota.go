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
// An evaluator says what an object uses; the comparison and its texts are the library's.
// docs/spec/quota.md has the races.
package quota

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	arithmetic "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/component-helpers/resource"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/utils/clock"

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
	db     *sqldb.DB
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
	l := &Ledger{db: db, store: st, kinds: kinds}
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
	if slices.ContainsFunc(events, func(e *store.Event) bool { return e.Object.Kind == storage }) {
		l.engine.Wake() // the first quota of its namespace, which no check has read
	}
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
		if err := l.addRegistry(ctx, uid, status.Used); err != nil {
			return review.Verdict{}, err
		}
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

// The kinds whose content is measured. All others are only counted.
const (
	pods     = "pods"
	services = "services"
	claims   = "persistentvolumeclaims"
)

// classic are the kinds that have a name besides count/….
var classic = map[string]corev1.ResourceName{
	"configmaps":             corev1.ResourceConfigMaps,
	"resourcequotas":         corev1.ResourceQuotas,
	"replicationcontrollers": corev1.ResourceReplicationControllers,
	"secrets":                corev1.ResourceSecrets,
}

// countPods counts all pods; other names count those that have not ended.
const countPods = corev1.ResourceName("count/pods")

// measured are Kubernetes' own evaluators. They never list objects: the ledger counts.
var measured = map[string]arithmetic.Evaluator{
	pods:     core.NewPodEvaluator(nil, noTime{}),
	services: core.NewServiceEvaluator(nil),
	claims:   core.NewPersistentVolumeClaimEvaluator(nil),
}

// noTime is a clock that stands still, long ago: what an object uses follows from the object
// alone, because the ledger subtracts on its removal what it added before. The ledger itself
// knows which pods should have left (usedAt).
type noTime struct{ clock.Clock }

func (noTime) Now() time.Time { return time.Time{} }

// placeholder stands for an object that is only counted.
var placeholder runtime.Object = &metav1.PartialObjectMetadata{}

// hasContent reports whether an object of the kind uses more than one unit, so that an update
// may change what it uses.
func hasContent(kind string) bool { return kind == pods || kind == services || kind == claims }

// decode reads the content that is measured. Nil if there is no object.
func decode(kind string, body []byte) runtime.Object {
	var obj runtime.Object
	switch {
	case body == nil:
		return nil
	case kind == pods:
		obj = &corev1.Pod{}
	case kind == services:
		obj = &corev1.Service{}
	case kind == claims:
		obj = &corev1.PersistentVolumeClaim{}
	default:
		return placeholder.DeepCopyObject()
	}
	if json.Unmarshal(body, obj) != nil {
		return nil
	}
	return obj
}

// partOf names the subresource that an update went through, as far as the rules depend on
// it: the store does not know it.
func partOf(before, after runtime.Object) string {
	switch old := before.(type) {
	case *corev1.Pod:
		now, asked := after.(*corev1.Pod), resource.PodResourcesOptions{}
		if !equality.Semantic.DeepEqual(resource.PodRequests(old, asked), resource.PodRequests(now, asked)) ||
			!equality.Semantic.DeepEqual(resource.PodLimits(old, asked), resource.PodLimits(now, asked)) {
			return "resize"
		}
	case *corev1.PersistentVolumeClaim:
		if equality.Semantic.DeepEqual(old.Spec, after.(*corev1.PersistentVolumeClaim).Spec) {
			return "status" // a controller reports: it is never refused
		}
	}
	return ""
}

// kindsOf returns the kinds that a name of a quota counts.
func kindsOf(name corev1.ResourceName) []string {
	if kind, ok := strings.CutPrefix(string(name), "count/"); ok {
		return []string{kind}
	}
	one := []corev1.ResourceName{name}
	var kinds []string
	for _, kind := range []string{pods, services, claims} {
		if len(evaluatorFor(kind).MatchingResources(one)) > 0 {
			kinds = append(kinds, kind)
		}
	}
	for kind, alias := range classic {
		if alias == name {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

var counters sync.Map // kind to arithmetic.Evaluator; only grows with the kinds that are written

// evaluatorFor returns what measures the objects of a kind.
func evaluatorFor(kind string) arithmetic.Evaluator {
	if e, ok := measured[kind]; ok {
		return e
	}
	if known, ok := counters.Load(kind); ok {
		return known.(arithmetic.Evaluator)
	}
	made, _ := counters.LoadOrStore(kind, generic.NewObjectCountEvaluator(schema.ParseGroupResource(kind), nil, classic[kind]))
	return made.(arithmetic.Evaluator)
}
