// Package gc is the object collector. It deletes objects that lost their last
// owner, removes the references of orphaned dependents, keeps an owner in
// foreground deletion until its dependents are gone, and empties terminating
// namespaces, pods first.
//
// The parts are those of the garbage collection proposal, built on the database. The propagator is the
// triggers on objects and owners (sqldb/schema/sqlite.sql, postgres.sql): in the transaction that makes the
// change, they enqueue an owner that is gone, an owner that waits for its
// dependents, and an object whose owner is in another namespace. The dirty queue
// is the table gc_object_reviews, shared by all replicas. The scanner
// ([Collector.Scan]) is an anti-join. The garbage processor and the two
// finalizers are the reviewer in review.go.
//
// A review decides and acts in one write transaction of the store, which holds
// the lock on the revision: the review sees a concurrent change of an owner, or
// the change commits after it. The collector keeps no graph in memory and uses
// only the deletion rules of a kind, so a broken definition stops no other kind.
// The decisions are pure functions: decide.go.
package gc

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/event"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/graph"
)

// Options configure a Collector. Zero values are the defaults.
type Options struct {
	Logger *slog.Logger
	Now    func() time.Time
	// OrphanWait bounds how long orphaning waits for a controller to see the
	// deletion (status.observedGeneration). Default DefaultOrphanWait; negative: no
	// wait.
	OrphanWait time.Duration
	// Budget bounds the objects that one transaction changes. Default: as many
	// as take about 40 ms (see pace.go).
	Budget int
	// Admission asks webhooks and policies about deletes. Nil means every delete is admitted.
	Admission Admission
	// Poll is how often the engine reads the queue without a wake-up. Default 5 s.
	Poll time.Duration
}

// DefaultOrphanWait is long enough for a running controller, and short enough for
// a person who waits where no controller runs.
const DefaultOrphanWait = 10 * time.Second

// Collector reviews what deletions may have made garbage.
type Collector struct {
	db       *sqldb.DB
	store    *store.Store
	kinds    *kind.Registry
	engine   *review.Engine
	opts     Options
	pace     pace
	admitter *admitter
	asked    atomic.Bool // a review has queued deletes for the admitter

	mu       sync.Mutex
	paused   bool      // guarded by mu
	pausedAt time.Time // when paused was read; guarded by mu

	reported map[string]time.Time // last progress Event of each running cascade; guarded by mu
}

// queue is the dirty queue. A review takes a fraction of a second. The lease is
// how long the cascades of a crashed replica stand still.
var queue = review.Queue{Name: "objects", Table: "gc_object_reviews", Key: "uid", Batch: 100, Lease: 10 * time.Second}

const (
	// scanAfter is the delay of a scan after the collector starts or a kind is
	// added; scanRetry the delay after a failed scan.
	scanAfter = 2 * time.Second
	scanRetry = 10 * time.Second
)

// New makes a collector that the store wakes after changes. Call it before
// store.Run.
func New(db *sqldb.DB, st *store.Store, kinds *kind.Registry, o Options) (*Collector, error) {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	o.OrphanWait = cmp.Or(o.OrphanWait, DefaultOrphanWait)
	c := &Collector{db: db, store: st, kinds: kinds, opts: o, reported: map[string]time.Time{}}
	c.pace.fixed = o.Budget
	q := queue
	q.Idle = o.Poll
	var err error
	c.engine, err = review.New(db, q, c, c.transact, review.Options{
		Paused: c.Paused,
		Now:    o.Now,
		Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	if c.admitter, err = newAdmitter(c); err != nil {
		return nil, err
	}
	st.OnChange(c.wakeOnChange)
	return c, nil
}

// Run reviews until the context ends. It scans after the start and after a kind
// is added.
func (c *Collector) Run(ctx context.Context) error {
	tasks := []task.Task{{Name: "collector", Run: c.engine.Run}, task.Loop("collector-scan", c.scanWhenDue)}
	for range admitters {
		tasks = append(tasks, task.Task{Name: "collector-admission", Run: c.admitter.engine.Run})
	}
	return task.Run(ctx, c.opts.Logger, tasks...)
}

// scanWhenDue scans some seconds after the start, and after a new kind is served:
// dependents of its objects may have waited for that. The first scan is delayed
// in favour of clients that wait for the server: the triggers have enqueued
// everything that it would find.
func (c *Collector) scanWhenDue(ctx context.Context) {
	kinds, changed := c.kinds.Changed()
	for due := true; ; {
		if due && !c.scanSoon(ctx) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		before := kinds
		kinds, changed = c.kinds.Changed()
		due = hasNewKind(kinds, before)
	}
}

// scanSoon scans after scanAfter, and retries until it succeeds. The scan includes
// kinds that are added during the delay.
func (c *Collector) scanSoon(ctx context.Context) (goOn bool) {
	for wait := scanAfter; task.Sleep(ctx, wait); wait = scanRetry {
		_, err := c.Scan(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() == nil {
			c.opts.Logger.Warn("scan for objects without owners failed", "error", err, "retry", scanRetry)
		}
	}
	return false
}

// hasNewKind reports whether kinds has a kind that before has not.
func hasNewKind(kinds, before *kind.Snapshot) bool {
	return slices.ContainsFunc(kinds.Kinds, func(k *kind.Kind) bool {
		_, known := before.OfGroupKind(schema.GroupKind{Group: k.Group, Kind: k.Name})
		return !known
	})
}

// RunOne reviews at most one batch that is due: for tests.
func (c *Collector) RunOne(ctx context.Context) (review.Result, error) { return c.engine.RunOne(ctx) }

// Engines show the queues, for metrics and reports.
func (c *Collector) Engines() []*review.Engine {
	return []*review.Engine{c.engine, c.admitter.engine}
}

var (
	deletionMark = []byte(`"deletionTimestamp"`)
	ownersMark   = []byte(`"ownerReferences"`)
)

// wakeOnChange wakes the engine after changes, of any replica, that can have
// enqueued a review. Most changes cannot, and reading the queue costs a query.
func (c *Collector) wakeOnChange(events []*store.Event) {
	if len(events) == 0 { // the changes are unknown
		c.engine.Wake()
		return
	}
	for _, e := range events {
		if e.Type == store.Removed || bytes.Contains(e.Object.Body, deletionMark) || bytes.Contains(e.Object.Body, ownersMark) {
			c.engine.Wake()
			return
		}
	}
}

// report adds Events about suspicious references: to an object of another kind,
// name or namespace, or to an owner that cannot be looked up. Kubernetes has the
// reason OwnerRefInvalidNamespace too.
func (s *session) report(o *item, m *metav1.ObjectMeta) {
	for i := range m.OwnerReferences {
		r := &m.OwnerReferences[i]
		owner := s.owners[r.UID]
		switch standing, named := s.standing(o, r); {
		case standing == Dangling && owner.Exists && !named.Same:
			s.warn(o, r, "OwnerRefMismatch", fmt.Sprintf("ownerRef [%s/%s, name: %s, uid: %s] does not exist: the object with that uid has another kind or name",
				r.APIVersion, r.Kind, r.Name, r.UID))
		case standing == Dangling && owner.Exists && owner.Namespace != "" && owner.Namespace != o.Namespace:
			s.warn(o, r, "OwnerRefInvalidNamespace", fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
				r.APIVersion, r.Kind, o.Namespace, r.Name, r.UID, o.Namespace))
		case standing == Unresolvable:
			s.warn(o, r, "OwnerRefInvalidNamespace", fmt.Sprintf("ownerRef [%s/%s, name: %s, uid: %s] is namespaced, but %s is cluster-scoped: it is never collected",
				r.APIVersion, r.Kind, r.Name, r.UID, o.Name))
		case standing == Unknown:
			s.warn(o, r, "OwnerRefUnknownKind", fmt.Sprintf("ownerRef [%s/%s, name: %s, uid: %s] names a kind that this server does not serve: %s is kept until the kind is served and the owner can be looked up",
				r.APIVersion, r.Kind, r.Name, r.UID, o.Name))
		}
	}
}

func (s *session) warn(o *item, r *metav1.OwnerReference, reason, message string) {
	s.events = append(s.events, event.Event{
		About: o.Object, Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		Source: reporter, Topic: string(r.UID), Once: true,
	})
}

// reporter is the name that Kubernetes gives the collector.
const reporter = "garbage-collector-controller"

// scanPage is how many references one statement reads, and how many reviews one
// transaction adds.
const scanPage = 500

// Scan enqueues what the triggers enqueue: owners that are referred to and do not
// exist, dependents whose reference does not match the object with that uid
// (another kind, name or namespace), and DELETING objects that wait for the
// collector. It is the safety net, at start and on demand, and it enqueues
// dependents whose owner's kind was not served until now. It returns how many
// reviews it added.
//
// It reads page by page, each page a statement of some milliseconds: no lock, no
// long snapshot that stops the database's vacuum, and no statement that outlives
// a killed process. A trigger enqueues what becomes reviewable behind the page,
// and uids are never reused.
func (c *Collector) Scan(ctx context.Context) (added int, err error) {
	for _, scan := range []func(context.Context, *cursor) ([]string, error){c.scanOwners, c.scanDeleting} {
		for at := (&cursor{}); !at.end; {
			found, err := scan(ctx, at)
			if err != nil {
				return added, fmt.Errorf("scan objects: %w", err)
			}
			n, err := c.enqueueFound(ctx, found)
			if err != nil {
				return added, fmt.Errorf("scan objects: %w", err)
			}
			added += n
		}
	}
	return added, nil
}

// cursor is where the next page of a scan begins.
type cursor struct {
	dependent int64
	uid       string
	end       bool
}

// scanOwners reads a page of references and returns the uids to review.
func (c *Collector) scanOwners(ctx context.Context, at *cursor) ([]string, error) {
	kinds := c.kinds.Snapshot()
	page, err := graph.References(ctx, c.store.Reader(), at.dependent, types.UID(at.uid), scanPage)
	if err != nil {
		return nil, err
	}
	var found []string
	for i := range page {
		f := &page[i]
		at.dependent, at.uid = f.ID, string(f.UID)
		var o Owner
		if f.Found {
			o = OwnerOf(f.Owner)
		}
		named := Identify(kinds, Reference{f.As.Group, f.As.Kind, f.Name}, o)
		switch standing := Classify(f.Dependent.Namespace, named, o); {
		case f.Dependent.Deletion != 0, standing == Solid, standing == Waiting: // DELETING already, kept, or scanDeleting finds its owner
		case o.Exists && !o.Leaving:
			found = append(found, string(f.Dependent.UID))
		case !o.Exists:
			found = append(found, at.uid)
		}
	}
	at.end = len(page) < scanPage
	slices.Sort(found)
	return slices.Compact(found), nil
}

// scanDeleting reads a page of objects that wait for the collector.
func (c *Collector) scanDeleting(ctx context.Context, at *cursor) (found []string, err error) {
	page, err := graph.Finalizing(ctx, c.store.Reader(), types.UID(at.uid), scanPage)
	for _, uid := range page {
		at.uid = string(uid)
		found = append(found, at.uid)
	}
	at.end = len(page) < scanPage
	return found, err
}

// enqueueFound adds the missing reviews in its own transaction and returns how
// many it added. The uids are sorted, so concurrent scans lock in the same order.
func (c *Collector) enqueueFound(ctx context.Context, found []string) (added int, err error) {
	if len(found) == 0 {
		return 0, nil
	}
	var b sqldb.Batch
	for _, uid := range found {
		b.Query(func(row sqldb.Row) error {
			added++
			return row.Scan(new(string))
		}, scanEnqueue, uid, c.opts.Now().UnixMilli())
	}
	if err := c.db.Transact(ctx, func(tx *sqldb.Tx) error { return tx.Send(ctx, &b) }); err != nil {
		return 0, err
	}
	if added > 0 {
		c.engine.Wake()
	}
	return added, nil
}
