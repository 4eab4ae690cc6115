package gc

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/kind/event"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// Admission asks webhooks and policies about the deletes of the collector.
type Admission interface {
	// SelectsDelete reports whether a webhook or a policy may judge the delete of an
	// object of a kind. It reads memory only.
	SelectsDelete(storage string) bool
	// AdmitDelete asks them. An error is their refusal, or says why they cannot be
	// asked. emptying: a terminating namespace loses the object.
	AdmitDelete(ctx context.Context, o object.Object, options metav1.DeleteOptions, emptying bool) error
}

// A review runs in a transaction, and a webhook may take half a minute. So a delete
// that a webhook may judge is not made by the review that finds it: the review puts
// the object into a second queue, gc_admission_reviews, and goes on. The admitter decides
// again, asks outside every transaction, and deletes exactly the revision that was
// admitted. docs/spec/admission.md has the races.

// askQueue has several small batches at once, so that a webhook that does not answer
// holds up few other kinds, and a gate (pace.go) keeps it from doing so again. The lease is
// longer than the longest time limit of a mutating and a validating webhook.
var askQueue = review.Queue{
	Name: "admission", Table: "gc_admission_reviews", Key: "uid", Batch: 8, Effects: 8, Lease: 70 * time.Second,
	Backoff: review.Backoff{Base: time.Second, Cap: time.Minute},
}

// admitters is how many batches are asked about at once.
const admitters = 4

// admitter reviews the objects whose delete must be admitted.
type admitter struct {
	c         *Collector
	admission Admission // nil means every delete is admitted
	engine    *review.Engine
	gate      gate
}

func newAdmitter(c *Collector) (*admitter, error) {
	a := &admitter{c: c, admission: c.opts.Admission, gate: gate{now: c.opts.Now}}
	q := askQueue
	q.Idle = c.opts.Poll
	var err error
	a.engine, err = review.New(c.db, q, a, c.store.Transact, review.Options{Paused: c.Paused, Now: c.opts.Now, Logger: c.opts.Logger})
	return a, err
}

// deferral is a delete that waits for its admission.
type deferral struct {
	version
	cause    string // the uid of the owner or namespace
	options  metav1.DeleteOptions
	emptying bool
	unserved bool // it refers to a removed owner by a kind that is not served
}

// mustAsk reports whether the delete of an object waits for its admission. An object
// that is DELETING was admitted when that began.
func (s *session) mustAsk(o *item) bool {
	return s.c.admitter.admission != nil && !o.Deleting && s.admitted != version{o.UID, o.Revision} &&
		s.c.admitter.admission.SelectsDelete(o.Kind)
}

// version names a revision of an object.
type version struct {
	uid      types.UID
	revision int64
}

// enqueueDeferred queues the deletes that wait. It charges them to no budget: the next
// transaction of a review would read the same objects again, and never those behind
// them. A row that exists stays as it is, with its failures: see the spec.
func (s *session) enqueueDeferred(ctx context.Context) error {
	if len(s.deferred) == 0 {
		return nil
	}
	var b sqldb.Batch
	for _, d := range s.deferred {
		b.Exec(askEnqueue, string(d.uid), s.now.UnixMilli(), d.cause)
	}
	s.deferred = s.deferred[:0]
	s.c.asked.Store(true)
	return s.tx.Send(ctx, &b)
}

// transact wakes the admitter after a review that queued deletes for it.
func (c *Collector) transact(ctx context.Context, fn func(tx *store.Tx) error) error {
	err := c.store.Transact(ctx, fn)
	if c.asked.Swap(false) {
		c.admitter.engine.Wake()
	}
	return err
}

// Review implements review.Reviewer. It decides again about each object; one that is
// still garbage is asked about after the transaction.
func (a *admitter) Review(ctx context.Context, tx *store.Tx, now time.Time, tasks []review.Task) ([]review.Verdict, error) {
	verdicts := make([]review.Verdict, len(tasks))
	s := a.c.session(tx, now)
	for i, task := range tasks {
		before := s.budget
		o, err := s.again(ctx, types.UID(task.Key), task.Event)
		if err != nil {
			return nil, fmt.Errorf("review %s: %w", task.Key, err)
		}
		verdicts[i] = acted(s.budget < before)
		if len(s.deferred) > 0 {
			d, found := s.deferred[0], o.Object
			verdicts[i] = review.Outside(func(ctx context.Context) review.Verdict { return a.ask(ctx, found, d) })
			s.deferred = s.deferred[:0]
		}
	}
	return verdicts, event.Recorder{Kinds: a.c.kinds}.Record(ctx, tx, now, s.events...)
}

// again decides about an object that a review found to be garbage, and deletes it if
// its delete is admitted. It returns the object as it was; nil if it is gone.
func (s *session) again(ctx context.Context, uid types.UID, cause string) (*item, error) {
	o, err := s.tx.GetByUID(ctx, uid)
	if err != nil || o == nil || o.Deleting {
		return nil, err
	}
	if err := s.setCause(ctx, cause); err != nil {
		return nil, err
	}
	found := *o
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", o.Key, err)
	}
	if s.emptying, err = s.isEmptied(ctx, o.Namespace); err != nil {
		return nil, err
	}
	defer func() { s.emptying = false }()
	if s.emptying {
		if err := s.delete(o, m, metav1.DeletePropagationBackground); err != nil {
			return nil, err
		}
		return &found, s.tx.Flush()
	}
	for _, r := range m.OwnerReferences {
		owner, err := s.tx.GetByUID(ctx, r.UID)
		if err != nil {
			return nil, err
		}
		if owner != nil && owner.Deleting {
			if err := s.noteGrace(owner); err != nil {
				return nil, err
			}
		}
	}
	return &found, s.judge(ctx, []*item{o})
}

// isEmptied reports whether a namespace is terminating and its content goes.
func (s *session) isEmptied(ctx context.Context, namespace string) (bool, error) {
	if namespace == "" {
		return false, nil
	}
	ns, err := s.tx.Get(ctx, object.Key{Kind: object.Namespaces, Name: namespace})
	if err != nil || ns == nil {
		return false, err
	}
	return ns.Deleting && ns.Finalizing&store.FinalizeNamespace != 0 && ns.Finalizing&store.FinalizeConfirm == 0, nil
}

// ask asks about a delete and, if it is admitted, makes it. The row is settled by the
// next review, in the transaction that finds the object gone or no longer garbage: so
// a review that finds it to be garbage meanwhile cannot be lost.
func (a *admitter) ask(ctx context.Context, o object.Object, d deferral) review.Verdict {
	if err := a.gate.enter(o.Kind); err != nil {
		return review.Failed(err)
	}
	err := a.admission.AdmitDelete(ctx, o, d.options, d.emptying)
	a.gate.leave(o.Kind, err)
	if err != nil {
		return review.Failed(err)
	}
	err = a.c.store.Transact(ctx, func(tx *store.Tx) error {
		s := a.c.session(tx, a.c.opts.Now())
		s.admitted = d.version
		if _, err := s.again(ctx, d.uid, d.cause); err != nil {
			return err
		}
		return event.Recorder{Kinds: a.c.kinds}.Record(ctx, tx, s.now, s.events...)
	})
	if err != nil {
		return review.Failed(err)
	}
	return review.Progressed(0)
}
