package builtin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"
)

const (
	claim = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c, namespace: d}\n" +
		"spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}, {name: any, firstAvailable: [{name: big, deviceClassName: b}]}], " +
		"config: [{requests: [any/big], opaque: {driver: gpu.example.com, parameters: {a: b}}}]}}\n"
	flowSchema = "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: FlowSchema\nmetadata: {name: f}\nspec: {priorityLevelConfiguration: {name: low}, " +
		"rules: [{subjects: [{kind: Group, group: {name: g}}], resourceRules: [{verbs: ['*'], apiGroups: [''], resources: [pods], namespaces: ['*']}]}]}\n"
	priorityLevel = "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: PriorityLevelConfiguration\nmetadata: {name: low}\nspec: {type: Limited, limited: {limitResponse: {type: Queue, queuing: {}}}}\n"
	resourceSlice = "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: s}\n" +
		"spec: {driver: gpu.example.com, pool: {name: n1, resourceSliceCount: 1}, nodeName: n1, devices: [{name: gpu-0, taints: [{key: a, effect: NoSchedule}]}]}\n"
	csiDriver = "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: disk.example.com}\nspec: {tokenRequests: [{audience: a}]}\n"
	csiNode   = "apiVersion: storage.k8s.io/v1\nkind: CSINode\nmetadata: {name: n1}\nspec: {drivers: [{name: disk.example.com, nodeID: i-1, topologyKeys: [zone]}]}\n"
)

// clusterObjects are correct objects of the kinds that nodes, drivers and the control plane use, with
// their row in a table and the errors of edits.
var clusterObjects = []struct {
	manifest, row string
	edits         [][3]string // old, new, errors
}{
	{csiDriver, "disk.example.com ; true ; false ; false ; a ; false ; Persistent ; 2m", [][3]string{
		{"spec: {", "spec: {fsGroupPolicy: Odd, volumeLifecycleModes: [Odd], nodeAllocatableUpdatePeriodSeconds: 9, ",
			"spec.fsGroupPolicy: Unsupported value, spec.nodeAllocatableUpdatePeriodSeconds: Invalid value, spec.volumeLifecycleModes: Unsupported value"},
		{"[{audience: a}]", "[{audience: a}, {audience: a, expirationSeconds: 60}]", "spec.tokenRequests[1].audience: Duplicate value, spec.tokenRequests[1].expirationSeconds: Invalid value"},
		{"tokenRequests: [{audience: a}]", "serviceAccountTokenInSecrets: true", "spec.serviceAccountTokenInSecrets: Invalid value"},
	}},
	{csiNode, "n1 ; 1 ; 2m", [][3]string{
		{"nodeID: i-1, topologyKeys: [zone]", "topologyKeys: [zone, zone, '']", "spec.drivers[0].nodeID: Required value, spec.drivers[0]: Duplicate value, spec.drivers[0]: Required value"},
		{"drivers: [", "drivers: [{name: disk.example.com, nodeID: i-2, allocatable: {count: -1}}, ", "spec.drivers[0].allocatable.count: Invalid value, spec.drivers[1].name: Duplicate value"},
	}},
	{"apiVersion: storage.k8s.io/v1\nkind: CSIStorageCapacity\nmetadata: {name: c, namespace: d}\nstorageClassName: fast\ncapacity: 1Gi\n", "c ; fast ; 1Gi", [][3]string{
		{"capacity: 1Gi", "capacity: -1", "capacity: Invalid value"},
		{"fast", "A_B", "storageClassName: Invalid value"},
	}},
	{"apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\nmetadata: {name: a}\nspec: {attacher: disk.example.com, nodeName: n1, source: {persistentVolumeName: v}}\n", "a ; disk.example.com ; v ; n1 ; false ; 2m", [][3]string{
		{"persistentVolumeName: v", "", "spec.source: Required value"},
		{"persistentVolumeName: v", "persistentVolumeName: v, inlineVolumeSpec: {}", "spec.source: Forbidden"},
		{"attacher: disk.example.com, ", "", "spec.attacher: Required value"},
	}},
	{"apiVersion: storage.k8s.io/v1\nkind: VolumeAttributesClass\nmetadata: {name: c}\ndriverName: disk.example.com\nparameters: {iops: '1'}\n", "c ; disk.example.com ; 2m", [][3]string{
		{"iops: '1'", "", "parameters: Required value"},
		{"driverName: disk.example.com\n", "", "driverName: Required value"},
	}},
	{"apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: i, annotations: {ingressclass.kubernetes.io/is-default-class: 'true'}}\nspec: {controller: example.com/c, parameters: {apiGroup: x.io, kind: P, name: p}}\n",
		"i (default) ; example.com/c ; P.x.io/p ; 2m", [][3]string{
			{"example.com/c", "c", "spec.controller: Invalid value"},
			{"name: p}", "scope: Namespace}", "spec.parameters.name: Required value, spec.parameters.namespace: Required value"},
			{"name: p}", "name: p, namespace: d}", "spec.parameters.namespace: Forbidden"},
		}},
	{"apiVersion: networking.k8s.io/v1\nkind: IPAddress\nmetadata: {name: 10.0.0.1}\nspec: {parentRef: {resource: services, namespace: d, name: web}}\n", "10.0.0.1 ; services/d/web ; 2m", [][3]string{
		{"name: 10.0.0.1", "name: 10.0.0.01", "metadata.name: Invalid value"},
		{"parentRef: {resource: services, namespace: d, name: web}", "", "spec.parentRef: Required value"},
		{"resource: services, ", "", "spec.parentRef.resource: Required value"},
	}},
	{"apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: s}\nspec: {cidrs: [10.0.0.0/24, 'fd00::/120']}\n", "s ; 10.0.0.0/24,fd00::/120 ; 2m", [][3]string{
		{"'fd00::/120'", "10.1.0.0/24", "spec.cidrs: Invalid value"},
		{"10.0.0.0/24, 'fd00::/120'", "", "spec.cidrs: Required value"},
		{"10.0.0.0/24", "10.0.0.1/24", "spec.cidrs[0]: Invalid value"},
	}},
	{"apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: r}\nhandler: runc\noverhead: {podFixed: {cpu: 1}}\n", "r ; runc ; 2m", [][3]string{
		{"handler: runc\n", "", "handler: Required value"},
		{"cpu: 1", "cpu: -1", "overhead.podFixed[cpu]: Invalid value"},
	}},
	{flowSchema, "f ; low ; 1000 ; <none> ; 2m ; ?", [][3]string{
		{"spec: {", "spec: {matchingPrecedence: 1, distinguisherMethod: {type: Odd}, ", "spec.distinguisherMethod.type: Unsupported value, spec.matchingPrecedence: Invalid value"},
		{"name: low", "name: ''", "spec.priorityLevelConfiguration.name: Required value"},
		{"kind: Group", "kind: User", "spec.rules[0].subjects[0].group: Forbidden, spec.rules[0].subjects[0].user: Required value"},
		{"verbs: ['*']", "verbs: ['*', get]", "spec.rules[0].resourceRules[0].verbs: Invalid value"},
	}},
	{priorityLevel, "low ; Limited ; 30 ; 64 ; 8 ; 50 ; 2m", [][3]string{
		{"queuing: {}", "queuing: {handSize: 65}", "spec.limited.limitResponse.queuing.handSize: Invalid value"},
		{"name: low", "name: exempt", "spec.type: Invalid value"},
		{"limited: {", "limited: {lendablePercent: 101, ", "spec.limited.lendablePercent: Invalid value"},
	}},
	{"apiVersion: storagemigration.k8s.io/v1\nkind: StorageVersionMigration\nmetadata: {name: m}\nspec: {resource: {resource: deployments, group: apps}}\n", "m ; deployments.apps ; Unknown", [][3]string{
		{"resource: deployments, ", "", "spec.resource.resource: Required value"},
	}},
	{"apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: c}\nspec: {selectors: [{cel: {expression: 'true'}}], extendedResourceName: example.com/gpu}\n", "c ; 2m", [][3]string{
		{"{cel: {expression: 'true'}}", "{}", "spec.selectors[0].cel: Required value"},
		{"example.com/gpu", "gpu", "spec.extendedResourceName: Invalid value"},
	}},
	{claim, "c ; pending ; 2m", [][3]string{
		{"deviceClassName: gpu.example.com", "allocationMode: All, count: 1", "spec.devices.requests[0].exactly.count: Invalid value, spec.devices.requests[0].exactly.deviceClassName: Required value"},
		{"any/big", "any/small", "spec.devices.config[0].requests[0]: Invalid value"},
		{"name: any", "name: gpu", "spec.devices.config[0].requests[0]: Invalid value, spec.devices.requests[1]: Duplicate value"},
		{"parameters: {a: b}", "", "spec.devices.config[0].opaque.parameters: Required value"},
	}},
	{"apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: t, namespace: d}\nspec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: g}}]}}}\n", "t ; 2m", [][3]string{
		{"exactly: {deviceClassName: g}", "", "spec.spec.devices.requests[0]: Required value"},
	}},
	{resourceSlice, "s ; n1 ; gpu.example.com ; n1 ; 2m", [][3]string{
		{"nodeName: n1, ", "nodeName: n1, allNodes: true, ", "spec: Required value"},
		{"resourceSliceCount: 1", "resourceSliceCount: 0, generation: -1", "spec.pool.generation: Invalid value, spec.pool.resourceSliceCount: Invalid value"},
		{"effect: NoSchedule", "effect: Odd", "spec.devices[0].taints[0].effect: Unsupported value"},
		{"devices: [", "devices: [{name: gpu-0, allNodes: true}, ", "spec.devices[0]: Invalid value, spec.devices[1]: Duplicate value"},
	}},
	{"apiVersion: resource.k8s.io/v1\nkind: DeviceTaintRule\nmetadata: {name: r}\nspec: {taint: {key: a, value: b, effect: NoExecute, timeAdded: '2026-01-01T00:01:00Z'}}\n", "r ; a ; b ; NoExecute ; 60s ; 2m", [][3]string{
		{"key: a", "key: ''", "spec.taint.key: Invalid value"},
	}},
	{"apiVersion: certificates.k8s.io/v1\nkind: ClusterTrustBundle\nmetadata: {name: 'x.io:s:1'}\nspec: {signerName: x.io/s, trustBundle: \"%s\"}\n", "x.io:s:1 ; x.io/s", [][3]string{
		{"x.io:s:1", "other", "metadata.name: Invalid value"},
		{"trustBundle: \"", "trustBundle: \"x", "spec.trustBundle: Invalid value"},
		{"BEGIN CERTIFICATE", "BEGIN KEY", "spec.trustBundle: Invalid value"},
	}},
	{"apiVersion: certificates.k8s.io/v1\nkind: PodCertificateRequest\nmetadata: {name: r, namespace: d}\nspec: {signerName: kubernetes.io/s, podName: p, podUID: a, serviceAccountName: sa, serviceAccountUID: b, nodeName: n1, nodeUID: c, stubPKCS10Request: %s}\n",
		"r ; p ; sa ; n1 ; kubernetes.io/s ; Pending | <none>", [][3]string{
			{"signerName: kubernetes.io/s, ", "signerName: s, ", "spec.signerName: Invalid value"},
			{"podUID: a, ", "maxExpirationSeconds: 100000, ", "spec.maxExpirationSeconds: Invalid value, spec.podUID: Invalid value"},
			{"stubPKCS10Request: ", "stubPKCS10Request: AAAA", "spec.stubPKCS10Request: Invalid value"},
		}},
}

func TestClusterObjects(t *testing.T) {
	t.Parallel()
	issued := newIssued(t)
	for _, tt := range clusterObjects {
		manifest := tt.manifest
		switch {
		case strings.Contains(manifest, "ClusterTrustBundle"):
			manifest = fmt.Sprintf(manifest, strings.ReplaceAll(issued.chain, "\n", `\n`))
		case strings.Contains(manifest, "PodCertificateRequest"):
			manifest = fmt.Sprintf(manifest, base64.StdEncoding.EncodeToString(issued.request))
		}
		obj := read(t, manifest)
		name := obj.GetObjectKind().GroupVersionKind().Kind
		if errs := create(t, obj); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs.ToAggregate())
		}
		obj.(metav1.Object).SetResourceVersion("1")
		s := lookup(t, obj.GetObjectKind().GroupVersionKind()).Strategy
		same := obj.DeepCopyObject()
		s.PrepareForUpdate(background, same, obj)
		if errs := s.ValidateUpdate(background, same, obj); len(errs) > 0 {
			t.Errorf("%s: update without a change: %v", name, errs.ToAggregate())
		}
		if got := cells(t, manifest); got != tt.row {
			t.Errorf("%s: row is\n%s, want\n%s", name, got, tt.row)
		}
		for _, e := range tt.edits {
			got := strings.Join(brief(create(t, read(t, edit(t, manifest, e[0], e[1])))), ", ")
			if got != e[2] {
				t.Errorf("%s with %q: got %s, want %s", name, e[1], got, e[2])
			}
		}
	}
}

// TestClusterFieldsAreImmutable updates fields that must not change.
func TestClusterFieldsAreImmutable(t *testing.T) {
	t.Parallel()
	for _, tt := range [][4]string{
		{csiDriver, "spec: {", "spec: {attachRequired: false, ", "spec.attachedRequired: Invalid value"},
		{csiNode, "nodeID: i-1", "nodeID: i-2", "spec.drivers: Invalid value"},
		{clusterObjects[2].manifest, "fast", "slow", "storageClassName: Invalid value"},
		{clusterObjects[3].manifest, "nodeName: n1", "nodeName: n2", "spec: Invalid value"},
		{clusterObjects[4].manifest, "'1'", "'2'", "parameters: Forbidden"},
		{clusterObjects[5].manifest, "example.com/c", "example.com/d", "spec.controller: Invalid value"},
		{clusterObjects[6].manifest, "namespace: d", "namespace: e", "spec.parentRef: Invalid value"},
		{clusterObjects[7].manifest, ", 'fd00::/120'", "", "spec.cidrs: Invalid value"},
		{clusterObjects[8].manifest, "runc", "kata", "handler: Invalid value"},
		{clusterObjects[11].manifest, "deployments", "replicasets", "spec: Invalid value"},
		{claim, "name: gpu,", "name: tpu,", "spec: Invalid value"},
		{resourceSlice, "nodeName: n1", "nodeName: n2", "spec.nodeName: Invalid value"},
	} {
		old, obj := read(t, tt[0]), read(t, edit(t, tt[0], tt[1], tt[2]))
		for _, o := range []any{old, obj} {
			o.(metav1.Object).SetResourceVersion("1")
		}
		s := lookup(t, old.GetObjectKind().GroupVersionKind()).Strategy
		s.PrepareForUpdate(background, obj, old)
		if got := strings.Join(brief(s.ValidateUpdate(background, obj, old)), ", "); got != tt[3] {
			t.Errorf("%q: got %s, want %s", tt[2], got, tt[3])
		}
	}
}

func TestResourceClaimStatus(t *testing.T) {
	t.Parallel()
	old := read(t, claim).(*resourcev1.ResourceClaim)
	status := lookup(t, old.GetObjectKind().GroupVersionKind()).Status
	old.ResourceVersion = "1"
	obj := old.DeepCopy()
	obj.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "u"}}
	want := []string{"status.reservedFor: Forbidden"}
	if diff := cmp.Diff(want, brief(status.ValidateUpdate(background, obj, old))); diff != "" {
		t.Errorf("reserved without an allocation: %s", diff)
	}
	obj.Status.Allocation = &resourcev1.AllocationResult{}
	if errs := status.ValidateUpdate(background, obj, old); len(errs) > 0 {
		t.Errorf("allocated and reserved: %v", errs)
	}
	again := obj.DeepCopy()
	again.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{{Request: "gpu"}}
	if diff := cmp.Diff([]string{"status.allocation: Invalid value"}, brief(status.ValidateUpdate(background, again, obj))); diff != "" {
		t.Errorf("another allocation: %s", diff)
	}
}

// TestPodCertificateStatus: a certificate is issued for the key of the request, once.
func TestPodCertificateStatus(t *testing.T) {
	t.Parallel()
	issued, other := newIssued(t), newIssued(t)
	old := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "d", ResourceVersion: "1"}}
	old.Spec.StubPKCS10Request = issued.request
	status := lookup(t, certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequest")).Status
	end := func(condition, chain string) *certificatesv1.PodCertificateRequest {
		r := old.DeepCopy()
		r.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: "R", LastTransitionTime: metav1.Now()}}
		r.Status.CertificateChain = chain
		if chain != "" {
			r.Status.NotBefore, r.Status.NotAfter, r.Status.BeginRefreshAt = &issued.notBefore, &issued.notAfter, &issued.notAfter
		}
		return r
	}
	for _, tt := range []struct {
		name     string
		obj, old *certificatesv1.PodCertificateRequest
		want     string
	}{
		{"issued", end("Issued", issued.chain), old, ""},
		{"denied", end("Denied", ""), old, ""},
		{"for another key", end("Issued", other.chain), old, "status.certificateChain: Invalid value"},
		{"denied with a certificate", end("Denied", issued.chain), old, "status: Invalid value"},
		{"a second end", end("Failed", ""), end("Denied", ""), "status: Invalid value"},
		{"an unknown end", end("Odd", ""), old, "status.conditions[0].type: Unsupported value"},
	} {
		if got := strings.Join(brief(status.ValidateUpdate(background, tt.obj, tt.old)), ", "); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// issuedCertificate is a CA certificate and a request, both for one key.
type issuedCertificate struct {
	request             []byte
	chain               string
	notBefore, notAfter metav1.Time
}

func newIssued(t *testing.T) issuedCertificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now().Truncate(time.Second)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: begin, NotAfter: begin.Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	chain := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return issuedCertificate{request, chain, metav1.NewTime(begin), metav1.NewTime(begin.Add(time.Hour))}
}
