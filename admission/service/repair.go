package service

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// repair reserves the node ports that Services have without a reservation: servers before this one
// stored them as clients sent them. Otherwise another Service could get the same port.
//
// A Service that gives its port up, or leaves, after repair has read it: Run's watch, which begins before, sees
// that and deletes the reservation.
func (a *Addresses) repair(ctx context.Context) error {
	reserved, err := a.reserved(ctx, object.NodePorts)
	if err != nil {
		return err
	}
	missing, err := a.unreserved(ctx, reserved)
	if err != nil {
		return err
	}
	for i := range missing {
		svc := &missing[i]
		for _, port := range nodePorts(svc.Spec) {
			if reserved[portName(port)] {
				continue
			}
			made, err := a.portReservation(ctx, port, svc)
			if err != nil {
				return err
			}
			_, err = a.Store.Create(ctx, store.RequestFor(made))
			if err != nil && !object.Is(err, object.AlreadyExists) { // another replica was first, or another Service
				return err
			}
			reserved[portName(port)] = true
		}
	}
	return nil
}

// unreserved lists the Services that have a node port without a reservation.
func (a *Addresses) unreserved(ctx context.Context, reserved map[string]bool) (out []corev1.Service, err error) {
	listing, err := a.Store.List(ctx, store.ListRequest{Kind: services})
	if err != nil {
		return nil, err
	}
	for listing.Next() {
		o := listing.Object()
		var svc corev1.Service
		if err := json.Unmarshal(o.Body, &svc); err != nil {
			return nil, err
		}
		svc.Namespace, svc.Name = o.Namespace, o.Name
		for _, port := range nodePorts(svc.Spec) {
			if !reserved[portName(port)] {
				out = append(out, svc)
				break
			}
		}
	}
	return out, listing.Err()
}
