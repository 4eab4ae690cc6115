package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/reconcile"
	"github.com/exeunt/exeunt/broker/sqlbroker"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const lease = time.Minute

// errDown is the error of every call of a dead process, and of a call without an answer.
var errDown = errors.New("connection lost")

// world is what outlives a process: the real database, and doubles of the declarations,
// the mesh and the cluster, which keep the contracts of the ports.
type world struct {
	*testing.T
	dbtest.SQL
	repository *sqlbroker.Repository

	mu        sync.Mutex
	now       time.Time
	things    map[broker.ProvisionedResourceID]*thing
	history   []string // external actions, in order
	blueprint broker.BlueprintVersion
	namespace broker.NamespaceState
	held      bool // the XR is not removed
	minted    int

	// fault, if set, is called before and after every call to a port; if it returns an
	// error, the call fails with it.
	fault func(call string, after bool) error
}

// thing is the external state of one resource.
type thing struct {
	declared, deleting, released bool
	view                         reconcile.View
	token, delivered             broker.BootstrapTokenID
	state                        broker.TokenState
	node, drained                bool
	secret, provider, xr         bool
	xrReady, xrDeleting          bool
	xrFailed                     bool
}

func newWorld(t *testing.T, db *sqldb.DB) *world {
	w := &world{
		T: t, SQL: dbtest.NewSQL(t, db), now: time.UnixMilli(time.Now().UnixMilli()), things: map[broker.ProvisionedResourceID]*thing{},
		namespace: broker.NamespaceReady,
		blueprint: broker.BlueprintVersion{
			Ref:            broker.BlueprintVersionRef{Name: "node", Version: "1"},
			XR:             broker.Template{ObjectType: broker.ObjectType{APIVersion: "a.example/v1", Kind: "XNode"}, Spec: []byte(`{}`)},
			ProviderConfig: broker.Template{ObjectType: broker.ObjectType{APIVersion: "b.example/v1", Kind: "ProviderConfig"}, Spec: []byte(`{}`)},
			Provider:       "aws", Injection: broker.InjectProviderSecret,
		},
	}
	w.repository = sqlbroker.New(db, w.clock)
	return w
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// at runs fn on a thing, with the lock held, unless there is a fault.
func (w *world) at(call string, id broker.ProvisionedResourceID, fn func(*thing)) error {
	if err := w.ask(call, false); err != nil {
		return err
	}
	w.mu.Lock()
	if w.things[id] == nil {
		w.things[id] = &thing{}
	}
	fn(w.things[id])
	w.mu.Unlock()
	return w.ask(call, true)
}

func (w *world) ask(call string, after bool) error {
	w.mu.Lock()
	fault := w.fault
	w.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(call, after)
}

func (w *world) note(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf(format, args...))
}

// byToken finds a thing by its token. The lock must be held.
func (w *world) byToken(token broker.BootstrapTokenID) *thing {
	for _, th := range w.things {
		if th.token == token {
			return th
		}
	}
	return &thing{state: broker.TokenRevoked}
}

// tick lets cluster and mesh do what they do by themselves.
func (w *world) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, th := range w.things {
		switch {
		case th.xr && th.xrDeleting && !w.held:
			th.xr, th.xrDeleting, th.xrReady = false, false, false
			w.note("XR gone")
		case th.xr && !th.xrDeleting:
			th.xrReady = true
		}
		if th.xr && th.xrReady && th.delivered == th.token && th.state == broker.TokenIssued {
			th.state, th.node = broker.TokenConsumed, true
			w.note("node enrolled")
		}
		if th.drained && th.node {
			th.node, th.drained = false, false
			w.note("node left")
		}
	}
}

// declare adds a declaration and enqueues it, as the trigger does.
func (w *world) declare(id broker.ProvisionedResourceID) {
	w.Helper()
	w.mu.Lock()
	w.things[id] = &thing{declared: true}
	w.mu.Unlock()
	w.enqueue(id)
}

func (w *world) undeclare(id broker.ProvisionedResourceID) {
	w.Helper()
	w.mu.Lock()
	w.things[id].deleting = true
	w.mu.Unlock()
	w.enqueue(id)
}

func (w *world) enqueue(id broker.ProvisionedResourceID) {
	w.Helper()
	w.Transact(func(b *sqldb.Batch) { w.process().Enqueue(b, string(id), "test", w.clock()) })
}

// process starts a process: a new engine without state.
func (w *world) process() *review.Engine {
	w.Helper()
	q := reconcile.Queue
	q.Lease = lease
	e, err := review.New(w.DB, q, w.reconciler(), review.Transactions(w.DB), review.Options{Now: w.clock, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.Fatal(err)
	}
	return e
}

func (w *world) config() reconcile.Config {
	w.Helper()
	service, err := broker.NewService(broker.Config{
		Repository: repository{w}, Emitter: repository{w}, Tokens: meshPort{w}, Blueprints: outside{w},
		Credentials: outside{w}, Namespaces: gate{w}, Now: w.clock,
	})
	if err != nil {
		w.Fatal(err)
	}
	return reconcile.Config{
		Service: service, Rounds: repository{w}, Declarations: declarations{w}, Blueprints: outside{w}, Namespaces: gate{w},
		Tokens: meshPort{w}, Nodes: meshPort{w}, Reporter: meshPort{w}, Substrate: outside{w}, Lease: lease, Logger: slog.New(slog.DiscardHandler),
	}
}

func (w *world) reconciler() *reconcile.Reconciler {
	w.Helper()
	r, err := reconcile.NewReconciler(w.config())
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// turns runs turns and advances the clock until done returns true.
func (w *world) turns(e *review.Engine, what string, done func() bool) {
	w.Helper()
	for range 200 {
		if done() {
			return
		}
		w.turn(e)
		w.tick()
		w.pass(2 * time.Second)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, th := range w.things {
		w.Logf("%s: %+v", id, *th)
	}
	w.Fatalf("%s: not within 200 turns; history %q", what, w.history)
}

func (w *world) turn(e *review.Engine) review.Result {
	w.Helper()
	r, err := e.RunOne(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return r
}

func (w *world) phase(id broker.ProvisionedResourceID) broker.ProvisionedResourcePhase {
	r, err := w.repository.Get(w.Context(), id)
	if err != nil {
		return ""
	}
	return r.Phase()
}

func (w *world) reaches(id broker.ProvisionedResourceID, phase broker.ProvisionedResourcePhase) func() bool {
	return func() bool { return w.phase(id) == phase }
}

func (w *world) released(id broker.ProvisionedResourceID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.things[id].released
}

func (w *world) shown(id broker.ProvisionedResourceID) reconcile.View {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.things[id].view
}

func (w *world) events(id broker.ProvisionedResourceID) (types []broker.EventType) {
	w.Helper()
	all, err := w.repository.Unpublished(w.Context(), id, "no-sink")
	if err != nil {
		w.Fatal(err)
	}
	for _, e := range all {
		types = append(types, e.Type)
	}
	return types
}

func (w *world) wantEvents(id broker.ProvisionedResourceID, want ...broker.EventType) {
	w.Helper()
	if got := w.events(id); !slices.Equal(got, want) {
		w.Errorf("events of %s: %q, want %q", id, got, want)
	}
}

// checkOrder holds for every history: the substrate is not deleted while its node is in
// the mesh, and the ProviderConfig goes after the XR. The doubles record violations.
func (w *world) checkOrder() {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.history {
		if line == "XR deleted under a node" || line == "ProviderConfig deleted before the XR" || line == "token delivered before it was bound" {
			w.Errorf("%s; history %q", line, w.history)
		}
	}
}

// ticking runs tick and publishes events with every review of the suite.
type ticking struct {
	review.Reviewer[review.Tx]
	w *world
}

func (r ticking) Review(ctx context.Context, tx review.Tx, now time.Time, tasks []review.Task) ([]review.Verdict, error) {
	r.w.tick()
	var b sqldb.Batch
	b.Exec(`DELETE FROM provisioned_resource_outbox_reviews`)
	if err := tx.Send(ctx, &b); err != nil {
		return nil, err
	}
	return r.Reviewer.Review(ctx, tx, now, tasks)
}
