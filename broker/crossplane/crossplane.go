// Package crossplane is the broker's management cluster: a Kubernetes API on
// which Crossplane, or something that behaves like it, builds what composite
// resources (XRs) ask for.
//
// It keeps the rules of the broker's ports: it reports that an object does not
// exist only when the cluster said so; it deletes XRs with foreground
// propagation, so that "the XR is gone" means "its composed resources are
// gone"; every write is idempotent. All objects that it makes carry the
// resource's id in a label, and it touches no object that carries another id.
//
// It reads and writes single objects by name. A watch (Watch) only says when
// to read again. Begin with [Cluster].
package crossplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/broker"
)

// Labels and annotations of the objects that the broker makes, and of the
// Secrets that it may use.
const (
	// ResourceLabel is on every object that was made for a resource: its id.
	ResourceLabel = "provisioning.exeunt.dev/resource-id"
	// ProviderLabel is on a Secret that is a cloud credential: for which provider.
	ProviderLabel = "provisioning.exeunt.dev/provider"
	// TokenAnnotation is on the Secret of a bootstrap token: the token's id.
	TokenAnnotation = "provisioning.exeunt.dev/bootstrap-token-id"
	// owner is the field manager of applied objects.
	owner = "exeunt-broker"
)

// Enrolment is what a machine needs to know to enrol, besides its token.
type Enrolment struct {
	Server string // the URL of this server
	CA     []byte // PEM; empty means a public one
}

// Cluster implements broker.Substrate, broker.SubstrateDeleter,
// broker.NamespaceGate and broker.CredentialDirectory. It is safe for concurrent
// use.
type Cluster struct {
	objects   dynamic.Interface
	discovery *discovery.DiscoveryClient
	http      *http.Client
	watches   dynamic.Interface // without a request timeout
	watching  *http.Client      // the HTTP client of watches
	enrolment Enrolment
	served    sync.Map // by broker.ObjectType: metav1.APIResource
}

// Connect makes a cluster. It does no I/O: where a kind is served is read when it is used first.
func Connect(config *rest.Config, e Enrolment) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the queue bounds the concurrent requests
	config.Timeout = requestTime
	endless := rest.CopyConfig(config)
	endless.Timeout = 0
	c := &Cluster{enrolment: e}
	var err error
	if c.http, c.objects, err = connect(config); err == nil {
		c.watching, c.watches, err = connect(endless)
	}
	if err == nil {
		c.discovery, err = discovery.NewDiscoveryClientForConfigAndClient(config, c.http)
	}
	if err != nil {
		return nil, fmt.Errorf("management cluster: %w", err)
	}
	return c, nil
}

func connect(config *rest.Config) (*http.Client, dynamic.Interface, error) {
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, err
	}
	objects, err := dynamic.NewForConfigAndClient(config, web)
	return web, objects, err
}

// requestTime bounds one request, so that a cluster that does not answer cannot
// hold a round.
const requestTime = 10 * time.Second

// Close closes idle connections.
func (c *Cluster) Close() {
	c.http.CloseIdleConnections()
	c.watching.CloseIdleConnections()
}

var (
	secretType    = broker.ObjectType{APIVersion: "v1", Kind: "Secret"}
	namespaceType = broker.ObjectType{APIVersion: "v1", Kind: "Namespace"}
)

// resource returns where the objects of a type are served.
func (c *Cluster) resource(t broker.ObjectType) (at metav1.APIResource, err error) {
	if known, ok := c.served.Load(t); ok {
		return known.(metav1.APIResource), nil
	}
	list, err := c.discovery.ServerResourcesForGroupVersion(t.APIVersion)
	if err != nil {
		return at, fmt.Errorf("read which kinds %s has: %w", t.APIVersion, err)
	}
	for _, at := range list.APIResources {
		if at.Kind == t.Kind && !strings.Contains(at.Name, "/") {
			c.served.Store(t, at)
			return at, nil
		}
	}
	return at, fmt.Errorf("the cluster serves no %s in %s", t.Kind, t.APIVersion)
}

// in returns the client of the objects of a type; an empty namespace means all, or none for a kind without namespaces.
func (c *Cluster) in(clients dynamic.Interface, t broker.ObjectType, namespace string) (dynamic.ResourceInterface, error) {
	at, err := c.resource(t)
	if err != nil {
		return nil, err
	}
	gvk := schema.FromAPIVersionAndKind(t.APIVersion, t.Kind)
	all := clients.Resource(gvk.GroupVersion().WithResource(at.Name))
	if namespace == "" {
		return all, nil
	}
	return all.Namespace(namespace), nil
}

// find reads an object, or returns nil if the cluster says that there is none.
// A path that the cluster does not serve also answers "not found", but names no
// object: find returns that as an error.
func (c *Cluster) find(ctx context.Context, t broker.ObjectType, key types.NamespacedName) (*unstructured.Unstructured, error) {
	objects, err := c.in(c.objects, t, key.Namespace)
	if err != nil {
		return nil, err
	}
	o, err := objects.Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case isGone(err):
		return nil, nil
	case err != nil:
		if apierrors.IsNotFound(err) {
			c.served.Delete(t) // its definition may be another one now
		}
		return nil, fmt.Errorf("get %s %s: %w", t.Kind, key.Name, err)
	}
	return o, nil
}

// isGone reports whether the cluster has answered that an object does not
// exist.
func isGone(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name != "" && !slices.ContainsFunc(details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == metav1.CauseTypeUnexpectedServerResponse
	})
}

// key is the key of an object of a resource: in the project's namespace, if its
// kind is namespaced.
func (c *Cluster) key(r broker.ProvisionedResource, t broker.ObjectType) (types.NamespacedName, error) {
	at, err := c.resource(t)
	key := types.NamespacedName{Name: r.XRName()}
	if at.Namespaced {
		key.Namespace = string(r.State().Project)
	}
	return key, err
}

// own reads an object of the resource. An object of that name without the
// resource's label is an error: the broker neither uses nor deletes it.
func (c *Cluster) own(ctx context.Context, r broker.ProvisionedResource, t broker.ObjectType) (*unstructured.Unstructured, error) {
	key, err := c.key(r, t)
	if err != nil {
		return nil, err
	}
	o, err := c.find(ctx, t, key)
	if err != nil || o == nil {
		return nil, err
	}
	if id := o.GetLabels()[ResourceLabel]; id != string(r.ID()) {
		return nil, fmt.Errorf("%s %s carries the label of resource %q and is left alone; delete or rename it", t.Kind, key.Name, id)
	}
	return o, nil
}

// made returns an object of the resource, with its name and its label.
func (c *Cluster) made(r broker.ProvisionedResource, t broker.ObjectType) (*unstructured.Unstructured, error) {
	key, err := c.key(r, t)
	if err != nil {
		return nil, err
	}
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(t.APIVersion)
	o.SetKind(t.Kind)
	o.SetName(key.Name)
	o.SetNamespace(key.Namespace)
	o.SetLabels(map[string]string{ResourceLabel: string(r.ID())})
	return o, nil
}

// State reports whether a project's namespace takes new objects:
// broker.NamespaceGate.
func (c *Cluster) State(ctx context.Context, project broker.ProjectID) (broker.NamespaceState, error) {
	ns, err := c.find(ctx, namespaceType, types.NamespacedName{Name: string(project)})
	switch {
	case err != nil:
		return "", err
	case ns == nil:
		return broker.NamespaceMissing, nil
	case ns.GetDeletionTimestamp() != nil:
		return broker.NamespaceTerminating, nil
	}
	if phase, _, _ := unstructured.NestedString(ns.Object, "status", "phase"); phase != "Active" {
		return broker.NamespacePending, nil
	}
	return broker.NamespaceReady, nil
}

// Find reads a cloud credential: a Secret in the project's namespace whose
// label names its provider. Find does not read its content.
// broker.CredentialDirectory.
func (c *Cluster) Find(ctx context.Context, project broker.ProjectID, ref broker.CloudCredentialRef) (broker.CloudCredential, error) {
	secret, err := c.find(ctx, secretType, types.NamespacedName{Namespace: string(project), Name: string(ref)})
	if err != nil {
		return broker.CloudCredential{}, err
	}
	if secret == nil || secret.GetDeletionTimestamp() != nil || secret.GetLabels()[ProviderLabel] == "" {
		return broker.CloudCredential{}, fmt.Errorf("secret %s/%s: %w", project, ref, broker.ErrCloudCredentialNotFound)
	}
	return broker.CloudCredential{Ref: ref, Provider: broker.ProviderKind(secret.GetLabels()[ProviderLabel])}, nil
}

// Watch calls changed with a resource's id whenever an object of the kind that
// was made for it has changed. It returns when ctx ends or the cluster ends the
// watch, which clusters do every few minutes: then watch again. It does not
// report changes in between: the loop polls, too.
func (c *Cluster) Watch(ctx context.Context, t broker.ObjectType, changed func(broker.ProvisionedResourceID)) error {
	objects, err := c.in(c.watches, t, "")
	if err != nil {
		return err
	}
	options := metav1.ListOptions{LabelSelector: ResourceLabel, Limit: 1}
	bounded, cancel := context.WithTimeout(ctx, requestTime)
	list, err := objects.List(bounded, options)
	cancel()
	if err != nil {
		return fmt.Errorf("list %s: %w", t.Kind, err)
	}
	options = metav1.ListOptions{LabelSelector: ResourceLabel, ResourceVersion: list.GetResourceVersion()}
	events, err := objects.Watch(ctx, options)
	if err != nil {
		return fmt.Errorf("watch %s: %w", t.Kind, err)
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, open := <-events.ResultChan():
			if !open {
				return nil
			}
			if e.Type == watch.Error {
				return fmt.Errorf("watch %s: %w", t.Kind, apierrors.FromObject(e.Object))
			}
			if o, ok := e.Object.(*unstructured.Unstructured); ok {
				changed(broker.ProvisionedResourceID(o.GetLabels()[ResourceLabel]))
			}
		}
	}
}

// Observe reads the objects of a resource: broker.Substrate.
func (c *Cluster) Observe(ctx context.Context, r broker.ProvisionedResource) (broker.ObservedSubstrate, error) {
	var seen broker.ObservedSubstrate
	s := r.State()
	secret, err := c.own(ctx, r, secretType)
	if err != nil {
		return seen, err
	}
	if secret != nil {
		seen.SecretExists = true
		seen.Reasons = append(seen.Reasons, held(secret)...)
		if secret.GetDeletionTimestamp() == nil {
			seen.DeliveredToken = broker.BootstrapTokenID(secret.GetAnnotations()[TokenAnnotation])
		}
	}
	provider, err := c.own(ctx, r, s.ProviderConfig)
	if err != nil {
		return seen, err
	}
	if provider != nil {
		seen.ProviderConfigExists = true
		seen.Reasons = append(seen.Reasons, held(provider)...)
	}
	xr, err := c.own(ctx, r, s.XR)
	if err != nil || xr == nil {
		return seen, err
	}
	seen.XRExists = true
	seen.XRDeleting = xr.GetDeletionTimestamp() != nil
	seen.Reasons = append(seen.Reasons, held(xr)...)
	conditions := conditionsOf(xr)
	seen.XRReady = is(conditions, "Ready", "True")
	seen.XRFailed = slices.ContainsFunc(conditions, condition.terminal)
	seen.Reasons = append(seen.Reasons, unsatisfied(xr, conditions)...)
	return seen, nil
}

// condition is an entry of status.conditions.
type condition struct{ kind, status, reason, message string }

func conditionsOf(o *unstructured.Unstructured) (all []condition) {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, entry := range list {
		fields, ok := entry.(map[string]any)
		if !ok {
			continue
		}
		text := func(name string) string { s, _ := fields[name].(string); return s }
		all = append(all, condition{text("type"), text("status"), text("reason"), text("message")})
	}
	return all
}

func is(conditions []condition, kind, status string) bool {
	return slices.ContainsFunc(conditions, func(c condition) bool { return c.kind == kind && c.status == status })
}

// terminal reports whether an XR cannot leave the condition by itself.
//
// Crossplane retries everything and has no such condition of its own: a quota
// may be raised, a zone may come back. Its composition functions can set one:
// by a true condition "Failed" they say that retries are useless. Everything
// else ends at the deadline.
func (c condition) terminal() bool { return c.kind == "Failed" && c.status == "True" }

// unsatisfied returns the conditions that explain a delay: those of Crossplane
// that are not true, and a failure.
func unsatisfied(o *unstructured.Unstructured, conditions []condition) (reasons []broker.Reason) {
	for _, c := range conditions {
		if c.terminal() || (c.kind == "Ready" || c.kind == "Synced") && c.status != "True" {
			reasons = append(reasons, broker.Reason{
				Holder: broker.HolderCondition, Name: c.kind, Object: describe(o),
				Message: strings.TrimSuffix(c.reason+": "+c.message, ": "),
			})
		}
	}
	return reasons
}

// held returns the finalizers of an object that is being deleted.
func held(o *unstructured.Unstructured) (reasons []broker.Reason) {
	if o.GetDeletionTimestamp() == nil {
		return nil
	}
	for _, finalizer := range o.GetFinalizers() {
		reasons = append(reasons, broker.Reason{Holder: broker.HolderFinalizer, Name: finalizer, Object: describe(o)})
	}
	return reasons
}

func describe(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s/%s", o.GetKind(), o.GetName())
}
