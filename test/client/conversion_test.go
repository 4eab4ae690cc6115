package client_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
	hookconversion "sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/exeunt/exeunt/test/harness"
)

// CarV1 is the old version: one field for both names of the owner.
type CarV1 struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Owner string `json:"owner,omitempty"`
	} `json:"spec,omitempty"`
}

// CarV2 is the new version, and the hub of the conversion.
type CarV2 struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		First string `json:"first,omitempty"`
		Last  string `json:"last,omitempty"`
	} `json:"spec,omitempty"`
}

// CarV1List is a list of CarV1.
type CarV1List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CarV1 `json:"items"`
}

// CarV2List is a list of CarV2.
type CarV2List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CarV2 `json:"items"`
}

// DeepCopyObject makes CarV1 a runtime.Object.
func (c *CarV1) DeepCopyObject() runtime.Object { return deepCopy(c) }

// DeepCopyObject makes CarV2 a runtime.Object.
func (c *CarV2) DeepCopyObject() runtime.Object { return deepCopy(c) }

// DeepCopyObject makes CarV1List a runtime.Object.
func (c *CarV1List) DeepCopyObject() runtime.Object { return deepCopy(c) }

// DeepCopyObject makes CarV2List a runtime.Object.
func (c *CarV2List) DeepCopyObject() runtime.Object { return deepCopy(c) }

// Hub makes CarV2 the hub.
func (*CarV2) Hub() {}

// ConvertTo converts to the hub.
func (c *CarV1) ConvertTo(hub conversion.Hub) error {
	to := hub.(*CarV2)
	to.ObjectMeta = c.ObjectMeta
	to.Spec.First, to.Spec.Last, _ = strings.Cut(c.Spec.Owner, " ")
	return nil
}

// ConvertFrom converts from the hub.
func (c *CarV1) ConvertFrom(hub conversion.Hub) error {
	from := hub.(*CarV2)
	c.ObjectMeta = from.ObjectMeta
	c.Spec.Owner = strings.TrimSpace(from.Spec.First + " " + from.Spec.Last)
	return nil
}

const carCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: cars.cars.exeunt.dev}
spec:
  group: cars.exeunt.dev
  scope: Namespaced
  names: {plural: cars, singular: car, kind: Car}
  versions:
  - {name: v1, served: true, storage: true, selectableFields: [{jsonPath: .spec.owner}],
     schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {owner: {type: string}}}}}}}
`

// carCRDs is the definition after the upgrade: v2 is stored, and a webhook converts.
func carCRDs(bundle []byte) string {
	return strings.Replace(carCRD, "storage: true", "storage: false", 1) + `
  - {name: v2, served: true, storage: true, selectableFields: [{jsonPath: .spec.last}],
     schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {first: {type: string}, last: {type: string}}}}}}}
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig: {service: {namespace: default, name: convert, path: /convert}, caBundle: ` + base64.StdEncoding.EncodeToString(bundle) + `}
`
}

// carScheme has both versions of Car.
func carScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for version, types := range map[string][2]runtime.Object{"v1": {&CarV1{}, &CarV1List{}}, "v2": {&CarV2{}, &CarV2List{}}} {
		gv := schema.GroupVersion{Group: "cars.exeunt.dev", Version: version}
		scheme.AddKnownTypeWithName(gv.WithKind("Car"), types[0])
		scheme.AddKnownTypeWithName(gv.WithKind("CarList"), types[1])
		metav1.AddToGroupVersion(scheme, gv)
	}
	return scheme
}

// serviceCertificate makes a certificate for a Service of the namespace default, which is its own authority.
func serviceCertificate(t *testing.T, service string) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{service + ".default.svc"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// startConverter serves controller-runtime's conversion webhook with a certificate for
// the name of a Service, and returns the certificate.
func startConverter(t *testing.T, scheme *runtime.Scheme) (*httptest.Server, []byte) {
	t.Helper()
	certificate, bundle := serviceCertificate(t, "convert")
	h := httptest.NewUnstartedServer(hookconversion.NewWebhookHandler(scheme, hookconversion.NewRegistry()))
	h.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	h.StartTLS()
	t.Cleanup(h.Close)
	return h, bundle
}

// serveAt creates the Service "convert" with one endpoint.
func serveAt(t *testing.T, s *harness.Server, address string) {
	t.Helper()
	host, portText, err := net.SplitHostPort(address)
	check(t, err)
	port, err := strconv.Atoi(portText)
	check(t, err)
	clients, ctx := typed(t, s.Config()), t.Context()
	_, err = clients.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "convert"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
	}, metav1.CreateOptions{})
	check(t, err)
	_, err = clients.DiscoveryV1().EndpointSlices("default").Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "convert-1", Labels: map[string]string{discoveryv1.LabelServiceName: "convert"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{host}}},
		Ports:       []discoveryv1.EndpointPort{{Name: ptr(""), Port: ptr(int32(port))}},
	}, metav1.CreateOptions{})
	check(t, err)
}

func applyCRD(t *testing.T, s *harness.Server, text string) {
	t.Helper()
	if r := s.KubectlCommand(t, harness.Command{Args: []string{"apply", "-f", "-"}, Stdin: text}); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	if r := s.Kubectl(t, "wait", "crd/cars.cars.exeunt.dev", "--for=condition=Established", "--timeout=30s"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
}

func car(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "default"} }

// TestConversionWebhook upgrades a kind as its authors do: v1 is stored, then v2 is added
// and stored, and controller-runtime's webhook converts. Both versions are read, listed,
// watched, selected and written. Without the webhook, the stored version works, the other one
// fails, and deletions and namespaces end.
func TestConversionWebhook(t *testing.T) {
	s := harness.Start(t, "sqlite")
	scheme := carScheme()
	h, bundle := startConverter(t, scheme)
	serveAt(t, s, h.Listener.Addr().String())
	c, err := client.NewWithWatch(s.Config(), client.Options{Scheme: scheme})
	check(t, err)
	ctx := t.Context()
	applyCRD(t, s, carCRD)
	early := &CarV1{ObjectMeta: car("early")}
	early.Spec.Owner = "Ada Lovelace"
	check(t, c.Create(ctx, early))
	applyCRD(t, s, carCRDs(bundle))
	harness.Until(t, "v2 is served and converted", func() error { return c.Get(ctx, client.ObjectKeyFromObject(early), &CarV2{}) })

	var watches []watch.Interface
	for _, version := range []client.ObjectList{&CarV1List{}, &CarV2List{}} {
		w, err := c.Watch(ctx, version, client.InNamespace("default"))
		check(t, err)
		defer w.Stop()
		wantOwner(t, w, watch.Added, "Ada Lovelace")
		watches = append(watches, w)
	}
	late := &CarV1{ObjectMeta: car("late")}
	late.Spec.Owner = "Grace Hopper"
	check(t, c.Create(ctx, late))
	for _, w := range watches {
		wantOwner(t, w, watch.Added, "Grace Hopper")
	}
	var stored CarV2
	check(t, c.Get(ctx, client.ObjectKeyFromObject(late), &stored))
	if stored.Spec.First != "Grace" || stored.Spec.Last != "Hopper" || stored.UID != late.UID {
		t.Fatalf("v2 = %+v", stored)
	}
	testCarLists(t, c)
	stored.Spec.Last = "Murray Hopper"
	check(t, c.Update(ctx, &stored))
	check(t, c.Patch(ctx, late, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"seen":"v1"}}}`))))
	if late.Spec.Owner != "Grace Murray Hopper" || late.Labels["seen"] != "v1" {
		t.Fatalf("v1 = %+v", late)
	}
	testWithoutConverter(t, s, c, h)
}

// testCarLists lists both versions, and selects by a field of each.
func testCarLists(t *testing.T, c client.Client) {
	t.Helper()
	var old CarV1List
	check(t, c.List(t.Context(), &old, client.InNamespace("default")))
	if len(old.Items) != 2 || old.Items[0].Spec.Owner != "Ada Lovelace" || old.Items[1].Spec.Owner != "Grace Hopper" {
		t.Fatalf("v1 list = %+v", old.Items)
	}
	check(t, c.List(t.Context(), &old, client.MatchingFields{"spec.owner": "Grace Hopper"}))
	if len(old.Items) != 1 || old.Items[0].Name != "late" {
		t.Fatalf("selected in v1: %+v", old.Items)
	}
	var now CarV2List
	check(t, c.List(t.Context(), &now, client.MatchingFields{"spec.last": "Lovelace"}))
	if len(now.Items) != 1 || now.Items[0].Name != "early" || now.Items[0].Spec.First != "Ada" {
		t.Fatalf("selected in v2: %+v", now.Items)
	}
}

// migrate rewrites all cars in v2.
func migrate(t *testing.T, s *harness.Server) {
	t.Helper()
	const migration = `{apiVersion: storagemigration.k8s.io/v1, kind: StorageVersionMigration, metadata: {name: cars}, spec: {resource: {group: cars.exeunt.dev, resource: cars}}}`
	if r := s.KubectlCommand(t, harness.Command{Args: []string{"create", "-f", "-"}, Stdin: migration}); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	if r := s.Kubectl(t, "wait", "storageversionmigration/cars", "--for=condition=Running=false", "--timeout=30s"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	if r := s.Kubectl(t, "get", "crd", "cars.cars.exeunt.dev", "-o", "jsonpath={.status.storedVersions}"); r.Stdout != `["v2"]` {
		t.Fatalf("storedVersions = %s %s", r.Stdout, r.Stderr)
	}
}

// testWithoutConverter stops the webhook.
func testWithoutConverter(t *testing.T, s *harness.Server, c client.Client, h *httptest.Server) {
	t.Helper()
	ctx := t.Context()
	migrate(t, s)
	h.Close()
	stored := &CarV2{}
	check(t, c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "early"}, stored)) // it was stored in v1
	check(t, c.Delete(ctx, stored))
	check(t, c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "late"}, stored))
	check(t, c.List(ctx, &CarV2List{}, client.InNamespace("default")))
	check(t, c.Patch(ctx, stored, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"first":"G."}}`))))
	for what, err := range map[string]error{
		"list":   c.List(ctx, &CarV1List{}, client.InNamespace("default")),
		"get":    c.Get(ctx, client.ObjectKeyFromObject(stored), &CarV1{}),
		"create": c.Create(ctx, &CarV1{ObjectMeta: car("never")}),
	} {
		if err == nil || apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "conversion webhook for cars.exeunt.dev/") {
			t.Errorf("%s without the webhook: %v", what, err)
		}
	}
	if r := s.Kubectl(t, "create", "namespace", "garage"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	owned := &CarV2{ObjectMeta: metav1.ObjectMeta{Name: "owned", Namespace: "default"}}
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "cars.exeunt.dev/v1", Kind: "Car", Name: "late", UID: stored.UID}}
	check(t, c.Create(ctx, owned))
	check(t, c.Create(ctx, &CarV2{ObjectMeta: metav1.ObjectMeta{Name: "parked", Namespace: "garage"}}))
	check(t, c.Delete(ctx, &CarV1{ObjectMeta: car("late")}))
	if r := s.Kubectl(t, "delete", "namespace", "garage", "--timeout=60s"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	harness.Until(t, "the collector removes the dependent", func() error {
		var left CarV2List
		if err := c.List(ctx, &left); err != nil || len(left.Items) > 0 {
			return fmt.Errorf("%d cars are left: %v", len(left.Items), err)
		}
		return nil
	})
}

// wantOwner reads the next event of a watch of either version.
func wantOwner(t *testing.T, w watch.Interface, event watch.EventType, owner string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	select {
	case e := <-w.ResultChan():
		got := ""
		switch c := e.Object.(type) {
		case *CarV1:
			got = c.Spec.Owner
		case *CarV2:
			got = c.Spec.First + " " + c.Spec.Last
		}
		if e.Type != event || got != owner {
			t.Errorf("event %s %q, want %s %q: %+v", e.Type, got, event, owner, e.Object)
		}
	case <-ctx.Done():
		t.Errorf("no event about %s", owner)
	}
}
