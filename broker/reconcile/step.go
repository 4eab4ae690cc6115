package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/sqlbroker"
	"github.com/exeunt/exeunt/review"
)

// step is one round of a resource that is not Deleted: observe, decide, apply,
// emit and persist, and show.
//
// The phase Deprovisioning is written before its action: a cluster can refuse the
// deletion for hours, and the phase says which step is tried.
func (r *Reconciler) step(ctx context.Context, now time.Time, round sqlbroker.Round) review.Verdict {
	resource := round.Resource
	view := View{Phase: resource.Phase(), Resource: resource.State(), Since: round.Since}
	observed, err := r.observe(ctx, now, resource)
	if err != nil {
		return r.failed(ctx, resource.ID(), view, err)
	}
	action, to := broker.Next(observed, resource.Phase())
	view.Observed, view.Why = observed, broker.Why(observed, to)
	if to == broker.PhaseDeprovisioning {
		resource, err = r.advance(ctx, now, resource, to, &view)
	}
	if err == nil {
		if resource, err = r.apply(ctx, resource, action, observed); err != nil {
			return r.failed(ctx, resource.ID(), view, fmt.Errorf("%s: %w", action, err))
		}
		_, err = r.advance(ctx, now, resource, to, &view)
	}
	switch {
	case errors.Is(err, broker.ErrPhaseConflict):
		return review.Again(0) // it has changed: read again
	case err != nil:
		return r.failed(ctx, resource.ID(), view, err)
	}
	return r.show(ctx, resource.ID(), view, verdict(now, round, action, view.Phase))
}

// advance writes the phase, if it is another one, and puts it into the view.
func (r *Reconciler) advance(ctx context.Context, now time.Time, resource broker.ProvisionedResource, to broker.ProvisionedResourcePhase, view *View) (broker.ProvisionedResource, error) {
	next, err := r.Service.Advance(ctx, resource, to, view.Why)
	if err != nil {
		return resource, err
	}
	if next.Phase() != view.Phase {
		view.Since = now
	}
	view.Phase, view.Resource = next.Phase(), next.State()
	return next, nil
}

// verdict says when the next round is due.
func verdict(now time.Time, round sqlbroker.Round, action broker.Action, phase broker.ProvisionedResourcePhase) review.Verdict {
	switch {
	case phase != round.Resource.Phase(), action == broker.ActionMintToken, action == broker.ActionRevokeToken:
		return review.Progressed(0)
	case phase == broker.PhaseFailed:
		return review.Kept() // its deletion puts it under review again
	case phase == broker.PhaseReady:
		return review.Again(pollReady)
	}
	return review.Again(Patience(now.Sub(round.Since)))
}

const (
	pollReady = 15 * time.Second
	pollMin   = 250 * time.Millisecond
	pollMax   = 10 * time.Second
)

// Patience is the poll interval after a wait: an eighth of the time waited so
// far, so that quick changes are seen soon and slow ones cost little.
func Patience(waited time.Duration) time.Duration {
	return min(max(waited/8, pollMin), pollMax)
}

// observe reads the facts, in the order that broker.ObservedXR asks for: the
// token, then the node, then all else.
func (r *Reconciler) observe(ctx context.Context, now time.Time, resource broker.ProvisionedResource) (broker.ObservedXR, error) {
	var reads broker.Reads
	var err error
	fail := func(what string, err error) (broker.ObservedXR, error) {
		return broker.ObservedXR{}, fmt.Errorf("observe %s: %w", what, err)
	}
	if token := resource.TokenID(); token != "" {
		if reads.Token, err = r.Tokens.State(ctx, token); err != nil {
			return fail("token", err)
		}
		if reads.NodeRegistered, err = r.Nodes.NodeRegistered(ctx, token); err != nil {
			return fail("node", err)
		}
		if reads.NodeRegistered && r.Reporter != nil {
			if reads.Reasons, err = r.Reporter.Holding(ctx, token); err != nil {
				return fail("node", err)
			}
		}
	}
	if reads.Namespace, err = r.Namespaces.State(ctx, resource.State().Project); err != nil {
		return fail("namespace", err)
	}
	if reads.Substrate, err = r.Substrate.Observe(ctx, resource); err != nil {
		return fail("substrate", err)
	}
	reads.Overdue = resource.Overdue(now)
	return broker.Fold(resource, reads), nil
}

// apply carries out the action. On an error the round ends and writes no more.
func (r *Reconciler) apply(ctx context.Context, resource broker.ProvisionedResource, action broker.Action, observed broker.ObservedXR) (broker.ProvisionedResource, error) {
	switch action {
	case broker.ActionMintToken:
		return r.mintToken(ctx, resource)
	case broker.ActionApplySubstrate:
		return resource, r.applySubstrate(ctx, resource, observed)
	case broker.ActionDeregisterNode:
		return resource, broker.DeregisterNode(ctx, r.Nodes, resource)
	case broker.ActionRevokeToken:
		return resource, r.Service.RevokeToken(ctx, resource)
	case broker.ActionDeleteSubstrate:
		return resource, r.Substrate.DeleteXR(ctx, resource)
	case broker.ActionDeleteProviderConfig:
		return resource, r.Substrate.DeleteProviderConfig(ctx, resource)
	}
	return resource, nil
}

// mintToken mints, binds and delivers, in this order: see Service.MintToken.
func (r *Reconciler) mintToken(ctx context.Context, resource broker.ProvisionedResource) (broker.ProvisionedResource, error) {
	version, err := r.version(ctx, resource)
	if err != nil {
		return resource, err
	}
	minted, token, err := r.Service.MintToken(ctx, resource)
	if err != nil {
		return resource, err
	}
	return minted, r.Substrate.DeliverToken(ctx, minted, version, token)
}

// applySubstrate applies the ProviderConfig first and the XR second. It does
// not create an XR that was observed, even if it has vanished since.
func (r *Reconciler) applySubstrate(ctx context.Context, resource broker.ProvisionedResource, observed broker.ObservedXR) error {
	version, err := r.version(ctx, resource)
	if err != nil {
		return err
	}
	if err := r.Substrate.ApplyProviderConfig(ctx, resource, version); err != nil || observed.XRExists {
		return err
	}
	return r.Substrate.CreateXR(ctx, resource, version)
}

func (r *Reconciler) version(ctx context.Context, resource broker.ProvisionedResource) (broker.BlueprintVersion, error) {
	s := resource.State()
	return r.Blueprints.Version(ctx, s.Project, s.Blueprint)
}

// cleanUp removes what is left of a Deleted resource. Its declaration goes at
// once. Its row stays until no round that lost its lease can still be at work;
// then cleanUp removes the objects that such a round has created, and the row.
func (r *Reconciler) cleanUp(ctx context.Context, now time.Time, round sqlbroker.Round) review.Verdict {
	resource := round.Resource
	if err := r.Declarations.Release(ctx, resource.ID()); err != nil {
		return review.Failed(err)
	}
	if left := round.Since.Add(2 * r.Lease).Sub(now); left > 0 {
		return review.Again(left)
	}
	substrate, err := r.Substrate.Observe(ctx, resource)
	if err != nil && now.Sub(round.Since) < leftoverTimeout {
		return review.Failed(fmt.Errorf("look for leftovers: %w", err))
	}
	switch {
	case err != nil:
		r.Logger.Warn("the cluster did not answer for a day whether a deleted resource left objects behind; check it by hand", "resource", resource.ID(), "xr", resource.XRName(), "error", err)
		return r.forget(ctx, resource)
	case substrate.XRExists:
		r.Logger.Warn("deleting a composite resource that a late round left behind", "resource", resource.ID(), "xr", resource.XRName())
		err = r.Substrate.DeleteXR(ctx, resource)
	case substrate.ProviderConfigExists || substrate.SecretExists:
		err = r.Substrate.DeleteProviderConfig(ctx, resource)
	default:
		return r.forget(ctx, resource)
	}
	if err != nil {
		return review.Failed(fmt.Errorf("remove leftovers: %w", err))
	}
	return review.Progressed(pollMin)
}

// leftoverTimeout bounds how long cleanUp asks a cluster for leftovers of a
// Deleted resource; the cluster itself may be gone for good.
const leftoverTimeout = 24 * time.Hour

func (r *Reconciler) forget(ctx context.Context, resource broker.ProvisionedResource) review.Verdict {
	gone, err := r.Rounds.Forget(ctx, resource.ID())
	switch {
	case err != nil:
		return review.Failed(err)
	case gone:
		return review.Acted()
	}
	return review.Again(pollMax) // its events are not published yet
}
