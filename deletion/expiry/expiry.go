// Package expiry deletes objects whose time is over: those with the annotations
// lifecycle.exeunt.dev/expires-at or lifecycle.exeunt.dev/ttl, and finished Jobs with
// spec.ttlSecondsAfterFinished.
//
// Each write of such an object enqueues its review for the time at which it expires, in the same
// transaction (store.Options.Due). The review reads the object again and deletes exactly that
// version of it, by a request to the API: with admission, guard, archive and audit, as
// a client's delete. docs/spec/expiry.md has the races.
//
// The package does not know the API: a function that it gets deletes. Begin with [Expirer.Review].
package expiry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

var queue = review.Queue{
	Name: "expiry", Table: "expiry_reviews", Key: "uid",
	Batch: 500, Effects: 64, // deletes that run at once share commits
	Backoff: review.Backoff{Base: 5 * time.Second, Cap: 10 * time.Minute},
}

// Options configure an Expirer. Zero fields have defaults.
type Options struct {
	Now    func() time.Time
	Logger *slog.Logger
	// Delete deletes an object as a client would. Errors: object.NotFound and object.Conflict if the
	// preconditions do not hold.
	Delete func(ctx context.Context, o object.Object, options metav1.DeleteOptions) error
}

// Expirer is the reviewer of the queue.
type Expirer struct {
	store  *store.Store
	opts   Options
	engine *review.Engine
}

// New makes an Expirer.
func New(db *sqldb.DB, st *store.Store, o Options) (*Expirer, error) {
	if o.Delete == nil {
		return nil, errors.New("new expirer: it needs a way to delete")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	e := &Expirer{store: st, opts: o}
	var err error
	e.engine, err = review.New(db, queue, e, review.Transactions(db), review.Options{Now: o.Now, Logger: o.Logger})
	return e, err
}

// Run deletes what expires until the context ends.
func (e *Expirer) Run(ctx context.Context) error { return e.engine.Run(ctx) }

// Engine returns the review engine, for metrics.
func (e *Expirer) Engine() *review.Engine { return e.engine }

// Review implements review.Reviewer. The deletes are transactions of their own.
func (e *Expirer) Review(_ context.Context, _ review.Tx, _ time.Time, tasks []review.Task) ([]review.Verdict, error) {
	verdicts := make([]review.Verdict, len(tasks))
	for i, task := range tasks {
		verdicts[i] = review.Outside(func(ctx context.Context) review.Verdict { return e.expire(ctx, types.UID(task.Key)) })
	}
	return verdicts, nil
}

// expire deletes an object if it is still to expire now.
func (e *Expirer) expire(ctx context.Context, uid types.UID) review.Verdict {
	o, err := e.store.Reader().GetByUID(ctx, uid)
	if err != nil {
		return review.Failed(err)
	}
	if o == nil || o.Deletion != 0 {
		return review.Kept()
	}
	p, err := Of(o.Key, o.Body)
	switch wait := p.At.Sub(e.opts.Now()); {
	case err != nil:
		return review.Failed(err)
	case p.By == "":
		return review.Kept()
	case wait > 0:
		return review.Again(wait)
	}
	version := o.ResourceVersion()
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &version}}
	if p.Propagation != "" {
		options.PropagationPolicy = &p.Propagation
	}
	err = e.opts.Delete(ctx, o.Object, options)
	switch {
	case object.Is(err, object.NotFound):
		return review.Kept()
	case object.Is(err, object.Conflict):
		return review.Again(0) // another write came first: read again
	case err != nil:
		return review.Failed(fmt.Errorf("delete %s, which expired at %s by %s: %w", o.Key, p.At.Format(time.RFC3339), p.By, err))
	}
	e.opts.Logger.Info("object expired", "object", o.Key.String(), "uid", uid, "at", p.At, "by", p.By)
	return review.Acted()
}

// lastError reads the failure of a review.
const lastError = `SELECT coalesce(last_error, '') FROM expiry_reviews WHERE uid = $1`

// Failure returns why the last delete of an expired object was refused; empty if none was.
func Failure(ctx context.Context, r *store.Reader, uid types.UID) (failure string, err error) {
	_, err = sqldb.First(ctx, r, []any{&failure}, lastError, string(uid))
	return failure, err
}
