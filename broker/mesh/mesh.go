// Package mesh manages the nodes of a project's mesh: how a node enrols, how it
// stays registered and how it leaves.
//
// A bootstrap token lets one node into one project, once (token.go).
// Enrolment consumes the token and registers the node in one transaction
// (enrol.go; the decision is pure). From then on the node
// authenticates with its own credential: it sends heartbeats and polls its
// peers (node.go).
//
// A registered node is two things that are written together: a row of
// mesh_nodes, with its credential and its last heartbeat, and a stored object,
// mesh.exeunt.dev/v1alpha1 MeshNode, which clients, controllers and peers
// watch. The object carries a finalizer, and a trigger puts a node whose object
// is being deleted under review. So a node leaves in one way, whichever client
// requests it (kubectl, a namespace's deletion, the broker, the node itself):
//
//	delete   the object gets its deletionTimestamp: the drain is asked for
//	drain    peers and node see that; the node finishes its connections
//	leave    the node says so, or the deadline passes: row and object go
//
// All of this state is in the database: any replica may die at any time, and
// any other continues. The reviewer is in review_node.go; docs/spec/mesh.md
// lists the races and their answers.
//
// The package implements the broker's ports (broker.go). It moves no data
// between nodes. Begin with [New].
package mesh

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/exeunt/exeunt/internal/inflight"
	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/event"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// Options configure a Mesh. Zero values have defaults.
type Options struct {
	// Heartbeat is the interval of nodes' heartbeats. Default 10 seconds.
	Heartbeat time.Duration
	// UnreachableAfter is the time without heartbeat after which a node is
	// Unreachable. Default four heartbeats.
	UnreachableAfter time.Duration
	// DrainTimeout applies to nodes that request none. Default 30 seconds.
	DrainTimeout time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Logger is the operator's log. Default slog.Default.
	Logger *slog.Logger
}

// MaxDrainTimeout is the longest drain timeout that a node may request.
const MaxDrainTimeout = time.Hour

func (o *Options) complete() {
	if o.Heartbeat <= 0 {
		o.Heartbeat = 10 * time.Second
	}
	if o.UnreachableAfter <= 0 {
		o.UnreachableAfter = 4 * o.Heartbeat
	}
	if o.DrainTimeout <= 0 {
		o.DrainTimeout = 30 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
}

// Mesh manages tokens and nodes. It is safe for concurrent use, and any number
// of them, in any number of processes, may share a database.
type Mesh struct {
	db     *sqldb.DB
	store  *store.Store
	kinds  *kind.Registry
	opts   Options
	engine *review.Engine

	closing context.Context // ends with Run; waiting polls are then answered
	close   context.CancelFunc
}

// queue is the queue of nodes under review.
var queue = review.Queue{Name: "mesh-nodes", Table: "mesh_node_reviews", Key: "uid", Batch: 50}

// New makes a Mesh and registers its kinds. It does no I/O.
func New(db *sqldb.DB, st *store.Store, kinds *kind.Registry, o Options) (*Mesh, error) {
	if db == nil || st == nil || kinds == nil {
		return nil, errors.New("mesh: needs a database, a store and kinds")
	}
	node, err := newKind()
	if err != nil {
		return nil, err
	}
	kinds.Put(node)
	o.complete()
	m := &Mesh{db: db, store: st, kinds: kinds, opts: o}
	m.closing, m.close = context.WithCancel(context.Background())
	m.engine, err = review.New(db, queue, m, st.Transact, review.Options{Now: o.Now, Logger: o.Logger})
	return m, err
}

// Run reviews nodes until the context ends, and then answers the waiting polls.
// Call it once.
func (m *Mesh) Run(ctx context.Context) error {
	defer m.close()
	return task.Run(ctx, m.opts.Logger,
		task.Task{Name: "mesh", Run: m.engine.Run},
		task.Loop("mesh-wake", func(ctx context.Context) {
			m.store.WakeOn(ctx, storage, m.engine.Wake) // a drain begins at once, not at the next poll
		}),
	)
}

// RunOne reviews at most one due batch: for tests.
func (m *Mesh) RunOne(ctx context.Context) (review.Result, error) { return m.engine.RunOne(ctx) }

// Engine returns the review engine, for metrics.
func (m *Mesh) Engine() *review.Engine { return m.engine }

// recordLeft writes an Event about how a node left, in the transaction of the
// removal. If the namespace is terminating, the Event goes into default.
func (m *Mesh) recordLeft(ctx context.Context, tx *store.Tx, n node, how string, now time.Time) error {
	e := event.Event{
		About: object.Object{Key: object.Key{Kind: storage, Namespace: n.project, Name: n.name}, UID: types.UID(n.uid)},
		Type:  corev1.EventTypeNormal, Reason: "Drained", Message: how, Source: "exeunt-mesh", Elsewhere: true,
	}
	if how != howDrained {
		e.Type, e.Reason = corev1.EventTypeWarning, "RemovedWithoutItsWord"
	}
	return event.Recorder{Kinds: m.kinds}.Record(ctx, tx, now, e)
}

// limiter bounds the request rate of each client address. It stores a bounded
// number of addresses, those that it saw last.
type limiter struct {
	every rate.Limit // requests per second
	burst int

	mu        sync.Mutex
	addresses *lru.Cache // of *rate.Limiter; an address is added under mu
}

// maxAddresses is the number of addresses that a limiter stores.
const maxAddresses = 10000

func newLimiter(every rate.Limit, burst int) *limiter {
	return &limiter{every: every, burst: burst, addresses: lru.New(maxAddresses)}
}

// allow reports whether the request is within its address's rate.
func (l *limiter) allow(req *http.Request) bool {
	host := inflight.Network(req.RemoteAddr)
	l.mu.Lock()
	address, ok := l.addresses.Get(host)
	if !ok {
		address = rate.NewLimiter(l.every, l.burst)
		l.addresses.Add(host, address)
	}
	l.mu.Unlock()
	return address.(*rate.Limiter).Allow()
}
