package crossplane

import (
	"context"
	"encoding/base64"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/exeunt/exeunt/broker"
)

// DeliverToken stores the token in a Secret beside the XR: broker.Substrate.
// The Secret has the plain parts for every strategy, and for some one more that
// a machine or a chart takes unchanged.
func (c *Cluster) DeliverToken(ctx context.Context, r broker.ProvisionedResource, version broker.BlueprintVersion, token broker.BootstrapToken) error {
	if _, err := c.own(ctx, r, secretType); err != nil {
		return fmt.Errorf("deliver token: %w", err)
	}
	o, err := c.made(r, secretType)
	if err != nil {
		return fmt.Errorf("deliver token: %w", err)
	}
	o.SetAnnotations(map[string]string{TokenAnnotation: string(token.ID)})
	data := map[string]any{}
	for name, text := range c.parts(r, version.Injection, token.Secret.Reveal()) {
		data[name] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	o.Object["type"], o.Object["data"] = "Opaque", data
	if err := c.apply(ctx, o); err != nil {
		return fmt.Errorf("deliver token: %w", err)
	}
	return nil
}

// ApplyProviderConfig creates the ProviderConfig or brings it up to date:
// broker.Substrate.
func (c *Cluster) ApplyProviderConfig(ctx context.Context, r broker.ProvisionedResource, version broker.BlueprintVersion) error {
	if _, err := c.own(ctx, r, version.ProviderConfig.ObjectType); err != nil {
		return fmt.Errorf("apply ProviderConfig: %w", err)
	}
	o, err := c.rendered(r, version.ProviderConfig)
	if err != nil {
		return fmt.Errorf("apply ProviderConfig: %w", err)
	}
	if err := c.apply(ctx, o); err != nil {
		return fmt.Errorf("apply ProviderConfig: %w", err)
	}
	return nil
}

// CreateXR creates the XR: broker.Substrate. It creates and does not apply, so
// it leaves an XR that another client has made meanwhile unchanged.
//
// The XR has no ownerReference to the declaration, even on this server: if the
// declaration were deleted in the foreground, the collector would delete the XR
// at once, before the node has left.
func (c *Cluster) CreateXR(ctx context.Context, r broker.ProvisionedResource, version broker.BlueprintVersion) error {
	o, err := c.rendered(r, version.XR)
	if err != nil {
		return fmt.Errorf("create XR: %w", err)
	}
	err = c.client.Create(ctx, o, client.FieldOwner(owner))
	if apierrors.IsAlreadyExists(err) {
		_, err = c.own(ctx, r, version.XR.ObjectType)
	}
	if err != nil {
		return fmt.Errorf("create XR: %w", err)
	}
	return nil
}

// rendered returns an object of the resource with its spec.
func (c *Cluster) rendered(r broker.ProvisionedResource, t broker.Template) (*unstructured.Unstructured, error) {
	o, err := c.made(r, t.ObjectType)
	if err != nil {
		return nil, err
	}
	spec, err := r.Render(t)
	if err != nil {
		return nil, err
	}
	o.Object["spec"] = spec
	return o, nil
}

// apply is server-side apply: it creates or updates, and reverts changes of
// other clients to the fields that it sets.
func (c *Cluster) apply(ctx context.Context, o *unstructured.Unstructured) error {
	return c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(owner), client.ForceOwnership)
}
