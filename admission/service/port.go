package service

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// The node ports. As in Kubernetes, the first ports are left to Services that name theirs,
// as long as others are free.
const (
	firstPort = 30000
	lastPort  = 32767
	lowPorts  = 86
)

var nodePortResource = schema.GroupVersionResource{Group: "networking.exeunt.dev", Version: "v1", Resource: "nodeports"}

//go:embed nodeport.yaml
var nodePortYAML []byte

// NodePortKind makes the kind NodePort. An object of it reserves a port in the transaction
// that stores the Service, as an IPAddress reserves an address.
func NodePortKind() (*kind.Kind, error) {
	k, err := custom.BuiltIn(nodePortYAML)
	if err != nil {
		return nil, err
	}
	k.ReadOnly = true
	return k, nil
}

// attachPorts gives node ports to a Service whose type has them, and reserves those that it
// names. The old Service's ports are reserved already.
func (a *Addresses) attachPorts(ctx context.Context, svc, old *corev1.Service, out *kind.Attachment) error {
	if svc.Spec.Type != corev1.ServiceTypeNodePort && svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil
	}
	t := &portTaker{a: a, svc: svc, out: out, mine: map[int32]bool{}}
	if old != nil {
		for _, port := range nodePorts(old.Spec) {
			t.mine[port] = true
		}
	}
	allocate := svc.Spec.Type == corev1.ServiceTypeNodePort || svc.Spec.AllocateLoadBalancerNodePorts == nil || *svc.Spec.AllocateLoadBalancerNodePorts
	shared := map[int32]int32{} // TCP and UDP of one port share their node port
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		p.NodePort = cmp.Or(p.NodePort, shared[p.Port])
		if p.NodePort == 0 && !allocate {
			continue
		}
		if err := t.take(ctx, &p.NodePort, field.NewPath("spec", "ports").Index(i).Child("nodePort")); err != nil {
			return err
		}
		shared[p.Port] = p.NodePort
	}
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		return t.take(ctx, &svc.Spec.HealthCheckNodePort, field.NewPath("spec", "healthCheckNodePort"))
	}
	return nil
}

// portTaker reserves the ports of one Service.
type portTaker struct {
	a    *Addresses
	svc  *corev1.Service
	out  *kind.Attachment
	mine map[int32]bool // reserved for this Service already
}

// take reserves *port, or chooses a free one if it is 0. A restored Service whose port is taken gets
// a free one and a warning.
func (t *portTaker) take(ctx context.Context, port *int32, at *field.Path) error {
	wanted, restoring := *port, kind.IsRestoring(ctx)
	if t.mine[wanted] && wanted != 0 {
		return nil
	}
	inRange := wanted >= firstPort && wanted <= lastPort
	if wanted != 0 && !inRange && !restoring {
		return invalidPort(at, wanted, fmt.Sprintf("provided port is not in the valid range. The range of valid ports is %d-%d", firstPort, lastPort))
	}
	free := false
	if inRange {
		var err error
		if free, err = t.a.freed(ctx, portKey(wanted)); err != nil {
			return err
		}
	}
	chosen := wanted == 0 || restoring
	if wanted == 0 || restoring && !free {
		picked, err := t.pick(ctx)
		if err != nil {
			return err
		}
		if *port = picked; wanted != 0 {
			t.out.Warnings = append(t.out.Warnings, fmt.Sprintf("the node port %d is not free any more: the Service has %d now", wanted, picked))
		}
	}
	reserved, err := t.a.portReservation(ctx, *port, t.svc)
	if err != nil {
		return err
	}
	if reserved.Taken = invalidPort(at, *port, "provided port is already allocated"); chosen {
		reserved.Taken = object.ErrAgain
	}
	t.mine[*port] = true
	t.out.Objects = append(t.out.Objects, reserved)
	return nil
}

func invalidPort(at *field.Path, port int32, why string) error {
	return object.InvalidFields(field.ErrorList{field.Invalid(at, port, why)})
}

// pick returns a free port.
func (t *portTaker) pick(ctx context.Context) (int32, error) {
	for range randomTries {
		port := int32(firstPort + lowPorts + rand.IntN(lastPort-firstPort-lowPorts+1))
		if t.mine[port] {
			continue
		}
		if free, err := t.a.free(ctx, portKey(port)); free || err != nil {
			return port, err
		}
	}
	used, err := t.a.reserved(ctx, object.NodePorts)
	if err != nil {
		return 0, err
	}
	for port := int32(lastPort); port >= firstPort; port-- {
		if !used[portName(port)] && !t.mine[port] {
			return port, nil
		}
	}
	return 0, object.Errorf(object.Forbidden, "failed to allocate a nodePort: range %d-%d is full", firstPort, lastPort)
}

// portReservation is the NodePort object of a Service's port.
func (a *Addresses) portReservation(ctx context.Context, port int32, svc *corev1.Service) (object.New, error) {
	v, ok := a.Kinds.Snapshot().Lookup(nodePortResource)
	if !ok {
		return object.New{}, fmt.Errorf("no kind NodePort")
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": nodePortResource.GroupVersion().String(), "kind": "NodePort", "metadata": map[string]any{"name": portName(port)},
		"spec": map[string]any{"parentRef": map[string]any{"resource": services, "namespace": svc.Namespace, "name": svc.Name}},
	}}
	made, _, err := v.Prepare(ctx, v.Strategy, obj, lifecycle.Creation{Now: time.Now(), UID: object.NewUID()}, nil)
	return made, err
}

// nodePorts returns the node ports of a Service, as they are in its spec.
func nodePorts(spec corev1.ServiceSpec) []int32 {
	var out []int32
	for _, p := range spec.Ports {
		if p.NodePort != 0 {
			out = append(out, p.NodePort)
		}
	}
	if spec.HealthCheckNodePort != 0 {
		out = append(out, spec.HealthCheckNodePort)
	}
	return out
}

// portKey names the reservation of a port.
func portKey(port int32) object.Key { return object.Key{Kind: object.NodePorts, Name: portName(port)} }

func portName(port int32) string { return strconv.Itoa(int(port)) }
