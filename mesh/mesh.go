// Package mesh is who belongs to a project's mesh of nodes, how a node comes in
// and how it leaves.
//
// A bootstrap token lets one node into one project, once (token.go, mint.go).
// Enrolment consumes the token and registers the node in one transaction
// (enrol.go; who is let in is decided in admit.go, pure). From then on the node
// is known by a credential of its own: it is heard of (heartbeat.go) and told
// of its peers (peers.go).
//
// A registered node is two things that are written together: a row of
// mesh_nodes, with its credential and its last heartbeat, and a stored object,
// mesh.exeunt.dev/v1alpha1 MeshNode, which people, controllers and peers watch.
// The object carries a finalizer, and a trigger puts a node whose object is
// being deleted under review. So there is one way out, whoever asks for it
// (kubectl, a namespace's deletion, the broker, the node itself):
//
//	delete   the object gets its deletionTimestamp: the drain is asked for
//	drain    peers and node see that; the node finishes its connections
//	leave    the node says so, or the deadline passes: row and object go
//
// Nothing of this is in a process's memory: any replica may die at any time,
// and any other goes on. The reviewer is in review_node.go; every race and its
// answer in docs/spec/mesh.md.
//
// The package promises the broker its two ports (broker.go). It moves no data
// between nodes. Begin with [New].
package mesh

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// Options are what a Mesh can be given. What is zero has a default.
type Options struct {
	// Heartbeat is how often nodes are asked to be heard of. Default 10 seconds.
	Heartbeat time.Duration
	// UnreachableAfter is when a node that is not heard of is said to be
	// unreachable. Default four heartbeats.
	UnreachableAfter time.Duration
	// DrainTimeout is for nodes that do not say how long they need. Default 30
	// seconds.
	DrainTimeout time.Duration
	// Hashes bounds the secrets that are hashed at once, and so the memory that
	// callers can make the server use: 19 MiB each. Default 4.
	Hashes int
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Logger gets what operators read. Default slog.Default.
	Logger *slog.Logger
}

// MaxDrainTimeout bounds what a node may ask for.
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
	if o.Hashes <= 0 {
		o.Hashes = 4
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
}

// Mesh keeps tokens and nodes. It is safe for concurrent use, and any number of
// them, in any number of processes, may share a database.
type Mesh struct {
	db     *sqldb.DB
	store  *store.Store
	kinds  *kind.Registry
	opts   Options
	hasher *hasher
	engine *review.Engine

	closing context.Context // ends when Run does: polls that wait are answered
	close   context.CancelFunc
}

// queue holds the nodes that are to be looked at.
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
	m := &Mesh{db: db, store: st, kinds: kinds, opts: o, hasher: newHasher(o.Hashes, hashMemory)}
	m.closing, m.close = context.WithCancel(context.Background())
	m.engine, err = review.New(db, queue, m, st.Transact, review.Options{Now: o.Now, Logger: o.Logger})
	return m, err
}

// Run reviews nodes until the context ends, and then answers the polls that
// wait. Call it once.
func (m *Mesh) Run(ctx context.Context) error {
	defer m.close()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return m.engine.Run(ctx) })
	group.Go(func() error { return m.follow(ctx) })
	return group.Wait()
}

// follow wakes the engine when a node's object changes, on whichever replica
// that happened. The queue is durable and looked at every few seconds in any
// case: this only makes a drain begin at once.
func (m *Mesh) follow(ctx context.Context) error {
	for {
		watcher, err := m.store.Watch(ctx, store.WatchRequest{Kind: storage, From: m.store.Revision()})
		for err == nil {
			var events []*store.Event
			if events, _, err = watcher.Next(ctx); len(events) > 0 {
				m.engine.Wake()
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if !object.Is(err, object.Expired) {
			return err
		}
	}
}

// RunOne reviews at most one batch that is due: for tests.
func (m *Mesh) RunOne(ctx context.Context) (review.Result, error) { return m.engine.RunOne(ctx) }

// Engine shows the queue, for metrics.
func (m *Mesh) Engine() *review.Engine { return m.engine }
