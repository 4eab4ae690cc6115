package crossplane

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/exeunt/exeunt/broker"
)

// DeleteXR deletes the XR in the foreground: broker.SubstrateDeleter.
// Crossplane removes its own finalizer at once, so with background deletion the
// XR would be gone while the machines still run.
func (c *Cluster) DeleteXR(ctx context.Context, r broker.ProvisionedResource) error {
	if err := c.delete(ctx, r, r.State().XR, metav1.DeletePropagationForeground); err != nil {
		return fmt.Errorf("delete XR: %w", err)
	}
	return nil
}

// DeleteProviderConfig deletes the ProviderConfig and the token's Secret:
// broker.SubstrateDeleter. The two deletions do not wait for each other.
func (c *Cluster) DeleteProviderConfig(ctx context.Context, r broker.ProvisionedResource) error {
	err := errors.Join(
		c.delete(ctx, r, r.State().ProviderConfig, metav1.DeletePropagationBackground),
		c.delete(ctx, r, secretType, metav1.DeletePropagationBackground))
	if err != nil {
		return fmt.Errorf("delete ProviderConfig: %w", err)
	}
	return nil
}

// delete requests the deletion of the resource's own object. A precondition on
// the uid spares an object that has taken its name since it was read.
func (c *Cluster) delete(ctx context.Context, r broker.ProvisionedResource, t broker.ObjectType, policy metav1.DeletionPropagation) error {
	o, err := c.own(ctx, r, t)
	if err != nil || o == nil {
		return err
	}
	uid := o.GetUID()
	err = c.client.Delete(ctx, o, client.PropagationPolicy(policy), client.Preconditions{UID: &uid})
	if err != nil && !isGone(err) {
		return fmt.Errorf("%s %s: %w", t.Kind, o.GetName(), err)
	}
	return nil
}
