package crossplane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/exeunt/exeunt/broker"
)

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
