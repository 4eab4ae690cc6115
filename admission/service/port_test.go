package service_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

// nodePortSpec is a Service of type NodePort with these ports of nodes; 0 means the server's choice.
func nodePortSpec(nodePorts ...int32) corev1.ServiceSpec {
	spec := corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}
	for i, p := range nodePorts {
		spec.Ports = append(spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(80 + i), NodePort: p})
	}
	return spec
}

func (w *world) ports() []string { return w.names(object.NodePorts) }

// TestNodePortsAreUnique: Services that are created at once get different ports, and a port
// that a client names is given once.
func TestNodePortsAreUnique(t *testing.T) {
	w := newWorld(t, "10.0.0.0/24")
	ctx := t.Context()
	var group sync.WaitGroup
	var mu sync.Mutex
	given := map[int32]bool{}
	named := 0
	for i := range 12 {
		group.Go(func() {
			svc, _, err := w.create(ctx, fmt.Sprintf("s-%d", i), nodePortSpec(0, 30007))
			mu.Lock()
			defer mu.Unlock()
			if object.Is(err, object.Invalid) && strings.Contains(err.Error(), "spec.ports[1].nodePort: Invalid value: 30007: provided port is already allocated") {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			named++
			given[svc.Spec.Ports[0].NodePort] = true
		})
		group.Go(func() {
			svc, _, err := w.create(ctx, fmt.Sprintf("t-%d", i), nodePortSpec(0))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || given[svc.Spec.Ports[0].NodePort] || svc.Spec.Ports[0].NodePort < 30086 || svc.Spec.Ports[0].NodePort > 32767 {
				t.Errorf("%+v, %v", svc, err)
				return
			}
			given[svc.Spec.Ports[0].NodePort] = true
		})
	}
	group.Wait()
	if got := w.ports(); named != 1 || len(given) != 13 || len(got) != 14 || !slices.Contains(got, "30007") {
		t.Errorf("%d have the named port, %d have another, reserved are %v", named, len(given), got)
	}
	if _, _, err := w.create(ctx, "outside", nodePortSpec(29999)); !object.Is(err, object.Invalid) || !strings.Contains(err.Error(), "The range of valid ports is 30000-32767") {
		t.Errorf("outside of the range: %v", err)
	}
}

// TestLastNodePort: a Service gets the last free port, also one of those that are kept for clients that name
// theirs. After it the range is full.
func TestLastNodePort(t *testing.T) {
	w := newWorld(t, "10.0.0.0/24")
	for first := int32(30001); first <= 32767; first += 500 {
		var ports []int32
		for port := first; port < min(first+500, 32768); port++ {
			ports = append(ports, port)
		}
		if _, _, err := w.create(t.Context(), fmt.Sprintf("from-%d", first), nodePortSpec(ports...)); err != nil {
			t.Fatal(err)
		}
	}
	svc, _, err := w.create(t.Context(), "last", nodePortSpec(0))
	if err != nil || svc.Spec.Ports[0].NodePort != 30000 {
		t.Errorf("the last port: %+v, %v", svc, err)
	}
	if _, _, err := w.create(t.Context(), "more", nodePortSpec(0)); !object.Is(err, object.Forbidden) || !strings.Contains(err.Error(), "range 30000-32767 is full") {
		t.Errorf("one more: %v", err)
	}
}

// TestNodePortsOfTypes: which Services have how many node ports.
func TestNodePortsOfTypes(t *testing.T) {
	w := newWorld(t, "10.0.0.0/24")
	off := false
	both := []corev1.ServicePort{{Name: "t", Port: 53, Protocol: corev1.ProtocolTCP}, {Name: "u", Port: 53, Protocol: corev1.ProtocolUDP}}
	for _, row := range []struct {
		name string
		spec corev1.ServiceSpec
		want int
	}{
		{"cluster", corev1.ServiceSpec{}, 0},
		{"balancer", corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}, 1},
		{"balancer-local", corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal}, 2},
		{"balancer-without", corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, AllocateLoadBalancerNodePorts: &off}, 0},
		{"shared", corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: both}, 1},
	} {
		before := len(w.ports())
		if _, _, err := w.create(t.Context(), row.name, row.spec); err != nil || len(w.ports())-before != row.want {
			t.Errorf("%s: %d ports, want %d, %v", row.name, len(w.ports())-before, row.want, err)
		}
	}
	free := w.ports()
	taken, err := strconv.Atoi(free[0])
	if err != nil {
		t.Fatal(err)
	}
	svc, warnings, err := w.create(kind.Restoring(t.Context()), "restored", nodePortSpec(int32(taken), 30001))
	if err != nil || svc.Spec.Ports[0].NodePort == int32(taken) || svc.Spec.Ports[1].NodePort != 30001 || len(warnings) != 1 {
		t.Errorf("restored: %+v, %v, %v", svc, warnings, err)
	}
}

// change updates a Service as the API does.
func (w *world) change(ctx context.Context, name string, change func(*corev1.ServiceSpec)) (*corev1.Service, error) {
	w.t.Helper()
	key := object.Key{Kind: "services", Namespace: "shop", Name: name}
	v, _ := w.kinds.Snapshot().Lookup(corev1.SchemeGroupVersion.WithResource("services"))
	for {
		current, err := w.store.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		old, err := v.Decode(current.Body, current.ResourceVersion())
		if err != nil {
			return nil, err
		}
		svc := old.DeepCopyObject().(*corev1.Service)
		change(&svc.Spec)
		if _, err := lifecycle.BeforeUpdate(ctx, v.Strategy, svc, old, lifecycle.Change{Namespace: "shop"}); err != nil {
			return nil, err
		}
		attached, err := w.addresses.Attach(ctx, svc, old)
		if err != nil {
			return nil, err
		}
		body, err := v.Encode(svc)
		if err != nil {
			return nil, err
		}
		request := store.UpdateRequest{Key: key, IfRevision: current.Revision, Meta: object.MetaOf(svc), Body: body}
		for _, o := range attached.Objects {
			request.With = append(request.With, store.RequestFor(o))
		}
		if _, err := w.store.Update(ctx, request); !errors.Is(err, object.ErrAgain) {
			return svc, err
		}
	}
}

// TestNodePortsFollowTheService: a port stays through updates, is given back with the type,
// with the port, and with the Service.
func TestNodePortsFollowTheService(t *testing.T) {
	w := newWorld(t, "10.0.0.0/24")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.addresses.Run(ctx) }()
	settle := func(want ...string) {
		t.Helper()
		slices.Sort(want)
		dbtest.Until(t, "the ports follow", func() error {
			if got := w.ports(); !slices.Equal(got, want) {
				return fmt.Errorf("reserved are %v, want %v", got, want)
			}
			return nil
		})
	}
	if _, _, err := w.create(ctx, "web", nodePortSpec(30001, 30002)); err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		name   string
		change func(*corev1.ServiceSpec)
		want   []string
	}{
		{"the client omits them", func(s *corev1.ServiceSpec) { s.Ports[0].NodePort, s.Ports[1].NodePort = 0, 0 }, []string{"30001", "30002"}},
		{"another one", func(s *corev1.ServiceSpec) { s.Ports[1].NodePort = 30003 }, []string{"30001", "30003"}},
		{"exchanged", func(s *corev1.ServiceSpec) {
			s.Ports[0].NodePort, s.Ports[1].NodePort = s.Ports[1].NodePort, s.Ports[0].NodePort
		}, []string{"30001", "30003"}},
		{"a port goes", func(s *corev1.ServiceSpec) { s.Ports = s.Ports[:1] }, []string{"30003"}},
		{"a load balancer", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer }, []string{"30003"}},
		{"a type without them", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeClusterIP }, nil},
		{"a type with them", func(s *corev1.ServiceSpec) { s.Type, s.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30004 }, []string{"30004"}},
	}
	for _, step := range steps {
		if _, err := w.change(ctx, "web", step.change); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		settle(step.want...)
	}
	w.remove("web")
	settle()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
