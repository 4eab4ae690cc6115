package broker

import (
	"context"
	"errors"
	"fmt"
)

// MintToken mints a token, binds it to the resource, and returns both. The
// reconciler then delivers the secret, with Substrate.DeliverToken.
//
// The order is mint, bind, deliver, and each crash in between heals:
//   - after mint: the secret is lost, so the token cannot be used. The next
//     Mint for the resource revokes it.
//   - after bind: the token is observed as undelivered, and the next round
//     mints another.
//
// If delivery came before binding, a machine could enrol with a token that the
// resource does not know, and teardown would not find its node.
//
// Errors: ErrPhaseConflict if the resource has changed, with the new token
// revoked; ErrBootstrapTokenFailed.
func (s *Service) MintToken(ctx context.Context, resource ProvisionedResource) (ProvisionedResource, BootstrapToken, error) {
	fail := func(err error) (ProvisionedResource, BootstrapToken, error) {
		return resource, BootstrapToken{}, fmt.Errorf("mint token for %s: %w", resource.ID(), err)
	}
	if isDeletionPhase(resource.Phase()) {
		return fail(fmt.Errorf("%w: it is %s", ErrPhaseConflict, resource.Phase()))
	}
	token, err := s.config.Tokens.Mint(ctx, MintRequest{
		Resource: resource.state.ID, Project: resource.state.Project, TTL: s.config.TokenTTL,
	})
	if err != nil {
		return fail(fmt.Errorf("%w: %w", ErrBootstrapTokenFailed, err))
	}
	if token.ID == "" {
		return fail(fmt.Errorf("%w: the issuer returned a token without an id", ErrBootstrapTokenFailed))
	}
	err = s.config.Repository.BindToken(ctx, resource.ID(), resource.TokenID(), token.ID)
	if errors.Is(err, ErrPhaseConflict) || errors.Is(err, ErrProvisionedResourceNotFound) {
		// The token is certainly not bound and its secret is not delivered: if
		// this revocation fails too, the token expires unused.
		return fail(errors.Join(err, s.config.Tokens.Revoke(ctx, token.ID)))
	}
	if err != nil {
		// Bound or not, its secret is not delivered: the next round mints
		// another.
		return fail(fmt.Errorf("%w: bind: %w", ErrBootstrapTokenFailed, err))
	}
	resource.state.TokenID = token.ID
	return resource, token, nil
}

// RevokeToken makes the resource's token worthless if no node has used it.
// Errors: ErrBootstrapTokenFailed.
func (s *Service) RevokeToken(ctx context.Context, resource ProvisionedResource) error {
	if resource.TokenID() == "" {
		return nil
	}
	if err := s.config.Tokens.Revoke(ctx, resource.TokenID()); err != nil {
		return fmt.Errorf("revoke token of %s: %w: %w", resource.ID(), ErrBootstrapTokenFailed, err)
	}
	return nil
}

// DeregisterNode drains the node of a resource. On an error the reconciler ends
// the round: it writes no phase and touches no substrate. Errors:
// ErrNodeDeregistrationFailed.
func DeregisterNode(ctx context.Context, nodes NodeDeregistrar, resource ProvisionedResource) error {
	if resource.TokenID() == "" {
		return nil // without a token no node can have enrolled
	}
	if err := nodes.Deregister(ctx, resource.TokenID()); err != nil {
		return fmt.Errorf("deregister node of %s: %w: %w", resource.ID(), ErrNodeDeregistrationFailed, err)
	}
	return nil
}

// Advance ends a round: it emits the event of the new phase, if there is one,
// and then writes the phase. why is the text of a Failed event. Advance returns
// the resource as stored now; if the phase is the same it does nothing.
//
// The event comes first. The phase is the only memory between rounds: once it
// is written, no later round sees the transition, and an event that was not
// emitted by then is silently lost, and with it the end of a teardown that a
// client waits for. With the event first, a crash in between leaves the old
// phase; the next round sees the same transition and emits the same event
// again, under the same outbox token, and the outbox keeps one. What remains is
// an event without its phase, if the resource changed in between: the event
// says what was true when it was emitted, and it precedes the event of the
// later change, because Emit compares the phase too.
//
// Errors: ErrPhaseConflict if the resource has changed since it was read;
// ErrProvisionedResourceNotFound.
func (s *Service) Advance(ctx context.Context, resource ProvisionedResource, to ProvisionedResourcePhase, why string) (ProvisionedResource, error) {
	from := resource.Phase()
	if to == from {
		return resource, nil
	}
	now := s.config.Now()
	next, err := resource.advance(to, now)
	if err != nil {
		return resource, fmt.Errorf("advance %s: %w", resource.ID(), err)
	}
	if event := next.crossing(now, why); event != nil {
		if err := s.config.Emitter.Emit(ctx, from, event); err != nil {
			return resource, fmt.Errorf("advance %s: emit %s: %w", resource.ID(), event.EventType(), err)
		}
	}
	if err := s.config.Repository.UpdatePhase(ctx, from, next); err != nil {
		return resource, fmt.Errorf("advance %s from %s to %s: %w", resource.ID(), from, to, err)
	}
	return next, nil
}
