// Package service gives Services their cluster addresses and node ports, and takes them
// back.
//
// An address is reserved by an IPAddress object of that name, and a port by a NodePort,
// which is created in the transaction that stores the Service: no two Services, of any
// replica, have the same address or port. Begin with [Addresses.Attach]; Run deletes the
// reservations that no Service uses (release.go).
package service

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

const (
	services    = "services"
	ipAddresses = "ipaddresses.networking.k8s.io"
	// randomTries is how many random addresses are looked at before all are.
	randomTries = 16
	managedBy   = "ipallocator.k8s.io"
)

// Addresses gives out the addresses of one IPv4 range, and the node ports. It keeps no
// state: the IPAddress and NodePort objects are the truth.
type Addresses struct {
	Store *store.Store
	Kinds *kind.Registry
	Range netip.Prefix
	Log   *slog.Logger
}

// ParseRange reads a range of addresses for Services.
func ParseRange(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil || prefix != prefix.Masked() || !prefix.Addr().Is4() || prefix.Bits() > 30 || prefix.Bits() < 8 {
		return netip.Prefix{}, fmt.Errorf("%q is not a range of IPv4 addresses for Services: write it as 10.96.0.0/12, with 8 to 30 bits", text)
	}
	return prefix, nil
}

// at returns an address by its number in the range.
func (a *Addresses) at(n uint32) netip.Addr {
	var b [4]byte
	start := a.Range.Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(start[:])+n)
	return netip.AddrFrom4(b)
}

// size is the number of addresses that can be given: not the network's, not the last.
func (a *Addresses) size() uint32 { return 1<<(32-a.Range.Bits()) - 2 }

// First is the address of the Service default/kubernetes.
func (a *Addresses) First() string { return a.at(1).String() }

// Attach implements kind.Kind.Attach for Services.
func (a *Addresses) Attach(ctx context.Context, obj, old runtime.Object) (out kind.Attachment, err error) {
	svc, ok := obj.(*corev1.Service)
	if !ok {
		return out, fmt.Errorf("attach addresses: got a %T", obj)
	}
	var had []string
	was, _ := old.(*corev1.Service)
	if was != nil {
		had = was.Spec.ClusterIPs
	}
	if err = a.attachAddress(ctx, svc, had, &out); err == nil {
		err = a.attachPorts(ctx, svc, was, &out)
	}
	return out, err
}

// attachAddress completes the addresses of a Service that had some, and reserves a new one.
func (a *Addresses) attachAddress(ctx context.Context, svc *corev1.Service, had []string, out *kind.Attachment) error {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		svc.Spec.ClusterIP, svc.Spec.ClusterIPs, svc.Spec.IPFamilies, svc.Spec.IPFamilyPolicy = "", nil, nil, nil
		return nil
	}
	if svc.Spec.IPFamilyPolicy == nil {
		single := corev1.IPFamilyPolicySingleStack
		svc.Spec.IPFamilyPolicy = &single
	}
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		if len(svc.Spec.IPFamilies) == 0 && len(svc.Spec.Selector) > 0 {
			svc.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
		}
		return nil
	}
	if svc.Spec.ClusterIP != "" && slices.Contains(had, svc.Spec.ClusterIP) {
		return nil
	}
	address, chosen, err := a.choose(ctx, svc, out)
	if err != nil {
		return err
	}
	svc.Spec.ClusterIP, svc.Spec.ClusterIPs, svc.Spec.IPFamilies = address, []string{address}, []corev1.IPFamily{corev1.IPv4Protocol}
	reserved, err := a.reservation(ctx, address, svc)
	if err != nil {
		return err
	}
	if reserved.Taken = alreadyAllocated(address); chosen {
		reserved.Taken = object.ErrAgain
	}
	out.Objects = append(out.Objects, reserved)
	return nil
}

// choose returns the address that the Service names, or a free one. A restored Service
// whose address is taken gets a free one and a warning.
func (a *Addresses) choose(ctx context.Context, svc *corev1.Service, out *kind.Attachment) (address string, chosen bool, err error) {
	wanted := svc.Spec.ClusterIP
	if wanted != "" {
		ip, err := netip.ParseAddr(wanted)
		inRange := err == nil && a.Range.Contains(ip) && ip != a.at(0) && ip != a.at(a.size()+1)
		restoring := kind.IsRestoring(ctx)
		if !inRange && !restoring {
			return "", false, object.InvalidFields(field.ErrorList{field.Invalid(field.NewPath("spec", "clusterIPs"), []string{wanted},
				fmt.Sprintf("failed to allocate IP %s: the provided IP (%s) is not in the valid range. The range of valid IPs is %s", wanted, wanted, a.Range))})
		}
		free, err := a.freed(ctx, object.Key{Kind: ipAddresses, Name: wanted})
		if err != nil || !restoring || inRange && free {
			return wanted, restoring, err
		}
	}
	address, err = a.pick(ctx)
	if wanted != "" && err == nil {
		out.Warnings = append(out.Warnings, fmt.Sprintf("the clusterIP %s is not free any more: the Service has %s now", wanted, address))
	}
	return address, true, err
}

// free reports whether there is no such reservation.
func (a *Addresses) free(ctx context.Context, reservation object.Key) (bool, error) {
	_, err := a.Store.Get(ctx, reservation)
	if object.Is(err, object.NotFound) {
		return true, nil
	}
	return false, err
}

// freed is free after a reservation whose Service left is given back. A Service that is
// restored, or created again, right after its removal would find its own, which Run has not
// given back yet. It takes nothing from a Service: another that has the address keeps it.
func (a *Addresses) freed(ctx context.Context, reservation object.Key) (bool, error) {
	if free, err := a.free(ctx, reservation); free || err != nil {
		return free, err
	}
	if err := a.release(ctx, reservation); err != nil {
		return false, err
	}
	return a.free(ctx, reservation)
}

// pick returns a free address. As in Kubernetes it leaves the first addresses, up to 256,
// to Services that name theirs, as long as others are free.
func (a *Addresses) pick(ctx context.Context) (string, error) {
	size := a.size()
	low := min(max(16, size/16), 256, size/2)
	for range randomTries {
		address := a.at(1 + low + rand.Uint32N(size-low)).String()
		if free, err := a.free(ctx, object.Key{Kind: ipAddresses, Name: address}); free || err != nil {
			return address, err
		}
	}
	used, err := a.reserved(ctx, ipAddresses)
	if err != nil {
		return "", err
	}
	for n := size; n >= 1; n-- {
		if address := a.at(n).String(); !used[address] {
			return address, nil
		}
	}
	return "", object.Errorf(object.Forbidden, "failed to allocate a serviceIP: range %s is full", a.Range)
}

// reserved lists the names of all reservations of a kind.
func (a *Addresses) reserved(ctx context.Context, kind string) (map[string]bool, error) {
	listing, err := a.Store.List(ctx, store.ListRequest{Kind: kind})
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for listing.Next() {
		used[listing.Object().Name] = true
	}
	return used, listing.Err()
}

// reservation is the IPAddress object of a Service's address.
func (a *Addresses) reservation(ctx context.Context, address string, svc *corev1.Service) (object.New, error) {
	v, ok := a.Kinds.Snapshot().Lookup(networkingv1.SchemeGroupVersion.WithResource("ipaddresses"))
	if !ok {
		return object.New{}, fmt.Errorf("no kind IPAddress")
	}
	ip := &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: address, Labels: map[string]string{
			networkingv1.LabelManagedBy: managedBy, networkingv1.LabelIPAddressFamily: string(corev1.IPv4Protocol),
		}},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: services, Namespace: svc.Namespace, Name: svc.Name}},
	}
	made, _, err := v.Prepare(ctx, v.Strategy, ip, lifecycle.Creation{Now: time.Now(), UID: object.NewUID()}, nil)
	return made, err
}

func alreadyAllocated(address string) error {
	return object.InvalidFields(field.ErrorList{field.Invalid(field.NewPath("spec", "clusterIPs"), []string{address},
		fmt.Sprintf("failed to allocate IP %s: provided IP is already allocated", address))})
}
