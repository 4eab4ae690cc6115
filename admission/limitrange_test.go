package admission

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"
)

func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// ranger is a plugin that has read LimitRanges of the namespace n.
func ranger(t *testing.T, ranges ...string) *limitRanger {
	t.Helper()
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for i, text := range ranges {
		r := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: string(rune('a' + i))}}
		r.Spec = *parse[corev1.LimitRangeSpec](t, text)
		if err := index.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return &limitRanger{Handler: admission.NewHandler(admission.Create, admission.Update), ranges: listers.NewLimitRangeLister(index)}
}

func attributes(obj, old runtime.Object, resource, part string, operation admission.Operation) admission.Attributes {
	kind := map[string]string{"pods": "Pod", "persistentvolumeclaims": "PersistentVolumeClaim", "configmaps": "ConfigMap"}[resource]
	return admission.NewAttributesRecord(obj, old, schema.GroupVersionKind{Version: "v1", Kind: kind}, "n", "x",
		schema.GroupVersionResource{Version: "v1", Resource: resource}, part, operation, nil, false, nil)
}

// TestLimitRangeDefaults: a container gets what it lacks, from every LimitRange, and keeps
// what it has.
func TestLimitRangeDefaults(t *testing.T) {
	t.Parallel()
	l := ranger(t,
		`{limits: [{type: Container, default: {cpu: 2, memory: 1Gi}, defaultRequest: {cpu: 1}}, {type: Pod, max: {cpu: 9}}]}`,
		`{limits: [{type: Container, defaultRequest: {cpu: 5, memory: 1Mi}}]}`)
	pod := parse[corev1.Pod](t, `{spec: {containers: [{name: a}, {name: b, resources: {limits: {cpu: 3}}}], initContainers: [{name: i, resources: {requests: {cpu: 4}}}]}}`)
	if err := l.Admit(context.Background(), attributes(pod, nil, "pods", "", admission.Create), nil); err != nil {
		t.Fatal(err)
	}
	got := func(c corev1.Container) string {
		r := c.Resources
		return r.Requests.Cpu().String() + " " + r.Requests.Memory().String() + " " + r.Limits.Cpu().String() + " " + r.Limits.Memory().String()
	}
	for i, want := range []string{"1 1Mi 2 1Gi", "1 1Mi 3 1Gi"} {
		if g := got(pod.Spec.Containers[i]); g != want {
			t.Errorf("container %d has %s, want %s", i, g, want)
		}
	}
	if g := got(pod.Spec.InitContainers[0]); g != "4 1Mi 2 1Gi" {
		t.Errorf("the init container has %s", g)
	}
	const note = "LimitRanger plugin set: memory request for container a; memory request for container b; memory request for init container i"
	if g := pod.Annotations["kubernetes.io/limit-ranger"]; g != note {
		t.Errorf("the annotation is %q", g)
	}
}

func TestLimitRangeChecks(t *testing.T) {
	t.Parallel()
	const bounds = `{limits: [{type: Container, min: {cpu: 100m}, max: {cpu: 1}, maxLimitRequestRatio: {cpu: 2}}]}`
	container := func(resources string) string {
		return `{spec: {containers: [{name: c, resources: ` + resources + `}]}}`
	}
	for _, tt := range []struct{ name, limits, pod, want string }{
		{"inside", bounds, container(`{requests: {cpu: 500m}, limits: {cpu: 1}}`), ""},
		{"nothing stated", bounds, container(`{}`), `pods "x" is forbidden: [minimum cpu usage per Container is 100m.  No request is specified, ` +
			`maximum cpu usage per Container is 1.  No limit is specified, cpu max limit to request ratio per Container is 2, but no request is specified or request is 0]`},
		{"too little", bounds, container(`{requests: {cpu: 50m}, limits: {cpu: 100m}}`), `pods "x" is forbidden: minimum cpu usage per Container is 100m, but request is 50m`},
		{"too much", bounds, container(`{requests: {cpu: 1}, limits: {cpu: 1500m}}`), `pods "x" is forbidden: maximum cpu usage per Container is 1, but limit is 1500m`},
		{"a limit that is too little", `{limits: [{type: Container, min: {cpu: 100m}}]}`, container(`{requests: {cpu: 100m}, limits: {cpu: 50m}}`),
			`pods "x" is forbidden: minimum cpu usage per Container is 100m, but limit is 50m`},
		{"too far apart", bounds, container(`{requests: {cpu: 200m}, limits: {cpu: 1}}`),
			`pods "x" is forbidden: cpu max limit to request ratio per Container is 2, but provided ratio is 5.000000`},
		{"a pod of two", `{limits: [{type: Pod, max: {cpu: 1}}]}`,
			`{spec: {containers: [{name: a, resources: {limits: {cpu: 600m}}}, {name: b, resources: {limits: {cpu: 600m}}}]}}`,
			`pods "x" is forbidden: maximum cpu usage per Pod is 1, but limit is 1200m`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := ranger(t, tt.limits)
			err := l.Validate(context.Background(), attributes(parse[corev1.Pod](t, tt.pod), nil, "pods", "", admission.Create), nil)
			if got := text(err); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestLimitRangeOperations: which writes are checked at all.
func TestLimitRangeOperations(t *testing.T) {
	t.Parallel()
	l := ranger(t, `{limits: [{type: Container, max: {cpu: 1}}, {type: PersistentVolumeClaim, min: {storage: 1Gi}, max: {storage: 2Gi}}]}`)
	pod := parse[corev1.Pod](t, `{spec: {containers: [{name: c, resources: {limits: {cpu: 2}}}]}}`)
	leaving := pod.DeepCopy()
	leaving.DeletionTimestamp = &metav1.Time{}
	claim := parse[corev1.PersistentVolumeClaim](t, `{spec: {resources: {requests: {storage: 3Gi}}}}`)
	for _, tt := range []struct {
		name string
		a    admission.Attributes
		want string
	}{
		{"create", attributes(pod, nil, "pods", "", admission.Create), `pods "x" is forbidden: maximum cpu usage per Container is 1, but limit is 2`},
		{"update", attributes(pod, pod, "pods", "", admission.Update), ""},
		{"status", attributes(pod, pod, "pods", "status", admission.Update), ""},
		{"resize", attributes(pod, pod, "pods", "resize", admission.Update), `pods "x" is forbidden: maximum cpu usage per Container is 1, but limit is 2`},
		{"resize of a pod that leaves", attributes(pod, leaving, "pods", "resize", admission.Update), ""},
		{"claim", attributes(claim, nil, "persistentvolumeclaims", "", admission.Create),
			`persistentvolumeclaims "x" is forbidden: maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi`},
		{"another kind", attributes(pod, nil, "configmaps", "", admission.Create), ""},
	} {
		if got := text(l.Validate(context.Background(), tt.a, nil)); got != tt.want {
			t.Errorf("%s: got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}
