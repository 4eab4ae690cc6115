// Package expiry deletes objects whose time is over: those with the annotations
// lifecycle.exeunt.dev/expires-at or lifecycle.exeunt.dev/ttl, finished Jobs with
// spec.ttlSecondsAfterFinished, and those that an ExpiryPolicy or ClusterExpiryPolicy selects.
//
// Each write of such an object enqueues its review for the time at which it expires, in the same
// transaction (store.Options.Expiry); each change of a policy enqueues the objects that it selects, in small steps
// (walk.go). The review reads object and policies again and deletes exactly that
// version of the object, by a request to the API: with admission, guard, archive and audit, as
// a client's delete. docs/spec/expiry.md has the races.
//
// A policy observes until it is started, waits again when its spec changes, and takes no more objects in
// a day than a person has confirmed (take.go). Reviews and previews ask one function, judge.decide.
//
// The package does not know the API: a function that it gets deletes. Begin with [Expirer.Review].
package expiry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

var queue = review.Queue{
	Name: "expiry", Table: "expiry_reviews", Key: "uid",
	Batch: 500, Effects: together, // deletes that run at once share commits, and the writes of others wait for those
	Outside: true, Gather: 100 * time.Millisecond, // what is due within it shares reads and transactions, and is hardly later
	Idle:    time.Second, // a write may let an object expire at once
	Backoff: review.Backoff{Base: 5 * time.Second, Cap: 10 * time.Minute},
}

// User is the client that deletes what expires by its own annotations and fields, and a group. What a policy takes is deleted
// by a user of that group, with the policy in its name.
const User = "system:exeunt:expiry"

// Options configure an Expirer. Zero fields have defaults.
type Options struct {
	Now    func() time.Time
	Logger *slog.Logger
	// Kinds decodes objects for fields and conditions, and has the kinds of policies.
	Kinds *kind.Registry
	// Delete deletes an object as a client would. Errors: object.NotFound and object.Conflict if the
	// preconditions do not hold.
	Delete func(ctx context.Context, user string, o object.Object, options metav1.DeleteOptions) error
}

// Expirer is the reviewer of the queue of objects, and, as walker, of the queue of policies.
type Expirer struct {
	db       *sqldb.DB
	store    *store.Store
	opts     Options
	engine   *review.Engine
	walkers  *review.Engine
	taker    taker
	policies Policies
	// afterPage, if set, is called by tests between the read of a page of objects and the transaction with its rows.
	afterPage func()
	beforeSay func() // if set, is called by tests before the transaction with an Event
}

// New makes an Expirer.
func New(db *sqldb.DB, st *store.Store, o Options) (*Expirer, error) {
	if o.Delete == nil || o.Kinds == nil {
		return nil, errors.New("new expirer: it needs kinds and a way to delete")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	e := &Expirer{db: db, store: st, opts: o}
	e.taker = taker{db: db, now: o.Now}
	var err error
	options := review.Options{Now: o.Now, Logger: o.Logger}
	if e.engine, err = review.New(db, queue, e, review.Transactions(db), options); err == nil {
		e.walkers, err = review.New(db, policyQueue, walker{e}, review.Transactions(db), options)
	}
	return e, err
}

// Engines returns the review engines, to run and for metrics.
func (e *Expirer) Engines() []*review.Engine { return []*review.Engine{e.engine, e.walkers} }

// together is how many tasks share a read of the objects and the policies.
const together = 16

// Review implements review.Reviewer. The deletes are transactions of their own.
func (e *Expirer) Review(_ context.Context, _ review.Tx, _ time.Time, tasks []review.Task) ([]review.Verdict, error) {
	verdicts := make([]review.Verdict, 0, len(tasks))
	for some := range slices.Chunk(tasks, together) {
		read := &reading{tasks: some}
		for _, task := range some {
			verdicts = append(verdicts, review.Outside(func(ctx context.Context) review.Verdict { return e.expire(ctx, task, read) }))
		}
	}
	return verdicts, nil
}

// reading is the objects of some tasks, and the policies, as the first of these tasks finds them. A write that comes between that and
// the delete of another one is a conflict, as it is for the first one.
type reading struct {
	once    sync.Once
	tasks   []review.Task
	mu      sync.Mutex
	objects map[types.UID]*store.Stored // that were not taken; guarded by mu after once
	set     *Set
	err     error
}

func (r *reading) read(ctx context.Context, e *Expirer) {
	uids := make([]types.UID, len(r.tasks))
	for i, task := range r.tasks {
		uids[i] = types.UID(task.Key)
	}
	found, err := e.store.Reader().GetByUIDs(ctx, uids)
	r.objects = map[types.UID]*store.Stored{}
	for _, o := range found {
		r.objects[o.UID] = o
	}
	if r.err = err; err == nil {
		r.set, r.err = e.policies.Now(ctx, e.store.Reader())
	}
}

// take returns an object, once: a batch must not hold the bodies of all of its objects to its end.
func (r *reading) take(uid types.UID) *store.Stored {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.objects[uid]
	delete(r.objects, uid)
	return o
}

const (
	// countingWait is when an object is looked at again whose policy is being counted.
	countingWait = 2 * time.Second
	// restoredWait is when a restored object is looked at again, only to see whether it is still there.
	restoredWait = 30 * 24 * time.Hour
	// restored is the event of rows that the store writes when it restores an object whose time is over.
	restored = "restored"
)

// expire deletes an object if it is still to expire now.
func (e *Expirer) expire(ctx context.Context, task review.Task, r *reading) review.Verdict {
	r.once.Do(func() { r.read(ctx, e) })
	if r.err != nil {
		return review.Failed(r.err)
	}
	o := r.take(types.UID(task.Key))
	if o == nil || o.Deletion != 0 {
		return review.Kept()
	}
	now, nothing := e.opts.Now(), review.Kept()
	var after time.Time
	if task.Event == restored {
		after, nothing = task.Created, review.Again(restoredWait)
	}
	var again time.Time // if a policy may take it later
	j := judge{kinds: e.opts.Kinds.Snapshot(), set: r.set, now: now, store: e.store.Reader(), shares: &e.policies.shares, counts: (*Policy).Started}
	j.may = func(ctx context.Context, p *Policy) (bool, error) {
		taken, later, err := e.taker.take(ctx, p)
		again = earliest(again, later)
		return taken, err
	}
	j.resting = func(_ context.Context, p *Policy) (bool, error) {
		rest := e.policies.shares.rest(p.Namespace)
		if rest > 0 {
			again = earliest(again, now.Add(rest))
		}
		return rest > 0, nil
	}
	d, err := j.decide(ctx, o, after, now)
	wait := d.At.Sub(now)
	if d.By != "" && wait <= 0 {
		return e.delete(ctx, o, d)
	}
	look, unsaid := e.announce(ctx, j, o, after)
	err = errors.Join(err, unsaid)
	next := earliest(d.At, again, look)
	switch {
	case err != nil && (d.By == "" || wait > 2*queue.Backoff.Cap): // a failure of one policy must not make another one late
		return review.Failed(err)
	case next.IsZero():
		return nothing
	}
	return review.Again(next.Sub(now))
}

// earliest returns the first of the times that are not zero.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}

func (e *Expirer) delete(ctx context.Context, o *store.Stored, d Due) review.Verdict {
	version := o.ResourceVersion()
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &version}}
	if d.Propagation != "" {
		options.PropagationPolicy = &d.Propagation
	}
	user := User
	if d.Policy != nil {
		user, options.GracePeriodSeconds = d.Policy.Actor(), d.Policy.Grace
	}
	err := e.opts.Delete(ctx, user, o.Object, options)
	if err != nil && d.Policy != nil {
		if back := (walker{e}).exec(context.WithoutCancel(ctx), returnTaken, string(d.Policy.UID), day(e.opts.Now())); back != nil {
			return review.Failed(errors.Join(err, back))
		}
	}
	switch {
	case object.Is(err, object.NotFound):
		return review.Kept()
	case object.Is(err, object.Conflict):
		return review.Again(0) // another write came first: read again
	case err != nil:
		return review.Failed(fmt.Errorf("delete %s, which expired at %s by %s: %w", o.Key, d.At.Format(time.RFC3339), d.By, err))
	}
	e.opts.Logger.Info("object expired", "object", o.Key.String(), "uid", o.UID, "at", d.At, "by", d.By)
	return review.Acted()
}

// Next returns when an object expires by what it says and by the policies that have been started, and why its last
// delete was refused; no By: it does not expire.
func Next(ctx context.Context, r *store.Reader, kinds *kind.Snapshot, policies *Policies, o *store.Stored, now time.Time) (d Due, failure string, err error) {
	var restoredAt int64
	if _, err := sqldb.First(ctx, r, []any{&failure, &restoredAt}, lastError, string(o.UID)); err != nil {
		return d, "", err
	}
	set, err := policies.Now(ctx, r)
	if err != nil {
		return d, "", err
	}
	j := judge{kinds: kinds, set: set, now: now, store: r, shares: &policies.shares, counts: (*Policy).Started}
	j.resting = func(ctx context.Context, p *Policy) (bool, error) {
		return false, policies.shares.await(ctx, p.Namespace)
	}
	d, err = j.decide(ctx, o, since(restoredAt), lifecycle.Forever)
	return d, failure, err
}

// since is when an object was restored; zero if it was not.
func since(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.UnixMilli(at)
}
