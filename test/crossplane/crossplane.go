// Package crossplane is a test double of Crossplane with everything that the broker can
// observe: composite resources (XNode) whose own finalizer goes at once, composed
// resources (Machine) that are owned and take a while to become ready and to go,
// ProviderConfigs that stay while they are in use, and the conditions Ready and Synced. It
// fails, delays and holds on demand.
//
// Its machines enrol in the mesh with the token in their Secret, send heartbeats, and
// acknowledge a drain. The double records each machine that is destroyed while its node is
// in the mesh: the broker must never let that happen.
//
// With the real Crossplane the double is only the provider and the machines (StartProvider), and
// Function is the composition function. What the real one did to the objects of one life is in
// testdata/history.txt; the double must do the same (History, Compare).
package crossplane

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// The kinds.
var (
	XNodes          = schema.GroupVersionResource{Group: "infra.example.org", Version: "v1", Resource: "xnodes"}
	Machines        = schema.GroupVersionResource{Group: "infra.example.org", Version: "v1", Resource: "machines"}
	ProviderConfigs = schema.GroupVersionResource{Group: "cloud.example.org", Version: "v1", Resource: "providerconfigs"}
	secrets         = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// The finalizers, as Crossplane names them.
const (
	composite = "composite.apiextensions.crossplane.io"
	managed   = "finalizer.managedresource.crossplane.io"
	inUse     = "in-use.crossplane.io"
)

// Behaviour changes what the double does. The zero value is a healthy cloud.
type Behaviour struct {
	ReadyAfter   time.Duration // time until a machine is ready
	HoldMachines bool          // machines are not destroyed: the cloud hangs
	Fail         bool          // new XRs report a final failure
	MuteNodes    bool          // nodes do not acknowledge a drain
	NoBoot       bool          // machines are up but do not enrol
}

// Double is the double. Start makes it.
type Double struct {
	config *rest.Config
	client dynamic.Interface
	anyone *http.Client
	real   bool // the real Crossplane reconciles the XRs

	mu         sync.Mutex
	behaviour  Behaviour
	nodes      map[string]*node // by the machine's uid
	violations []string
	done       chan struct{}
}

// Start runs a double until ctx ends. It tolerates that the server is down at times.
func Start(ctx context.Context, config *rest.Config) (*Double, error) {
	return start(ctx, config, false)
}

// StartProvider is Start without the XRs, which the real Crossplane reconciles.
func StartProvider(ctx context.Context, config *rest.Config) (*Double, error) {
	return start(ctx, config, true)
}

func start(ctx context.Context, config *rest.Config, real bool) (*Double, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{} // its finalizers have Crossplane's names
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	anyone, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}})
	if err != nil {
		return nil, err
	}
	d := &Double{config: config, client: client, anyone: anyone, real: real, nodes: map[string]*node{}, done: make(chan struct{})}
	go d.run(ctx)
	return d, nil
}

// Wait returns when the double has ended.
func (d *Double) Wait() { <-d.done }

// Set changes the behaviour from now on.
func (d *Double) Set(b Behaviour) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.behaviour = b
}

// Violations returns the machines that were destroyed while their node was in the mesh.
func (d *Double) Violations() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.violations...)
}

// Enrolled counts the nodes that have enrolled so far.
func (d *Double) Enrolled() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, node := range d.nodes {
		if node.uid != "" {
			n++
		}
	}
	return n
}

func (d *Double) run(ctx context.Context) {
	defer close(d.done)
	defer d.anyone.CloseIdleConnections()
	ticker := time.NewTicker(30 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		d.mu.Lock()
		b := d.behaviour
		d.mu.Unlock()
		d.round(ctx, b)
	}
}

// round reconciles everything once. The next round retries what failed.
func (d *Double) round(ctx context.Context, b Behaviour) {
	machines, err := d.client.Resource(Machines).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for i := range machines.Items {
		_ = d.machine(ctx, b, &machines.Items[i])
	}
	if xrs, err := d.client.Resource(XNodes).List(ctx, metav1.ListOptions{}); err == nil && !d.real {
		for i := range xrs.Items {
			_ = d.xr(ctx, b, &xrs.Items[i], machines.Items)
		}
	}
	if configs, err := d.client.Resource(ProviderConfigs).List(ctx, metav1.ListOptions{}); err == nil {
		for i := range configs.Items {
			_ = d.providerConfig(ctx, &configs.Items[i], machines.Items)
		}
	}
	d.heartbeats(ctx, b)
}

// xr does what Crossplane's composite reconciler does.
func (d *Double) xr(ctx context.Context, b Behaviour, xr *unstructured.Unstructured, machines []unstructured.Unstructured) error {
	synced := condition("Synced", "True", "ReconcileSuccess", "")
	if xr.GetDeletionTimestamp() != nil {
		if err := d.finalizer(ctx, XNodes, xr, composite, false); err != nil {
			return err
		}
		return d.conditions(ctx, XNodes, xr, synced, condition("Ready", "False", "Deleting", ""))
	}
	if err := d.finalizer(ctx, XNodes, xr, composite, true); err != nil {
		return err
	}
	if b.Fail {
		return d.conditions(ctx, XNodes, xr, synced, condition("Ready", "False", "Creating", ""),
			condition("Failed", "True", "QuotaExceeded", "no machines left in this region"))
	}
	ready := condition("Ready", "False", "Creating", "waiting for the machine")
	found := false
	for i := range machines {
		if owner := metav1.GetControllerOf(&machines[i]); owner != nil && owner.UID == xr.GetUID() {
			found = true
			if isReady(&machines[i]) {
				ready = condition("Ready", "True", "Available", "")
			}
		}
	}
	if !found {
		if err := d.compose(ctx, xr); err != nil {
			return err
		}
	}
	return d.conditions(ctx, XNodes, xr, synced, ready)
}

// compose creates the machine of an XR.
func (d *Double) compose(ctx context.Context, xr *unstructured.Unstructured) error {
	spec, _, _ := unstructured.NestedMap(xr.Object, "spec")
	machine := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	machine.SetAPIVersion("infra.example.org/v1")
	machine.SetKind("Machine")
	machine.SetName(xr.GetName())
	machine.SetNamespace(xr.GetNamespace())
	machine.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(xr, xr.GroupVersionKind())})
	_, err := d.client.Resource(Machines).Namespace(xr.GetNamespace()).Create(ctx, machine, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// machine does what a provider's managed reconciler does, and what the machine itself
// does.
func (d *Double) machine(ctx context.Context, b Behaviour, m *unstructured.Unstructured) error {
	if m.GetDeletionTimestamp() != nil {
		if b.HoldMachines {
			return nil
		}
		if err := d.destroy(ctx, m); err != nil {
			return err
		}
		return d.finalizer(ctx, Machines, m, managed, false)
	}
	if err := d.finalizer(ctx, Machines, m, managed, true); err != nil {
		return err
	}
	if time.Since(m.GetCreationTimestamp().Time) < b.ReadyAfter {
		return nil
	}
	if !b.NoBoot {
		if err := d.boot(ctx, m); err != nil {
			return err
		}
	}
	return d.conditions(ctx, Machines, m, condition("Ready", "True", "Available", ""))
}

// providerConfig does what a provider's config reconciler does: it holds a config that is
// in use.
func (d *Double) providerConfig(ctx context.Context, c *unstructured.Unstructured, machines []unstructured.Unstructured) error {
	used := false
	for i := range machines {
		name, _, _ := unstructured.NestedString(machines[i].Object, "spec", "providerConfigRef", "name")
		used = used || name == c.GetName() && machines[i].GetNamespace() == c.GetNamespace()
	}
	return d.finalizer(ctx, ProviderConfigs, c, inUse, used)
}

// finalizer adds or removes a finalizer.
func (d *Double) finalizer(ctx context.Context, resource schema.GroupVersionResource, o *unstructured.Unstructured, name string, want bool) error {
	var kept []string
	has := false
	for _, f := range o.GetFinalizers() {
		if f == name {
			has = true
		} else {
			kept = append(kept, f)
		}
	}
	if has == want || want && o.GetDeletionTimestamp() != nil {
		return nil
	}
	if want {
		kept = append(kept, name)
	}
	o.SetFinalizers(kept)
	next, err := d.client.Resource(resource).Namespace(o.GetNamespace()).Update(ctx, o, metav1.UpdateOptions{})
	if err == nil {
		next.DeepCopyInto(o)
	}
	return err
}

func condition(kind, status, reason, message string) map[string]any {
	return map[string]any{"type": kind, "status": status, "reason": reason, "message": message}
}

func isReady(o *unstructured.Unstructured) bool {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, entry := range list {
		if c, ok := entry.(map[string]any); ok && c["type"] == "Ready" && c["status"] == "True" {
			return true
		}
	}
	return false
}

// conditions writes the status if it changes.
func (d *Double) conditions(ctx context.Context, resource schema.GroupVersionResource, o *unstructured.Unstructured, want ...map[string]any) error {
	list := make([]any, len(want))
	for i := range want {
		list[i] = want[i]
	}
	if was, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions"); fmt.Sprint(was) == fmt.Sprint(list) {
		return nil
	}
	next := o.DeepCopy()
	if err := unstructured.SetNestedSlice(next.Object, list, "status", "conditions"); err != nil {
		return err
	}
	_, err := d.client.Resource(resource).Namespace(o.GetNamespace()).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return err
}
