package broker

import (
	"context"
	"errors"
	"fmt"
)

// MintToken mints a token and binds it to the resource, and returns both. The
// caller then delivers the secret, with Substrate.DeliverToken.
//
// The order is mint, bind, deliver, and each crash in between heals:
//   - after mint: the secret is lost and nobody can use the token. The next Mint
//     for the resource revokes it.
//   - after bind: the token is seen as undelivered, and another is minted.
//
// Were it delivered before it is bound, a machine could enrol by a token that the
// resource does not know, and teardown would not find its node.
//
// Errors: ErrPhaseConflict if the resource has moved on, with the new token
// revoked again; ErrBootstrapTokenFailed.
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
		// Certainly not bound, so it is nobody's. Nobody has its secret either:
		// if this fails too, the token expires unused.
		return fail(errors.Join(err, s.config.Tokens.Revoke(ctx, token.ID)))
	}
	if err != nil {
		// Bound or not, its secret is not delivered: another will be minted.
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

// DeregisterNode drains the node of a resource. On an error the caller ends its
// round: no phase is written, and no substrate is touched. Errors:
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

// Advance ends a round: it emits the event of the new phase, if it has one, and
// then writes the phase. why is what a Failed event says. It returns the resource
// as it is stored now; if nothing has changed it does nothing.
//
// The event comes first. The phase is the only memory between rounds: once it is
// written, no later round sees a crossing, and an event that was not emitted by
// then is lost for good, silently, and with it the end of a teardown that
// somebody waits for. With the event first, a crash in between leaves the old
// phase; the next round sees the same crossing and emits the same event again,
// under the same outbox token, and the outbox keeps one. What remains is an event
// without its phase, if the resource moved on in between: then the event tells
// what was true when it was emitted, and it stands before the event of what came
// after, because Emit compares the phase too.
//
// Errors: ErrPhaseConflict if the resource has moved on since it was read;
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
