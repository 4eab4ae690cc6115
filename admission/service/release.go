package service

import (
	"context"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// Run gives addresses and ports back after their Service was removed, by any replica and in
// any way, or changed its type. Every replica runs it; a deletion names the uid, so that it
// is idempotent.
//
// A Service gets an address or a port only together with a new reservation. So a reservation
// whose Service does not have it can be deleted at any time: no Service can begin to use it.
// A create that names the address does so too (freed), before it makes its own. If another
// Service is faster, the create finds the name taken and is prepared again.
//
// The watch begins at a revision before the scan reads. So the scan or the watch sees
// every Service that leaves.
func (a *Addresses) Run(ctx context.Context) error {
	return a.Store.Keep(ctx, a.Log, "addresses of removed Services could not be given back", func(from int64) error {
		if err := a.Scan(ctx); err != nil {
			return err
		}
		return a.Store.Follow(ctx, store.WatchRequest{Kind: services, From: from}, func(events []*store.Event) error { return a.giveBack(ctx, events) })
	})
}

// Scan gives back all addresses and ports that no Service uses.
func (a *Addresses) Scan(ctx context.Context) error {
	for _, kind := range []string{ipAddresses, object.NodePorts} {
		used, err := a.reserved(ctx, kind)
		if err != nil {
			return err
		}
		for name := range used {
			if err := a.release(ctx, object.Key{Kind: kind, Name: name}); err != nil {
				return err
			}
		}
	}
	return nil
}

// giveBack releases the addresses of the Services that have left.
func (a *Addresses) giveBack(ctx context.Context, events []*store.Event) error {
	for _, e := range events {
		before := e.Previous
		if e.Type == store.Removed {
			before = e.Object.Body
		}
		for _, key := range reservations(before) {
			if e.Type == store.Updated && slices.Contains(reservations(e.Object.Body), key) {
				continue
			}
			if err := a.release(ctx, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// release deletes a reservation, unless its Service has the address or the port. Reservations
// of other programs stay.
func (a *Addresses) release(ctx context.Context, key object.Key) error {
	o, err := a.Store.Get(ctx, key)
	if object.Is(err, object.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var r struct {
		Metadata metav1.ObjectMeta
		Spec     networkingv1.IPAddressSpec // a NodePort has the same
	}
	ours := json.Unmarshal(o.Body, &r) == nil && r.Spec.ParentRef != nil
	if !ours || key.Kind == ipAddresses && r.Metadata.Labels[networkingv1.LabelManagedBy] != managedBy {
		return nil
	}
	parent := r.Spec.ParentRef
	svc, err := a.Store.Get(ctx, object.Key{Kind: services, Namespace: parent.Namespace, Name: parent.Name})
	if err == nil && slices.Contains(reservations(svc.Body), key) {
		return nil
	}
	if err != nil && !object.Is(err, object.NotFound) {
		return err
	}
	_, err = a.Store.Delete(ctx, store.DeleteRequest{
		Key: o.Key, Options: metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID}}, Actor: "system:exeunt:services",
	})
	if object.Is(err, object.NotFound) || object.Is(err, object.Conflict) {
		return nil // another replica was first
	}
	return err
}

// reservations returns the objects that reserve what a stored Service has.
func reservations(body []byte) []object.Key {
	var svc struct {
		Spec corev1.ServiceSpec `json:"spec"`
	}
	if json.Unmarshal(body, &svc) != nil {
		return nil
	}
	var out []object.Key
	for _, ip := range svc.Spec.ClusterIPs {
		if ip != corev1.ClusterIPNone {
			out = append(out, object.Key{Kind: ipAddresses, Name: ip})
		}
	}
	for _, port := range nodePorts(svc.Spec) {
		out = append(out, portKey(port))
	}
	return out
}
