package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/exeunt/exeunt/kind"
)

// each runs a subtest for the one version of every built-in kind.
func each(t *testing.T, f func(t *testing.T, v *kind.Version)) {
	t.Helper()
	for _, k := range Kinds() {
		for _, v := range k.Versions {
			t.Run(v.GVK.GroupVersion().String()+"/"+v.GVK.Kind, func(t *testing.T) {
				t.Parallel()
				f(t, v)
			})
		}
	}
}

// lookup finds the version that serves a group, version and kind.
func lookup(t *testing.T, gvk schema.GroupVersionKind) *kind.Version {
	t.Helper()
	for _, k := range Kinds() {
		for _, v := range k.Versions {
			if v.GVK == gvk {
				return v
			}
		}
	}
	t.Fatalf("no kind %s", gvk)
	return nil
}

// read decodes a manifest as a request is decoded, with defaults.
func read(t *testing.T, manifest string) runtime.Object {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatalf("manifest: %v", err)
	}
	var m metav1.TypeMeta
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatalf("manifest: %v", err)
	}
	obj, _, err := Codecs().UniversalDecoder(m.GroupVersionKind().GroupVersion()).Decode(data, nil, nil)
	if err != nil {
		t.Fatalf("decode manifest: %v", err)
	}
	obj.GetObjectKind().SetGroupVersionKind(m.GroupVersionKind())
	return obj
}

// full is an object with a value in every field.
func full(t *testing.T, gvk schema.GroupVersionKind) runtime.Object {
	t.Helper()
	obj, err := roundtrip.CompatibilityTestObject(Scheme(), gvk, fillers)
	if err != nil {
		t.Fatalf("fill %s: %v", gvk, err)
	}
	return obj
}

// asServed returns the object as a view of another version shows it. The view completes it
// with defaults and annotations. Other versions show an object as it is.
func asServed(t *testing.T, v *kind.Version, obj runtime.Object) runtime.Object {
	t.Helper()
	if v.Kind.Stored() == v {
		return obj
	}
	for _, gvk := range []schema.GroupVersionKind{v.Kind.Stored().GVK, v.GVK} {
		var err error
		if obj, err = convert(obj, gvk); err != nil {
			t.Fatal(err)
		}
	}
	return obj
}

// fillers fill the types whose fields depend on each other.
var fillers = map[reflect.Type]roundtrip.FillFunc{
	reflect.TypeFor[*metav1.TypeMeta](): func(_ string, _ int, obj any) { *obj.(*metav1.TypeMeta) = metav1.TypeMeta{} },
	reflect.TypeFor[*metav1.Time](): func(_ string, i int, obj any) {
		obj.(*metav1.Time).Time = time.Date(2000+i, 1, 1, 1, 1, 1, 0, time.UTC)
	},
	reflect.TypeFor[*metav1.MicroTime](): func(_ string, i int, obj any) {
		obj.(*metav1.MicroTime).Time = time.Date(2000+i, 1, 1, 1, 1, 1, i*1000, time.UTC)
	},
	reflect.TypeFor[*metav1.FieldsV1](): func(_ string, _ int, obj any) { obj.(*metav1.FieldsV1).SetRawString("{}") },
	reflect.TypeFor[*intstr.IntOrString](): func(s string, _ int, obj any) {
		*obj.(*intstr.IntOrString) = intstr.FromString(s)
	},
	reflect.TypeFor[*runtime.RawExtension](): func(_ string, _ int, obj any) {
		obj.(*runtime.RawExtension).Raw = []byte(`{"apiVersion":"example.com/v1","kind":"Thing"}`)
	},
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("%s differs (-want +got):\n%.2000s", what, cmp.Diff(want, got))
	}
}

func TestKindsAreComplete(t *testing.T) {
	t.Parallel()
	seen := map[schema.GroupVersionResource]bool{}
	for _, k := range Kinds() {
		for _, v := range k.Versions {
			if seen[v.Resource()] {
				t.Errorf("%s is declared twice", v.Resource())
			}
			seen[v.Resource()] = true
		}
	}
	if len(seen) != 69 {
		t.Errorf("got %d kinds, want 69", len(seen))
	}
	each(t, func(t *testing.T, v *kind.Version) {
		if v.Kind.Plural == "" || v.Kind.Singular == "" || v.Kind.Storage == "" || v.Strategy == nil || v.Wire == nil || (v.Table == nil) != v.Kind.Ephemeral {
			t.Errorf("incomplete: %+v", v.Kind)
		}
		if v.Strategy.NamespaceScoped() != v.Kind.Namespaced {
			t.Errorf("strategy and kind disagree about the namespace")
		}
		if got := v.New().GetObjectKind(); got == nil {
			t.Errorf("New makes nothing")
		}
		if (v.NewList == nil) != v.Kind.Ephemeral {
			t.Errorf("NewList set: %v, ephemeral: %v", v.NewList != nil, v.Kind.Ephemeral)
		}
		if v.NewList != nil && !meta.IsListType(v.NewList()) {
			t.Errorf("NewList makes a %T", v.NewList())
		}
		if (v.Status == nil) != (v.StatusResetFields == nil) {
			t.Errorf("/status and its reset fields disagree")
		}
	})
}

// TestNames compares what clients find in discovery with Kubernetes.
func TestNames(t *testing.T) {
	t.Parallel()
	type row struct {
		short, category, scope, subresources, write string
	}
	got := map[string]row{}
	for _, k := range Kinds() {
		v := k.Versions[0]
		r := row{scope: "cluster"}
		if len(k.ShortNames) > 0 {
			r.short = k.ShortNames[0]
		}
		if len(k.Categories) > 0 {
			r.category = k.Categories[0]
		}
		if k.Namespaced {
			r.scope = "namespace"
		}
		if v.Status != nil {
			r.subresources = "status"
		}
		if v.Scale != nil {
			r.subresources += "+scale"
		}
		if v.Strategy.AllowCreateOnUpdate(context.Background()) {
			r.write = "create-on-update"
		}
		if !v.Strategy.AllowUnconditionalUpdate(context.Background()) {
			r.write += "+conditional"
		}
		got[k.Storage+"/"+v.GVK.Version+"/"+k.Group] = r
	}
	want := map[string]row{
		"namespaces/v1/":                   {"ns", "", "cluster", "status", ""},
		"pods/v1/":                         {"po", "all", "namespace", "status", ""},
		"configmaps/v1/":                   {"cm", "", "namespace", "", ""},
		"bindings/v1/":                     {"", "", "namespace", "", ""},
		"secrets/v1/":                      {"", "", "namespace", "", ""},
		"serviceaccounts/v1/":              {"sa", "", "namespace", "", ""},
		"events/v1/":                       {"ev", "", "namespace", "", "create-on-update"},
		"events/v1/events.k8s.io":          {"ev", "", "namespace", "", "create-on-update"},
		"services/v1/":                     {"svc", "all", "namespace", "status", "create-on-update"},
		"endpoints/v1/":                    {"ep", "", "namespace", "", "create-on-update"},
		"nodes/v1/":                        {"no", "", "cluster", "status", ""},
		"replicationcontrollers/v1/":       {"rc", "all", "namespace", "status+scale", ""},
		"persistentvolumes/v1/":            {"pv", "", "cluster", "status", ""},
		"persistentvolumeclaims/v1/":       {"pvc", "", "namespace", "status", ""},
		"limitranges/v1/":                  {"limits", "", "namespace", "", "create-on-update"},
		"resourcequotas/v1/":               {"quota", "", "namespace", "status", ""},
		"podtemplates/v1/":                 {"", "", "namespace", "", ""},
		"deployments.apps/v1/apps":         {"deploy", "all", "namespace", "status+scale", ""},
		"replicasets.apps/v1/apps":         {"rs", "all", "namespace", "status+scale", ""},
		"statefulsets.apps/v1/apps":        {"sts", "all", "namespace", "status+scale", ""},
		"daemonsets.apps/v1/apps":          {"ds", "all", "namespace", "status", ""},
		"controllerrevisions.apps/v1/apps": {"", "", "namespace", "", ""},
		"jobs.batch/v1/batch":              {"", "all", "namespace", "status", ""},
		"cronjobs.batch/v1/batch":          {"cj", "all", "namespace", "status", ""},
		"leases.coordination.k8s.io/v1/coordination.k8s.io":                                              {"", "", "namespace", "", "create-on-update+conditional"},
		"endpointslices.discovery.k8s.io/v1/discovery.k8s.io":                                            {"", "", "namespace", "", ""},
		"poddisruptionbudgets.policy/v1/policy":                                                          {"pdb", "", "namespace", "status", "+conditional"},
		"ingresses.networking.k8s.io/v1/networking.k8s.io":                                               {"ing", "", "namespace", "status", ""},
		"networkpolicies.networking.k8s.io/v1/networking.k8s.io":                                         {"netpol", "", "namespace", "", ""},
		"roles.rbac.authorization.k8s.io/v1/rbac.authorization.k8s.io":                                   {"", "", "namespace", "", "create-on-update"},
		"rolebindings.rbac.authorization.k8s.io/v1/rbac.authorization.k8s.io":                            {"", "", "namespace", "", "create-on-update"},
		"clusterroles.rbac.authorization.k8s.io/v1/rbac.authorization.k8s.io":                            {"", "", "cluster", "", "create-on-update"},
		"priorityclasses.scheduling.k8s.io/v1/scheduling.k8s.io":                                         {"pc", "", "cluster", "", ""},
		"storageclasses.storage.k8s.io/v1/storage.k8s.io":                                                {"sc", "", "cluster", "", ""},
		"volumeattributesclasses.storage.k8s.io/v1/storage.k8s.io":                                       {"vac", "", "cluster", "", ""},
		"volumeattachments.storage.k8s.io/v1/storage.k8s.io":                                             {"", "", "cluster", "status", "+conditional"},
		"mutatingadmissionpolicies.admissionregistration.k8s.io/v1/admissionregistration.k8s.io":         {"", "api-extensions", "cluster", "", "+conditional"},
		"mutatingadmissionpolicybindings.admissionregistration.k8s.io/v1/admissionregistration.k8s.io":   {"", "api-extensions", "cluster", "", "+conditional"},
		"mutatingwebhookconfigurations.admissionregistration.k8s.io/v1/admissionregistration.k8s.io":     {"", "api-extensions", "cluster", "", "+conditional"},
		"validatingadmissionpolicies.admissionregistration.k8s.io/v1/admissionregistration.k8s.io":       {"", "api-extensions", "cluster", "status", "+conditional"},
		"validatingadmissionpolicybindings.admissionregistration.k8s.io/v1/admissionregistration.k8s.io": {"", "api-extensions", "cluster", "", "+conditional"},
		"validatingwebhookconfigurations.admissionregistration.k8s.io/v1/admissionregistration.k8s.io":   {"", "api-extensions", "cluster", "", "+conditional"},
		"csinodes.storage.k8s.io/v1/storage.k8s.io":                                                      {"", "", "cluster", "status", "+conditional"},
		"csidrivers.storage.k8s.io/v1/storage.k8s.io":                                                    {"", "", "cluster", "", "+conditional"},
		"csistoragecapacities.storage.k8s.io/v1/storage.k8s.io":                                          {"", "", "namespace", "", "+conditional"},
		"ingressclasses.networking.k8s.io/v1/networking.k8s.io":                                          {"", "", "cluster", "", ""},
		"ipaddresses.networking.k8s.io/v1/networking.k8s.io":                                             {"ip", "", "cluster", "", ""},
		"servicecidrs.networking.k8s.io/v1/networking.k8s.io":                                            {"", "", "cluster", "status", ""},
		"runtimeclasses.node.k8s.io/v1/node.k8s.io":                                                      {"", "", "cluster", "", "create-on-update+conditional"},
		"flowschemas.flowcontrol.apiserver.k8s.io/v1/flowcontrol.apiserver.k8s.io":                       {"", "", "cluster", "status", ""},
		"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io/v1/flowcontrol.apiserver.k8s.io":       {"", "", "cluster", "status", ""},
		"storageversionmigrations.storagemigration.k8s.io/v1/storagemigration.k8s.io":                    {"", "", "cluster", "status", "+conditional"},
		"deviceclasses.resource.k8s.io/v1/resource.k8s.io":                                               {"", "", "cluster", "", ""},
		"resourceclaims.resource.k8s.io/v1/resource.k8s.io":                                              {"", "", "namespace", "status", ""},
		"resourceclaimtemplates.resource.k8s.io/v1/resource.k8s.io":                                      {"", "", "namespace", "", ""},
		"resourceslices.resource.k8s.io/v1/resource.k8s.io":                                              {"", "", "cluster", "", ""},
		"devicetaintrules.resource.k8s.io/v1/resource.k8s.io":                                            {"", "", "cluster", "status", "+conditional"},
		"clustertrustbundles.certificates.k8s.io/v1/certificates.k8s.io":                                 {"", "", "cluster", "", "+conditional"},
		"podcertificaterequests.certificates.k8s.io/v1/certificates.k8s.io":                              {"", "", "namespace", "status", "+conditional"},
		"horizontalpodautoscalers.autoscaling/v2/autoscaling":                                            {"hpa", "all", "namespace", "status", ""},
		"tokenreviews.authentication.k8s.io/v1/authentication.k8s.io":                                    {"", "", "cluster", "", ""},
		"selfsubjectreviews.authentication.k8s.io/v1/authentication.k8s.io":                              {"", "", "cluster", "", ""},
		"subjectaccessreviews.authorization.k8s.io/v1/authorization.k8s.io":                              {"", "", "cluster", "", ""},
		"selfsubjectaccessreviews.authorization.k8s.io/v1/authorization.k8s.io":                          {"", "", "cluster", "", ""},
		"selfsubjectrulesreviews.authorization.k8s.io/v1/authorization.k8s.io":                           {"", "", "cluster", "", ""},
		"certificatesigningrequests.certificates.k8s.io/v1/certificates.k8s.io":                          {"csr", "", "cluster", "status", ""},

		"clusterrolebindings.rbac.authorization.k8s.io/v1/rbac.authorization.k8s.io": {"", "", "cluster", "", "create-on-update"},
		"localsubjectaccessreviews.authorization.k8s.io/v1/authorization.k8s.io":     {"", "", "namespace", "", ""},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("kinds differ (-want +got):\n%s", diff)
	}
}

// TestStoredForm checks that an object survives storing and reading, for every field of every
// kind.
func TestStoredForm(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v *kind.Version) {
		obj := asServed(t, v, full(t, v.GVK))
		accessor, err := meta.Accessor(obj)
		if err != nil {
			t.Fatal(err)
		}
		accessor.SetResourceVersion("42")
		obj.GetObjectKind().SetGroupVersionKind(v.GVK)
		before := obj.DeepCopyObject()
		body, err := v.Encode(obj)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "the object, after Encode,", obj, before)
		got, err := v.Decode(body, "42")
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "Decode(Encode(x))", got, obj)
		again, err := v.Encode(got)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again, body) {
			t.Errorf("Encode(Decode(body)) differs:\n%.500s\n%.500s", again, body)
		}
	})
	each(t, func(t *testing.T, v *kind.Version) {
		if _, err := v.Decode([]byte(`{"metadata":{"name":7}}`), "1"); err == nil {
			t.Errorf("a body that is no %s was decoded", v.GVK.Kind)
		}
	})
}

// TestWireForms encodes and decodes every kind with each serializer.
func TestWireForms(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v *kind.Version) {
		want := full(t, v.GVK)
		defaulted := want.DeepCopyObject()
		Scheme().Default(defaulted)
		defaulted.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		for _, info := range v.Wire.Serializer.SupportedMediaTypes() {
			encoder := v.Wire.Serializer.EncoderForVersion(info.Serializer, v.GVK.GroupVersion())
			var buf bytes.Buffer
			if err := encoder.Encode(want, &buf); err != nil {
				t.Fatalf("%s: %v", info.MediaType, err)
			}
			got, gvk, err := v.Wire.Serializer.DecoderToVersion(info.Serializer, v.GVK.GroupVersion()).Decode(buf.Bytes(), nil, nil)
			if err != nil {
				t.Fatalf("%s: %v", info.MediaType, err)
			}
			if *gvk != v.GVK {
				t.Errorf("%s: read as %s", info.MediaType, gvk)
			}
			got.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
			equal(t, info.MediaType, got, defaulted)
		}
	})
}

func TestListsOnTheWire(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v *kind.Version) {
		if v.NewList == nil {
			return
		}
		list := v.NewList()
		if err := meta.SetList(list, []runtime.Object{v.New(), v.New()}); err != nil {
			t.Fatal(err)
		}
		for _, info := range v.Wire.Serializer.SupportedMediaTypes() {
			var buf bytes.Buffer
			if err := v.Wire.Serializer.EncoderForVersion(info.Serializer, v.GVK.GroupVersion()).Encode(list, &buf); err != nil {
				t.Fatalf("%s: %v", info.MediaType, err)
			}
			got, gvk, err := info.Serializer.Decode(buf.Bytes(), nil, nil)
			if err != nil {
				t.Fatalf("%s: %v", info.MediaType, err)
			}
			if gvk.Kind != v.Kind.ListName || meta.LenList(got) != 2 {
				t.Errorf("%s: got %s with %d items", info.MediaType, gvk, meta.LenList(got))
			}
		}
	})
}

func TestTypeConverterKnowsEveryKind(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v *kind.Version) {
		obj := v.New()
		obj.GetObjectKind().SetGroupVersionKind(v.GVK)
		typed, err := v.Wire.TypeConverter.ObjectToTyped(obj)
		if err != nil {
			t.Fatal(err)
		}
		back, err := v.Wire.TypeConverter.TypedToObject(typed)
		if err != nil {
			t.Fatal(err)
		}
		if back.GetObjectKind().GroupVersionKind() != v.GVK {
			t.Errorf("came back as %s", back.GetObjectKind().GroupVersionKind())
		}
	})
}

// TestReturnsDeleted: a delete answers with the object that is gone for the kinds whose stores in Kubernetes have
// ReturnDeletedObject. A Namespace goes in a later request.
func TestReturnsDeleted(t *testing.T) {
	t.Parallel()
	want := map[string]bool{}
	for _, name := range []string{
		"csidrivers", "csinodes", "deviceclasses", "devicetaintrules", "persistentvolumeclaims", "persistentvolumes", "pods", "podtemplates",
		"resourceclaims", "resourceclaimtemplates", "resourcequotas", "resourceslices", "serviceaccounts", "services", "storageclasses",
		"volumeattachments", "volumeattributesclasses",
	} {
		want[name] = true
	}
	found := map[string]bool{}
	for _, k := range append(Kinds(), Services(nil)) {
		if k.ReturnsDeleted {
			found[k.Plural] = true
		}
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Error(diff)
	}
}
