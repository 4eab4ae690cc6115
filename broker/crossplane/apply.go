package crossplane

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
	objects, err := c.in(c.objects, version.XR.ObjectType, o.GetNamespace())
	if err != nil {
		return fmt.Errorf("create XR: %w", err)
	}
	_, err = objects.Create(ctx, o, metav1.CreateOptions{FieldManager: owner})
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
	objects, err := c.in(c.objects, broker.ObjectType{APIVersion: o.GetAPIVersion(), Kind: o.GetKind()}, o.GetNamespace())
	if err != nil {
		return err
	}
	_, err = objects.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: owner, Force: true})
	return err
}

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
	objects, err := c.in(c.objects, t, o.GetNamespace())
	if err != nil {
		return err
	}
	uid := o.GetUID()
	err = objects.Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !isGone(err) {
		return fmt.Errorf("%s %s: %w", t.Kind, o.GetName(), err)
	}
	return nil
}

// The keys of a token's Secret.
const (
	keyToken     = "token"
	keyServer    = "server"
	keyProject   = "project"
	keyCA        = "ca.crt"
	keyCloudInit = "userData"
	keyHelm      = "values.yaml"
)

// parts are the contents of a token's Secret, by key.
func (c *Cluster) parts(r broker.ProvisionedResource, strategy broker.InjectionStrategy, secret string) map[string]string {
	parts := map[string]string{
		keyToken: secret, keyServer: c.enrolment.Server, keyProject: string(r.State().Project),
	}
	if len(c.enrolment.CA) > 0 {
		parts[keyCA] = string(c.enrolment.CA)
	}
	switch strategy {
	case broker.InjectCloudInitUserData:
		parts[keyCloudInit] = c.cloudInit(r, secret)
	case broker.InjectHelmValues:
		parts[keyHelm] = c.helmValues(r, secret)
	case broker.InjectProviderSecret: // the plain parts are all that a provider takes
	}
	return parts
}

// Paths on the machine of what it enrols with.
const (
	tokenFile = "/etc/exeunt/bootstrap-token"
	caFile    = "/etc/exeunt/ca.crt"
)

// cloudInit is user data for cloud-init: it writes the token where only root
// reads it, and joins. Contents are in base64, so that YAML and shell never
// interpret them.
func (c *Cluster) cloudInit(r broker.ProvisionedResource, secret string) string {
	var b strings.Builder
	file := func(path, mode string, content []byte) {
		fmt.Fprintf(&b, "  - path: %s\n    permissions: %q\n    encoding: b64\n    content: %s\n", path, mode, base64.StdEncoding.EncodeToString(content))
	}
	b.WriteString("#cloud-config\nwrite_files:\n")
	file(tokenFile, "0600", []byte(secret))
	join := []string{"exeunt", "node", "join", "--server", c.enrolment.Server, "--token-file", tokenFile, "--name", r.XRName()}
	if len(c.enrolment.CA) > 0 {
		file(caFile, "0644", c.enrolment.CA)
		join = append(join, "--ca-file", caFile)
	}
	command, _ := json.Marshal(join) // strings can always be marshalled; JSON is YAML
	fmt.Fprintf(&b, "runcmd:\n  - %s\n", command)
	return b.String()
}

// helmValues are values for a chart, as JSON, which is YAML.
func (c *Cluster) helmValues(r broker.ProvisionedResource, secret string) string {
	values := map[string]any{"exeunt": map[string]any{
		"server": c.enrolment.Server, "project": string(r.State().Project), "name": r.XRName(),
		"token": secret, "ca": string(c.enrolment.CA),
	}}
	text, _ := json.MarshalIndent(values, "", "  ") // strings can always be marshalled
	return string(text) + "\n"
}
