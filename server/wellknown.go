package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/apiservice"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/objects"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// wellKnownEvery is how often the objects of this file are looked for, as in Kubernetes.
const wellKnownEvery = 10 * time.Second

// wellKnown keeps the objects by which programs find this server and verify its clients:
// the Service default/kubernetes with its endpoints, and the ConfigMap
// kube-system/extension-apiserver-authentication; and the PriorityClasses and objects of
// priority and fairness that every cluster has. Every replica runs it.
type wellKnown struct {
	*server
	writer  objects.Writer
	missing map[string]bool // processes that the last round missed
}

// addWellKnown adds those objects and the APIServices. Both are there before the first client looks for them.
func (s *server) addWellKnown(context.Context) error {
	w := &wellKnown{server: s, writer: s.writer("server")}
	services := &apiservice.Keeper{Writer: w.writer, Log: s.config.Logger}
	s.add(part{
		name: "well-known objects",
		open: func(ctx context.Context) error {
			w.ensureLogged(ctx)
			services.Start(ctx)
			return nil
		},
		tasks: []task.Task{task.Loop("well-known", w.keep), {Name: "api-services", Run: services.Run}},
		status: func(ctx context.Context, all *Status) error {
			slice, err := w.writer.Get(ctx, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), metav1.NamespaceDefault, "kubernetes")
			if err == nil {
				all.Replicas = processesOf(slice.(*discoveryv1.EndpointSlice))
			}
			return err
		},
	})
	return nil
}

func (w *wellKnown) keep(ctx context.Context) {
	for task.Sleep(ctx, wellKnownEvery) {
		w.ensureLogged(ctx)
	}
}

// ensureLogged creates what is missing. An error is no reason to stop the server: keep tries again.
func (w *wellKnown) ensureLogged(ctx context.Context) {
	if err := w.ensure(ctx); err != nil && ctx.Err() == nil {
		w.config.Logger.Warn("the Service kubernetes or its companions could not be written; the next try is in 10 seconds", "error", err)
	}
}

func (w *wellKnown) ensure(ctx context.Context) error {
	host, port := w.address()
	https := "https"
	tcp, number := corev1.ProtocolTCP, int32(port)
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}
	labelled := *meta.DeepCopy()
	labelled.Labels = map[string]string{"component": "apiserver", "provider": "kubernetes"}
	slice := *meta.DeepCopy()
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: "kubernetes"}
	mirrored := *meta.DeepCopy()
	mirrored.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"}
	family := discoveryv1.AddressTypeIPv4
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		family = discoveryv1.AddressTypeIPv6
	}
	ready := true
	alive, err := w.db.Present(ctx)
	if err != nil {
		return err
	}
	replicas := &roll{own: w.db.Process(), host: host, alone: w.db.Engine() == sqldb.SQLite, alive: alive, missed: w.missing}
	addresses := []string{host}
	defer func() { w.missing = replicas.missing }()
	self := &discoveryv1.EndpointSlice{
		ObjectMeta: slice, AddressType: family,
		Ports: []discoveryv1.EndpointPort{{Name: &https, Port: &number, Protocol: &tcp}},
	}
	replicas.mend(self, discoveryv1.Endpoint{Addresses: []string{host}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	return errors.Join(
		keep(ctx, w.writer, networkingv1.SchemeGroupVersion.WithResource("servicecidrs"), &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{w.addresses.Range.String()}},
		}, nil),
		keep(ctx, w.writer, corev1.SchemeGroupVersion.WithResource("services"), &corev1.Service{ObjectMeta: labelled, Spec: corev1.ServiceSpec{
			ClusterIP: w.addresses.First(),
			Ports:     []corev1.ServicePort{{Name: https, Port: 443, Protocol: tcp, TargetPort: intstr.FromInt32(number)}},
		}}, nil),
		keep(ctx, w.writer, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), self, func(have, want *discoveryv1.EndpointSlice) {
			// Other replicas are in the slice too; all serve the same port.
			if gone := replicas.mend(have, want.Endpoints[0]); len(gone) > 0 {
				w.config.Logger.Info("replicas are gone and leave the Service kubernetes", "addresses", gone)
			}
			addresses = addressesOf(have)
			if len(have.Endpoints) == 1 || len(have.Ports) == 0 {
				have.Ports = want.Ports
			}
		}),
		keep(ctx, w.writer, corev1.SchemeGroupVersion.WithResource("endpoints"), &corev1.Endpoints{
			ObjectMeta: mirrored,
			Subsets:    []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: host}}, Ports: []corev1.EndpointPort{{Name: https, Port: number, Protocol: tcp}}}},
		}, func(have, _ *corev1.Endpoints) { mirror(have, addresses) }),
		keep(ctx, w.writer, corev1.SchemeGroupVersion.WithResource("configmaps"), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "extension-apiserver-authentication"}, Data: w.authentication(),
		}, func(have, want *corev1.ConfigMap) { have.Data = want.Data }),
		w.keepClass(ctx, "system-node-critical", 2000001000, "Used for system critical pods that must not be moved from their current node."),
		w.keepClass(ctx, "system-cluster-critical", 2000000000, "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."),
		w.keepFairness(ctx),
	)
}

// keepFairness creates the mandatory objects of priority and fairness, which clients may look for.
func (w *wellKnown) keepFairness(ctx context.Context) (err error) {
	for _, level := range bootstrap.MandatoryPriorityLevelConfigurations {
		err = errors.Join(err, keep(ctx, w.writer, flowcontrolv1.SchemeGroupVersion.WithResource("prioritylevelconfigurations"), level.DeepCopy(), nil))
	}
	for _, schema := range bootstrap.MandatoryFlowSchemas {
		err = errors.Join(err, keep(ctx, w.writer, flowcontrolv1.SchemeGroupVersion.WithResource("flowschemas"), schema.DeepCopy(), nil))
	}
	return err
}

// addressesOf lists the addresses of a slice.
func addressesOf(slice *discoveryv1.EndpointSlice) (all []string) {
	for _, e := range slice.Endpoints {
		all = append(all, e.Addresses...)
	}
	return all
}

// processesOf lists the addresses of a slice, each as often as it has processes.
func processesOf(slice *discoveryv1.EndpointSlice) (all []string) {
	at := map[string][]string{}
	_ = json.Unmarshal([]byte(slice.Annotations[replicasAnnotation]), &at) // a person may have written it
	for _, address := range addressesOf(slice) {
		all = append(all, slices.Repeat([]string{address}, max(1, len(at[address])))...)
	}
	return all
}

// mirror copies the addresses of the EndpointSlice to the Endpoints, which old clients read.
func mirror(endpoints *corev1.Endpoints, addresses []string) {
	if len(endpoints.Subsets) != 1 {
		return // a person changed it
	}
	list := make([]corev1.EndpointAddress, len(addresses))
	for i, ip := range addresses {
		list[i].IP = ip
	}
	endpoints.Subsets[0].Addresses = list
}

func (w *wellKnown) keepClass(ctx context.Context, name string, value int32, description string) error {
	policy := corev1.PreemptLowerPriority
	return keep(ctx, w.writer, schedulingv1.SchemeGroupVersion.WithResource("priorityclasses"), &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, Description: description, PreemptionPolicy: &policy,
	}, nil)
}

// authentication is what extension servers need to know the clients of this server. It
// has no front proxy.
func (w *wellKnown) authentication() map[string]string {
	return map[string]string{"client-ca-file": string(w.identity.AuthorityPEM())}
}

// address is the address and the port of this replica. A server that listens on all
// addresses names the first one of its machine.
func (w *wellKnown) address() (host string, port int) {
	host, text, _ := net.SplitHostPort(w.listener.Addr().String())
	port, _ = strconv.Atoi(text) // the listener's own text
	if unspecified(host) {
		host = "127.0.0.1"
		if all := machineAddresses(); len(all) > 0 {
			host = all[0].String()
		}
	}
	return host, port
}

// keep creates an object if it is missing. If it exists, mend (nil means nothing) changes it
// towards the wanted one; a write happens only if that changed something.
func keep[P interface {
	runtime.Object
	metav1.Object
}](ctx context.Context, w objects.Writer, gvr schema.GroupVersionResource, want P, mend func(have, want P)) error {
	old, err := w.Get(ctx, gvr, want.GetNamespace(), want.GetName())
	if object.Is(err, object.NotFound) {
		err = w.Create(ctx, gvr, want)
		if object.Is(err, object.AlreadyExists) || object.Is(err, object.BeingDeleted) {
			return nil // another replica was first, or its name is free soon
		}
		return err
	}
	if err != nil || mend == nil {
		return err
	}
	have := old.DeepCopyObject().(P)
	mend(have, want)
	if equality.Semantic.DeepEqual(have, old) {
		return nil
	}
	if err := w.Update(ctx, gvr, have, old); !object.Is(err, object.Conflict) && !object.Is(err, object.NotFound) {
		return err
	}
	return nil // the next round sees what came first
}

// systemNamespaces exist in every cluster, and clients rely on them. All but the last
// cannot be deleted (kind/builtin).
var systemNamespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, "kube-node-lease"}

// ensureNamespaces creates the missing system namespaces. It leaves one that is being
// deleted: its name is taken until it is removed.
func ensureNamespaces(ctx context.Context, st *store.Store, kinds *kind.Registry) error {
	for _, name := range systemNamespaces {
		if _, err := st.Get(ctx, object.Key{Kind: object.Namespaces, Name: name}); err == nil {
			continue
		} else if !object.Is(err, object.NotFound) {
			return fmt.Errorf("look for namespace %s: %w", name, err)
		}
		if err := createNamespace(ctx, st, kinds, name); err != nil {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
	}
	return nil
}

// keepNamespaces creates a system namespace again after any replica removed it, until
// the context ends. Every replica runs this; the create is idempotent.
//
// The watch begins at a revision before ensureNamespaces reads. So either that read
// or the watch sees a removal.
func keepNamespaces(ctx context.Context, st *store.Store, kinds *kind.Registry, log *slog.Logger) error {
	return st.Keep(ctx, log, "system namespaces could not be restored", func(from int64) error {
		if err := ensureNamespaces(ctx, st, kinds); err != nil {
			return err
		}
		return st.Follow(ctx, store.WatchRequest{Kind: object.Namespaces, From: from}, func(events []*store.Event) error {
			if slices.ContainsFunc(events, func(e *store.Event) bool {
				return e.Type == store.Removed && slices.Contains(systemNamespaces, e.Object.Name)
			}) {
				return ensureNamespaces(ctx, st, kinds)
			}
			return nil
		})
	})
}

// createNamespace creates a namespace, unless it exists.
func createNamespace(ctx context.Context, st *store.Store, kinds *kind.Registry, name string) error {
	v, ok := kinds.Snapshot().Lookup(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	if !ok {
		return errors.New("no Namespace kind")
	}
	creation := lifecycle.Creation{Now: time.Now(), UID: object.NewUID()}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{
		Manager: "exeunt", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &metav1.Time{Time: creation.Now}, FieldsType: "FieldsV1",
		FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/metadata.name":{}}}}`)},
	}}}}
	builtin.Scheme().Default(ns)
	made, _, err := v.Prepare(ctx, v.Strategy, ns, creation, nil)
	if err != nil {
		return err
	}
	_, err = st.Create(ctx, store.RequestFor(made))
	if object.Is(err, object.AlreadyExists) || object.Is(err, object.BeingDeleted) {
		return nil
	}
	return err
}
