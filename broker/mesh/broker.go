package mesh

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/object"
)

// Ports implements the broker's ports, which identify nodes by their bootstrap
// tokens.
type Ports struct{ mesh *Mesh }

var (
	_ broker.TokenIssuer     = Ports{}
	_ broker.NodeDeregistrar = Ports{}
	_ broker.NodeReporter    = Ports{}
)

// Ports returns the broker's ports onto this mesh.
func (m *Mesh) Ports() Ports { return Ports{m} }

// brokerActor is the broker's user name for mints and drains.
const brokerActor = "system:broker"

// Mint makes a token for a resource: broker.TokenIssuer.
func (p Ports) Mint(ctx context.Context, r broker.MintRequest) (broker.BootstrapToken, error) {
	if r.Resource == "" {
		return broker.BootstrapToken{}, invalid("resource", "is empty")
	}
	t, err := p.mesh.Mint(ctx, Order{Project: string(r.Project), Resource: string(r.Resource), TTL: r.TTL, Actor: brokerActor})
	if err != nil {
		return broker.BootstrapToken{}, err
	}
	return broker.BootstrapToken{ID: broker.BootstrapTokenID(t.ID), Secret: broker.NewTokenSecret(t.Text), ExpiresAt: t.ExpiresAt}, nil
}

// State reads the state of a token: broker.TokenIssuer.
func (p Ports) State(ctx context.Context, id broker.BootstrapTokenID) (broker.TokenState, error) {
	state, err := p.mesh.TokenState(ctx, string(id))
	if err != nil {
		return broker.TokenNone, err
	}
	if state == "" {
		return broker.TokenRevoked, nil
	}
	return broker.TokenState(state), nil
}

// Revoke makes an unused token worthless: broker.TokenIssuer.
func (p Ports) Revoke(ctx context.Context, id broker.BootstrapTokenID) error {
	_, err := p.mesh.end(ctx, string(id), StateRevoked)
	return err
}

// Deregister requests the drain of the node that used the token:
// broker.NodeDeregistrar. It does not wait. A review removes the node later: if
// the last review failed, a further call returns its error.
func (p Ports) Deregister(ctx context.Context, id broker.BootstrapTokenID) error {
	n, err := p.mesh.node(ctx, nodeByToken, string(id))
	if err != nil {
		return &broker.DeregistrationError{Step: broker.StepLookup, Err: err}
	}
	if n == nil {
		return nil
	}
	err = p.mesh.requestDrain(ctx, Node{UID: n.uid, Project: n.project, Name: n.name}, brokerActor)
	if err != nil && !errors.Is(err, errUnknownNode) { // unknown: it has left, or a review is about to remove it
		return &broker.DeregistrationError{Step: broker.StepDrain, Err: err}
	}
	if err := p.mesh.removalError(ctx, *n); err != nil {
		return &broker.DeregistrationError{Step: broker.StepRemoval, Err: err}
	}
	return nil
}

// removalError is the error of the last review of a node; nil if it succeeded.
func (m *Mesh) removalError(ctx context.Context, n node) error {
	task, found, err := m.engine.Get(ctx, n.uid)
	switch {
	case err != nil:
		return err
	case found && task.LastError != "":
		return fmt.Errorf("review of node %s: %s", n.name, task.LastError)
	}
	return nil
}

// NodeRegistered reports whether the node that used the token is in the mesh:
// broker.NodeDeregistrar.
func (p Ports) NodeRegistered(ctx context.Context, id broker.BootstrapTokenID) (bool, error) {
	n, err := p.mesh.node(ctx, nodeByToken, string(id))
	return n != nil, err
}

// Holding says what keeps the node in the mesh: broker.NodeReporter.
func (p Ports) Holding(ctx context.Context, id broker.BootstrapTokenID) ([]broker.Reason, error) {
	n, err := p.mesh.node(ctx, nodeByToken, string(id))
	if err != nil || n == nil {
		return nil, err
	}
	now := p.mesh.opts.Now()
	// Points in time, not ages: a message that changes every second would be
	// written every second.
	message := "it sends heartbeats"
	if now.Sub(n.seenAt()) >= p.mesh.opts.UnreachableAfter {
		message = "no heartbeat since " + n.seenAt().Format(time.RFC3339)
	}
	found, err := p.mesh.store.Get(ctx, object.Key{Kind: storage, Namespace: n.project, Name: n.name})
	if err != nil && !object.Is(err, object.NotFound) {
		return nil, fmt.Errorf("read node %s: %w", n.name, err)
	}
	if err == nil {
		o, err := decodeNode(found.Body)
		if err != nil {
			return nil, err
		}
		if until := o.Status.DrainDeadline; until != nil {
			message += "; draining, removed without acknowledgement at " + until.UTC().Format(time.RFC3339)
		}
	}
	return []broker.Reason{{Holder: broker.HolderPeer, Name: n.name, Object: "MeshNode/" + n.name, Message: message}}, nil
}

// ReviewByUID reads the row of the queue for a node, for reports.
const ReviewByUID = `
SELECT review_count, created_at, review_after, coalesce(last_error, ''), coalesce(claim_until, 0)
FROM mesh_node_reviews WHERE uid = $1`

// Explain says what the drain of a stored MeshNode waits for.
func Explain(body []byte) (v1.Reason, []v1.ObjectReference) {
	o, err := decodeNode(body)
	if err != nil {
		return v1.Reason{Message: "it cannot be read: " + err.Error()}, nil
	}
	reason := v1.Reason{Message: "the node has yet to be asked to leave", Since: o.DeletionTimestamp}
	if o.Status.Phase != v1alpha1.PhaseDraining {
		return reason, nil
	}
	for _, c := range o.Status.Conditions {
		if c.Type == "Ready" {
			reason.Message = string(o.Status.Phase) + ": " + c.Message
		}
	}
	reason.Resolve = "the node's own log says what it has yet to finish; at that time it goes in any case"
	return reason, nil
}
