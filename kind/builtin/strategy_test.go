package builtin

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
)

var background = context.Background()

// generations are the kinds whose generation Kubernetes starts at 1. It starts that of a
// CSIDriver at 0; this server does not distinguish it.
var generations = map[string]bool{
	"Pod": true, "ReplicationController": true, "PodTemplate": true, "Deployment": true, "ReplicaSet": true,
	"StatefulSet": true, "DaemonSet": true, "Job": true, "CronJob": true, "EndpointSlice": true,
	"PodDisruptionBudget": true, "Ingress": true, "NetworkPolicy": true, "PriorityClass": true, "HorizontalPodAutoscaler": true,
	"IngressClass": true, "FlowSchema": true, "PriorityLevelConfiguration": true, "DeviceClass": true,
	"ResourceSlice": true, "DeviceTaintRule": true,
	"MutatingWebhookConfiguration": true, "ValidatingWebhookConfiguration": true,
	"MutatingAdmissionPolicy": true, "MutatingAdmissionPolicyBinding": true,
	"ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true,
}

func TestGenerationOnCreate(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v *kind.Version) {
		obj := full(t, v.GVK)
		accessor, err := meta.Accessor(obj)
		if err != nil {
			t.Fatal(err)
		}
		accessor.SetGeneration(7)
		v.Strategy.Create(background, obj)
		want := int64(7) // what the client sent is kept
		if generations[v.GVK.Kind] {
			want = 1
		}
		if got := accessor.GetGeneration(); got != want {
			t.Errorf("generation %d, want %d", got, want)
		}
	})
}

// TestStatusBelongsToItsEndpoint checks, for every kind with a status, that
// the object's own endpoint keeps the status, that /status keeps the spec, and
// that the generation does not move with the status.
func TestStatusBelongsToItsEndpoint(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v *kind.Version) {
		if v.Status == nil {
			return
		}
		changed, stored := full(t, v.GVK), asServed(t, v, v.New())
		changed.(metav1.Object).SetGeneration(0) // as lifecycle.BeforeUpdate does
		v.Strategy.Update(background, changed, stored)
		if got, want := at(t, changed, "status"), at(t, stored, "status"); got != want {
			t.Errorf("update wrote the status: %.200s", got)
		}
		if got := at(t, changed, "metadata/generation"); (got == "1") != generations[v.GVK.Kind] {
			t.Errorf("update with another spec left generation at %s", got)
		}
		changed = full(t, v.GVK)
		changed.(metav1.Object).SetGeneration(0)
		v.Status.Update(background, changed, stored)
		if got, want := at(t, changed, "spec"), at(t, stored, "spec"); got != want {
			t.Errorf("/status wrote the spec: %.200s", got)
		}
		if at(t, changed, "status") == at(t, stored, "status") && v.GVK.Kind != "CSINode" { // all of its fields are alpha
			t.Errorf("/status did not write the status")
		}
		if got := at(t, changed, "metadata/generation"); got != "-" {
			t.Errorf("/status moved the generation to %s", got)
		}
		if v.Status.AllowCreateOnUpdate(background) {
			t.Errorf("/status creates objects")
		}
	})
}

func TestGenerationMoves(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, manifest string
		change         func(runtime.Object)
		want           int64
	}{
		{"deployment: nothing", aDeployment, func(runtime.Object) {}, 3},
		{"deployment: labels", aDeployment, func(o runtime.Object) { o.(*appsv1.Deployment).Labels = map[string]string{"a": "b"} }, 3},
		{"deployment: annotations", aDeployment, func(o runtime.Object) { o.(*appsv1.Deployment).Annotations = map[string]string{"a": "b"} }, 4},
		{"deployment: replicas", aDeployment, func(o runtime.Object) { *o.(*appsv1.Deployment).Spec.Replicas = 5 }, 4},
		{"pod: annotations", aPod, func(o runtime.Object) { o.(*corev1.Pod).Annotations = map[string]string{"a": "b"} }, 3},
		{"pod: image", aPod, func(o runtime.Object) { o.(*corev1.Pod).Spec.Containers[0].Image = "other" }, 4},
		{"job: parallelism", aJob, func(o runtime.Object) { *o.(*batchv1.Job).Spec.Parallelism = 2 }, 4},
		{"configmap: data", "apiVersion: v1\nkind: ConfigMap\n", func(o runtime.Object) { o.(*corev1.ConfigMap).Data = map[string]string{"a": "b"} }, 3},
		{"endpointslice: ports", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n",
			func(o runtime.Object) { o.(metav1.Object).SetLabels(map[string]string{"a": "b"}) }, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			old := read(t, tt.manifest)
			old.(metav1.Object).SetGeneration(3)
			obj := old.DeepCopyObject()
			tt.change(obj)
			lookup(t, old.GetObjectKind().GroupVersionKind()).Strategy.Update(background, obj, old)
			if got := obj.(metav1.Object).GetGeneration(); got != tt.want {
				t.Errorf("generation %d, want %d", got, tt.want)
			}
		})
	}
}

func TestResetFields(t *testing.T) {
	t.Parallel()
	v := lookup(t, appsv1.SchemeGroupVersion.WithKind("Deployment"))
	if got := v.ResetFields["apps/v1"]; !got.Has(fieldpath.MakePathOrDie("status")) || got.Size() != 1 {
		t.Errorf("reset fields: %v", got)
	}
	status := v.StatusResetFields["apps/v1"]
	for _, path := range []fieldpath.Path{fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata", "labels")} {
		if !status.Has(path) {
			t.Errorf("/status does not reset %v", path)
		}
	}
	if got := lookup(t, corev1.SchemeGroupVersion.WithKind("ConfigMap")).ResetFields; got != nil {
		t.Errorf("a ConfigMap resets %v", got)
	}
}

func TestPodCreate(t *testing.T) {
	t.Parallel()
	v := lookup(t, corev1.SchemeGroupVersion.WithKind("Pod"))
	obj := read(t, aPod).(*corev1.Pod)
	obj.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"}
	obj.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}}
	v.Strategy.Create(background, obj)
	if obj.Status.Phase != corev1.PodPending || obj.Status.PodIP != "" || obj.Status.QOSClass != corev1.PodQOSBestEffort {
		t.Errorf("status is %+v", obj.Status)
	}
	if len(obj.Status.Conditions) != 1 || obj.Status.Conditions[0].Reason != corev1.PodReasonSchedulingGated {
		t.Errorf("conditions are %+v", obj.Status.Conditions)
	}
}

func TestPodStatusKeepsOwners(t *testing.T) {
	t.Parallel()
	v := lookup(t, corev1.SchemeGroupVersion.WithKind("Pod"))
	old := read(t, aPod).(*corev1.Pod)
	old.OwnerReferences = []metav1.OwnerReference{{UID: "1"}}
	old.Status.QOSClass = corev1.PodQOSGuaranteed
	obj := old.DeepCopy()
	obj.OwnerReferences = nil
	obj.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"}
	v.Status.Update(background, obj, old)
	if len(obj.OwnerReferences) != 1 || obj.Status.QOSClass != corev1.PodQOSGuaranteed {
		t.Errorf("owners %v, class %q", obj.OwnerReferences, obj.Status.QOSClass)
	}
	if len(obj.Status.PodIPs) != 1 || obj.Status.PodIPs[0].IP != "10.0.0.1" {
		t.Errorf("podIPs are %v", obj.Status.PodIPs)
	}
}

func TestPodGrace(t *testing.T) {
	t.Parallel()
	n := func(i int64) *int64 { return &i }
	tests := []struct {
		name, body string
		requested  *int64
		want       int64
	}{
		{"the pod's own period", `{"spec":{"nodeName":"n","terminationGracePeriodSeconds":12}}`, nil, 12},
		{"the default period", `{"spec":{"nodeName":"n"}}`, nil, 30},
		{"a request wins", `{"spec":{"nodeName":"n","terminationGracePeriodSeconds":12}}`, n(5), 5},
		{"a longer request wins too", `{"spec":{"nodeName":"n","terminationGracePeriodSeconds":12}}`, n(50), 50},
		{"zero is zero", `{"spec":{"nodeName":"n"}}`, n(0), 0},
		{"a negative request is passed on", `{"spec":{"nodeName":"n"}}`, n(-4), -4},
		{"no node, no wait", `{"spec":{"terminationGracePeriodSeconds":12}}`, n(5), 0},
		{"succeeded, no wait", `{"spec":{"nodeName":"n"},"status":{"phase":"Succeeded"}}`, nil, 0},
		{"failed, no wait", `{"spec":{"nodeName":"n"},"status":{"phase":"Failed"}}`, n(5), 0},
		{"unreadable, no wait", `{`, n(5), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, graceful := podDef().rules.Graceful([]byte(tt.body), tt.requested)
			if got != tt.want || !graceful {
				t.Errorf("got %d, %v; want %d, true", got, graceful, tt.want)
			}
		})
	}
}

func TestDeletionRules(t *testing.T) {
	t.Parallel()
	orphans := map[string]bool{"jobs.batch": true, "replicationcontrollers": true}
	for _, k := range Kinds() {
		want := metav1.DeletionPropagation("")
		if orphans[k.Storage] {
			want = metav1.DeletePropagationOrphan
		}
		if k.Rules.DefaultPolicy != want {
			t.Errorf("%s: default policy %q, want %q", k.Storage, k.Rules.DefaultPolicy, want)
		}
		if (k.Rules.Graceful != nil) != (k.Storage == "pods") {
			t.Errorf("%s: graceful rule set: %v", k.Storage, k.Rules.Graceful != nil)
		}
	}
}

func TestNamespaceLifecycle(t *testing.T) {
	t.Parallel()
	v := lookup(t, namespaceGVK)
	ns := read(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\nspec: {finalizers: [example.com/x]}\nstatus: {phase: Terminating}\n").(*corev1.Namespace)
	v.Strategy.Create(background, ns)
	if ns.Status.Phase != corev1.NamespaceActive || len(ns.Spec.Finalizers) != 2 || ns.Spec.Finalizers[1] != corev1.FinalizerKubernetes {
		t.Fatalf("created as %+v", ns)
	}
	body, err := v.Encode(ns)
	if err != nil {
		t.Fatal(err)
	}
	if v.Kind.Rules.Removable(body) {
		t.Errorf("removable with finalizers in its spec")
	}
	body, err = v.Kind.Rules.MarkDeleting(body, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	marked, err := v.Decode(body, "1")
	if err != nil {
		t.Fatal(err)
	}
	if got := marked.(*corev1.Namespace); got.Status.Phase != corev1.NamespaceTerminating || len(got.Spec.Finalizers) != 2 {
		t.Errorf("marked as %+v", got)
	}
	if _, err := v.Kind.Rules.MarkDeleting([]byte("{"), time.Now()); err == nil {
		t.Errorf("an unreadable body was marked")
	}
	if v.Kind.Rules.Removable([]byte("{")) {
		t.Errorf("an unreadable body is removable")
	}

	emptied := ns.DeepCopy()
	emptied.Spec.Finalizers, emptied.Status.Phase = nil, corev1.NamespaceTerminating
	for name, tt := range map[string]struct {
		strategy lifecycle.Strategy
		left     int
	}{"update": {v.Strategy, 2}, "status": {v.Status, 2}, "finalize": {NamespaceFinalizeStrategy(), 0}} {
		obj := emptied.DeepCopy()
		tt.strategy.Update(background, obj, ns)
		if len(obj.Spec.Finalizers) != tt.left {
			t.Errorf("%s leaves %d finalizers, want %d", name, len(obj.Spec.Finalizers), tt.left)
		}
	}
	removable, err := v.Encode(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
	if err != nil {
		t.Fatal(err)
	}
	if !v.Kind.Rules.Removable(removable) {
		t.Errorf("not removable without finalizers")
	}
}

func TestGeneratedNamespaceGetsItsLabel(t *testing.T) {
	t.Parallel()
	ns := read(t, "apiVersion: v1\nkind: Namespace\nmetadata: {generateName: team-}\n").(*corev1.Namespace)
	ns.Name = "team-x7"
	lookup(t, namespaceGVK).Strategy.Create(background, ns)
	if ns.Labels[corev1.LabelMetadataName] != "team-x7" {
		t.Errorf("labels are %v", ns.Labels)
	}
}

func TestJobSelectsItsOwnPods(t *testing.T) {
	t.Parallel()
	v := lookup(t, batchv1.SchemeGroupVersion.WithKind("Job"))
	obj := read(t, aJob).(*batchv1.Job)
	_, errs := v.Strategy.Create(background, obj)
	for _, labels := range []map[string]string{obj.Spec.Template.Labels, obj.Labels} {
		for label, want := range map[string]string{
			"job-name": "once", "batch.kubernetes.io/job-name": "once",
			"controller-uid": "0000-1", "batch.kubernetes.io/controller-uid": "0000-1",
		} {
			if labels[label] != want {
				t.Errorf("label %s is %q, want %q", label, labels[label], want)
			}
		}
	}
	if got := obj.Spec.Selector.MatchLabels; len(got) != 1 || got["batch.kubernetes.io/controller-uid"] != "0000-1" {
		t.Errorf("selector is %v", got)
	}
	if len(errs) > 0 {
		t.Errorf("invalid: %v", errs)
	}

	manual := read(t, aJob).(*batchv1.Job)
	*manual.Spec.ManualSelector = true
	v.Strategy.Create(background, manual)
	if manual.Spec.Selector != nil || len(manual.Spec.Template.Labels) != 0 {
		t.Errorf("a manual selector was generated")
	}
}

func TestSecretUpdateMergesStringData(t *testing.T) {
	t.Parallel()
	v := lookup(t, schema.GroupVersionKind{Version: "v1", Kind: "Secret"})
	old := &corev1.Secret{Type: corev1.SecretTypeOpaque}
	obj := &corev1.Secret{StringData: map[string]string{"a": "b"}}
	v.Strategy.Update(background, obj, old)
	if obj.Type != old.Type || string(obj.Data["a"]) != "b" || len(obj.StringData) > 0 {
		t.Errorf("became %+v", obj)
	}
}

func TestServiceKeepsItsAddress(t *testing.T) {
	t.Parallel()
	v := lookup(t, schema.GroupVersionKind{Version: "v1", Kind: "Service"})
	old := read(t, "apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: d}\nspec: {clusterIP: 10.0.0.9, ports: [{port: 1}]}\n").(*corev1.Service)
	v.Strategy.Create(background, old)
	if len(old.Spec.ClusterIPs) != 1 {
		t.Fatalf("clusterIPs are %v", old.Spec.ClusterIPs)
	}
	obj := old.DeepCopy()
	obj.Spec.ClusterIP, obj.Spec.ClusterIPs = "", nil
	v.Strategy.Update(background, obj, old)
	if obj.Spec.ClusterIP != "10.0.0.9" {
		t.Errorf("clusterIP became %q", obj.Spec.ClusterIP)
	}
}

func TestEventsAreTwoViews(t *testing.T) {
	t.Parallel()
	core := lookup(t, corev1.SchemeGroupVersion.WithKind("Event"))
	other := lookup(t, schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"})
	if core.Kind.Storage != other.Kind.Storage || !core.Raw || other.Raw {
		t.Fatalf("storage %q and %q, raw %v and %v", core.Kind.Storage, other.Kind.Storage, core.Raw, other.Raw)
	}
	obj := full(t, other.GVK)
	body, err := other.Encode(obj)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := core.Decode(body, "1")
	if err != nil {
		t.Fatal(err)
	}
	for mine, theirs := range map[string]string{
		"note": "message", "regarding": "involvedObject", "deprecatedSource": "source", "deprecatedCount": "count",
		"reportingController": "reportingComponent", "series": "series", "action": "action", "eventTime": "eventTime",
	} {
		if a, b := at(t, obj, mine), at(t, stored, theirs); a != b || a == "-" {
			t.Errorf("%s is %s, %s is %s", mine, a, theirs, b)
		}
	}
	if _, err := other.Encode(&corev1.Pod{}); err == nil {
		t.Errorf("a Pod was encoded as an Event")
	}
}
