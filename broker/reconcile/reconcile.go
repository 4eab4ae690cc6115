// Package reconcile is the broker's loop: a reviewer that takes a resource one
// step further in each round, until it is Ready, has Failed, or is Deleted and
// its row removed.
//
// A round is four steps, in this order: observe, decide ([broker.Next]), apply,
// emit and persist ([broker.Service.Advance]); the deletion of the substrate is
// applied after its phase is persisted. All state between two rounds is
// in the database, so a round may be interrupted anywhere and any replica
// continues. The review engine provides leases, backoff and the record of
// failures.
//
// It takes no decision that belongs to the domain, and reaches cluster and mesh
// only through the domain's ports. Begin with [Reconciler.Review].
package reconcile

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/sqlbroker"
	"github.com/exeunt/exeunt/review"
)

// Declarations stores the declarations and shows their status.
type Declarations interface {
	// Find reads a declaration, and reports whether it exists.
	Find(ctx context.Context, id broker.ProvisionedResourceID) (Declaration, bool, error)
	// Show publishes the state of a resource. It writes nothing if the state is
	// already shown or the declaration is gone.
	Show(ctx context.Context, id broker.ProvisionedResourceID, view View) error
	// Release removes the finalizer of a declaration after its teardown. No
	// declaration is a success.
	Release(ctx context.Context, id broker.ProvisionedResourceID) error
}

// Declaration is the request of a client.
type Declaration struct {
	Request  broker.ProvisionRequest
	Deleting bool // a client has deleted it
}

// View is the state of a resource as clients see it.
type View struct {
	Phase    broker.ProvisionedResourcePhase // empty means not accepted yet
	Resource broker.State                    // zero means not accepted yet
	Since    time.Time                       // start of its phase
	// Why says what the resource waits for, or why it has failed.
	Why string
	// Observed is the basis of Why; zero if the round ended before it observed.
	Observed broker.ObservedXR
	// Error is why the last round ended early; empty means that it did not.
	Error string
}

// Rounds holds the leases of rounds: sqlbroker.Repository.
type Rounds interface {
	BeginRound(ctx context.Context, id broker.ProvisionedResourceID, now, until time.Time) (sqlbroker.Round, error)
	EndRound(ctx context.Context, round sqlbroker.Round) error
	Forget(ctx context.Context, id broker.ProvisionedResourceID) (gone bool, err error)
}

// Substrate is the management cluster.
type Substrate interface {
	broker.Substrate
	broker.SubstrateDeleter
}

// Config holds the parts of a Reconciler. All but Reporter, Lease and Logger
// are required.
type Config struct {
	Service      *broker.Service
	Rounds       Rounds
	Declarations Declarations
	Blueprints   broker.BlueprintCatalog
	Namespaces   broker.NamespaceGate
	Tokens       broker.TokenIssuer
	Nodes        broker.NodeDeregistrar
	Substrate    Substrate

	// Reporter says what keeps a node in the mesh. Nil means no report.
	Reporter broker.NodeReporter
	// Lease is the lease of the queue: no round works for longer. Default: the
	// lease of Queue.
	Lease time.Duration
	// Logger gets the warnings. Default slog.Default().
	Logger *slog.Logger
}

// Queue is the table of resources under review.
var Queue = review.Queue{
	Name: "provisioned-resources", Table: "provisioned_resource_reviews", Key: "id",
	// The rounds of a batch run concurrently, each for at most roundTime. The
	// lease is only a little longer, because resources of a crashed replica
	// wait until it ends.
	Batch: 8, Effects: 8, Lease: roundTime + 5*time.Second, Idle: time.Second,
	Backoff: review.Backoff{Base: time.Second, Cap: time.Minute},
}

// Reconciler implements review.Reviewer.
type Reconciler struct{ Config }

// NewReconciler checks the wiring. It does no I/O.
func NewReconciler(c Config) (*Reconciler, error) {
	err := broker.Incomplete("reconciler", map[string]bool{
		"a Service is": c.Service == nil, "Rounds are": c.Rounds == nil, "Declarations are": c.Declarations == nil,
		"a BlueprintCatalog is": c.Blueprints == nil, "a NamespaceGate is": c.Namespaces == nil, "a TokenIssuer is": c.Tokens == nil,
		"a NodeDeregistrar is": c.Nodes == nil, "a Substrate is": c.Substrate == nil,
	})
	if err != nil {
		return nil, err
	}
	c.Lease = cmp.Or(c.Lease, Queue.Lease)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return &Reconciler{c}, nil
}

// roundTime bounds one round.
const roundTime = 20 * time.Second

// Review runs the rounds as effects, outside the transaction: a round asks the
// mesh and the cluster, and no transaction may wait for those.
func (r *Reconciler) Review(_ context.Context, _ review.Tx, now time.Time, tasks []review.Task) ([]review.Verdict, error) {
	verdicts := make([]review.Verdict, len(tasks))
	for i, task := range tasks {
		id := broker.ProvisionedResourceID(task.Key)
		verdicts[i] = review.Outside(func(ctx context.Context) review.Verdict {
			ctx, cancel := context.WithTimeout(ctx, min(roundTime, r.Lease))
			defer cancel()
			return r.round(ctx, now, id)
		})
	}
	return verdicts, nil
}

// round takes a resource one step further, if no other process works on it.
func (r *Reconciler) round(ctx context.Context, now time.Time, id broker.ProvisionedResourceID) review.Verdict {
	declared, found, err := r.Declarations.Find(ctx, id)
	if err != nil {
		return review.Failed(err)
	}
	round, err := r.Rounds.BeginRound(ctx, id, now, now.Add(min(roundTime, r.Lease)))
	switch {
	case errors.Is(err, sqlbroker.ErrRoundTaken):
		return review.Again(retryTaken)
	case errors.Is(err, broker.ErrProvisionedResourceNotFound):
		return r.accept(ctx, id, declared, found)
	case err != nil:
		return review.Failed(err)
	}
	defer r.end(ctx, round)
	resource := round.Resource
	switch {
	case resource.Phase() == broker.PhaseDeleted:
		return r.cleanUp(ctx, now, round)
	case (!found || declared.Deleting) && resource.State().DeletionRequestedAt.IsZero():
		return r.deprovision(ctx, resource)
	}
	return r.step(ctx, now, round)
}

// end gives the lease back, also when the round ran out of time.
func (r *Reconciler) end(ctx context.Context, round sqlbroker.Round) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if err := r.Rounds.EndRound(ctx, round); err != nil {
		r.Logger.Warn("cannot end a round; its lease has to expire", "resource", round.Resource.ID(), "error", err)
	}
}

const (
	retryTaken = 200 * time.Millisecond
	endTime    = 5 * time.Second
)

// accept takes up a declaration. It passed admission; if the broker refuses it
// now, the status says why, and the round is retried.
func (r *Reconciler) accept(ctx context.Context, id broker.ProvisionedResourceID, declared Declaration, found bool) review.Verdict {
	if !found {
		return review.Kept() // never accepted, or already removed
	}
	if declared.Deleting {
		if err := r.Declarations.Release(ctx, id); err != nil {
			return review.Failed(err)
		}
		return review.Acted()
	}
	resource, err := r.Service.Provision(ctx, declared.Request)
	if err != nil {
		return r.failed(ctx, id, View{}, err)
	}
	state := resource.State()
	return r.show(ctx, id, View{Phase: resource.Phase(), Resource: state, Since: state.CreatedAt}, review.Progressed(0))
}

// deprovision begins the teardown of a resource without declaration.
func (r *Reconciler) deprovision(ctx context.Context, resource broker.ProvisionedResource) review.Verdict {
	next, err := r.Service.Deprovision(ctx, resource.ID())
	view := View{Phase: next.Phase(), Resource: next.State(), Since: next.State().DeletionRequestedAt}
	if err != nil {
		return r.failed(ctx, resource.ID(), view, err)
	}
	return r.show(ctx, resource.ID(), view, review.Progressed(0))
}

// failed shows why a round ended early. An error of Show itself does not hide
// the cause.
func (r *Reconciler) failed(ctx context.Context, id broker.ProvisionedResourceID, view View, err error) review.Verdict {
	view.Error = err.Error()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	return review.Failed(errors.Join(err, r.Declarations.Show(ctx, id, view)))
}

// show ends a successful round.
func (r *Reconciler) show(ctx context.Context, id broker.ProvisionedResourceID, view View, v review.Verdict) review.Verdict {
	if err := r.Declarations.Show(ctx, id, view); err != nil {
		return review.Failed(err)
	}
	return v
}
