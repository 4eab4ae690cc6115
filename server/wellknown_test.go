package server

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestWellKnownObjects: a new server says where it is and who signs its clients. Services get
// addresses, and the Service kubernetes returns after it was deleted.
func TestWellKnownObjects(t *testing.T) {
	r := start(t, Config{Data: filepath.Join(t.TempDir(), "data"), ServiceRange: "10.0.0.0/24"})
	core, ctx := r.client.CoreV1(), t.Context()
	svc, err := core.Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil || svc.Spec.ClusterIP != "10.0.0.1" || len(svc.Spec.ClusterIPs) != 1 || svc.Spec.IPFamilies[0] != corev1.IPv4Protocol {
		t.Fatalf("the Service kubernetes is %+v, %v", svc.Spec, err)
	}
	slice, err := r.client.DiscoveryV1().EndpointSlices("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil || len(slice.Endpoints) != 1 || *slice.Ports[0].Port != svc.Spec.Ports[0].TargetPort.IntVal {
		t.Errorf("its EndpointSlice is %+v, %v", slice, err)
	}
	if _, err := core.Endpoints("default").Get(ctx, "kubernetes", metav1.GetOptions{}); err != nil { // old clients read it
		t.Error(err)
	}
	cm, err := core.ConfigMaps("kube-system").Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil || !strings.HasPrefix(cm.Data["client-ca-file"], "-----BEGIN CERTIFICATE-----") {
		t.Errorf("extension-apiserver-authentication is %+v, %v", cm, err)
	}
	if cidr, err := r.client.NetworkingV1().ServiceCIDRs().Get(ctx, "kubernetes", metav1.GetOptions{}); err != nil || cidr.Spec.CIDRs[0] != "10.0.0.0/24" {
		t.Errorf("the ServiceCIDR is %+v, %v", cidr, err)
	}
	made, err := core.Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil || !strings.HasPrefix(made.Spec.ClusterIP, "10.0.0.") {
		t.Fatalf("a new Service is %+v, %v", made, err)
	}
	ip, err := r.client.NetworkingV1().IPAddresses().Get(ctx, made.Spec.ClusterIP, metav1.GetOptions{})
	if err != nil || ip.Spec.ParentRef.Name != "web" {
		t.Errorf("its IPAddress is %+v, %v", ip, err)
	}
	if level, err := r.client.FlowcontrolV1().PriorityLevelConfigurations().Get(ctx, "exempt", metav1.GetOptions{}); err != nil || level.Spec.Exempt == nil {
		t.Errorf("the priority level exempt is %+v, %v", level, err)
	}
	if schema, err := r.client.FlowcontrolV1().FlowSchemas().Get(ctx, "catch-all", metav1.GetOptions{}); err != nil || schema.Spec.PriorityLevelConfiguration.Name != "catch-all" {
		t.Errorf("the FlowSchema catch-all is %+v, %v", schema, err)
	}
	checkAPIServices(t, r.client.Discovery().RESTClient())
	if err := core.Services("default").Delete(ctx, "kubernetes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	dbtest.Await(t, "the Service kubernetes returns", func() bool {
		again, err := core.Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		return err == nil && again.UID != svc.UID && again.Spec.ClusterIP == "10.0.0.1"
	})
	r.stop()
}

// checkAPIServices reads the APIServices and fails to write them.
func checkAPIServices(t *testing.T, c rest.Interface) {
	t.Helper()
	const path = "/apis/apiregistration.k8s.io/v1/apiservices"
	text, err := c.Get().AbsPath(path + "/v1.apps").DoRaw(t.Context())
	if err != nil || gjson.GetBytes(text, "status.conditions.0.reason").String() != "Local" {
		t.Errorf("v1.apps is %s, %v", text, err)
	}
	text, err = c.Get().AbsPath(path).DoRaw(t.Context())
	if names := gjson.GetBytes(text, "items.#.metadata.name").String(); err != nil || !strings.Contains(names, `"v1."`) || !strings.Contains(names, `"v1.apiregistration.k8s.io"`) {
		t.Errorf("the APIServices are %s, %v", names, err)
	}
	if err := c.Delete().AbsPath(path + "/v1.apps").Do(t.Context()).Error(); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a delete answered %v", err)
	}
	if err := c.Post().AbsPath(path).Body([]byte(`{}`)).Do(t.Context()).Error(); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a create answered %v", err)
	}
}
