package admission

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	corelisters "k8s.io/client-go/listers/core/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/object"
)

// podsIn is a plugin that has read accounts and classes. Its store has the
// namespaces shop, and ending, which terminates, and the account shop/new.
func podsIn(t *testing.T, objects ...any) *podPlugin {
	t.Helper()
	stored := map[object.Key]string{
		{Kind: "namespaces", Name: "shop"}:                           `{"metadata":{"name":"shop"}}`,
		{Kind: "namespaces", Name: "ending"}:                         `{"metadata":{"name":"ending","deletionTimestamp":"2026-01-01T00:00:00Z"}}`,
		{Kind: "serviceaccounts", Namespace: "shop", Name: "new"}:    `{"metadata":{"name":"new"},"automountServiceAccountToken":false}`,
		{Kind: "serviceaccounts", Namespace: "shop", Name: "broken"}: "",
	}
	get := func(_ context.Context, key object.Key) (object.Object, error) {
		body, ok := stored[key]
		switch {
		case !ok:
			return object.Object{}, object.Errorf(object.NotFound, "not found")
		case body == "":
			return object.Object{}, errors.New("the database is gone")
		}
		return object.Object{Key: key, Body: []byte(body)}, nil
	}
	accounts := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	classes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, o := range objects {
		index := accounts
		if _, ok := o.(*schedulingv1.PriorityClass); ok {
			index = classes
		}
		if err := index.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	return &podPlugin{Handler: admission.NewHandler(admission.Create), get: get, accounts: corelisters.NewServiceAccountLister(accounts), classes: schedulinglisters.NewPriorityClassLister(classes)}
}

func TestCompletePod(t *testing.T) {
	t.Parallel()
	no := false
	p := podsIn(t,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "quiet"}, AutomountServiceAccountToken: &no},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "usual"}, Value: 10, GlobalDefault: true},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "also-usual"}, Value: 20, GlobalDefault: true},
	)
	for _, tt := range []struct {
		name, namespace string
		change          func(*corev1.Pod)
		priority        int32
		volumes         int
		refusal         string
	}{
		{"plain", "shop", func(*corev1.Pod) {}, 10, 1, ""},
		{"a class", "shop", func(p *corev1.Pod) { p.Spec.PriorityClassName = "high" }, 1000, 1, ""},
		{"an unknown class", "shop", func(p *corev1.Pod) { p.Spec.PriorityClassName = "none" }, 0, 0, "no PriorityClass with name none was found"},
		{"an account", "shop", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "quiet" }, 10, 0, ""},
		{"an account that the informer has not read", "shop", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "new" }, 10, 0, ""},
		{"an unknown account", "shop", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "none" }, 0, 0,
			`error looking up service account shop/none: serviceaccount "none" not found`},
		{"an account that cannot be read", "shop", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "broken" }, 0, 0, "the database is gone"},
		{"an account in a missing namespace", "nowhere", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "none" }, 10, 1, ""},
		{"an account in a terminating namespace", "ending", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "none" }, 10, 1, ""},
		{"a mirror pod", "shop", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }, 10, 0, ""},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
		tt.change(pod)
		err := p.completePod(t.Context(), tt.namespace, pod)
		if tt.refusal != "" {
			if err == nil || !strings.Contains(err.Error(), tt.refusal) {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err != nil || *pod.Spec.Priority != tt.priority || len(pod.Spec.Volumes) != tt.volumes || len(pod.Spec.Tolerations) != 2 {
			t.Errorf("%s: %v: %+v", tt.name, err, pod.Spec)
		}
	}
}

// TestSecondDefaultClass: a second default class is refused, on create and on update. The
// default itself may change.
func TestSecondDefaultClass(t *testing.T) {
	t.Parallel()
	class := func(name string, isDefault bool) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, GlobalDefault: isDefault}
	}
	for name, tt := range map[string]struct {
		existing  []any
		class     *schedulingv1.PriorityClass
		operation admission.Operation
		refused   bool
	}{
		"the first default":        {nil, class("a", true), admission.Create, false},
		"not a default":            {[]any{class("a", true)}, class("b", false), admission.Create, false},
		"a second default":         {[]any{class("a", true)}, class("b", true), admission.Create, true},
		"an update of the default": {[]any{class("a", true)}, class("a", true), admission.Update, false},
		"another becomes default":  {[]any{class("a", true), class("b", false)}, class("b", true), admission.Update, true},
		"a deleted default":        {[]any{class("a", true)}, class("b", true), admission.Delete, false},
	} {
		gvk := schedulingv1.SchemeGroupVersion.WithKind("PriorityClass")
		a := admission.NewAttributesRecord(tt.class, nil, gvk, "", tt.class.Name, schedulingv1.SchemeGroupVersion.WithResource("priorityclasses"), "", tt.operation, nil, false, nil)
		err := podsIn(t, tt.existing...).validateClass(a)
		const text = `priorityclasses.scheduling.k8s.io "b" is forbidden: PriorityClass a is already marked as default. Only one default can exist`
		if tt.refused && (err == nil || err.Error() != text) || !tt.refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNewNodeIsNotReady: a new node gets the taint once.
func TestNewNodeIsNotReady(t *testing.T) {
	t.Parallel()
	p, node := podsIn(t), &corev1.Node{}
	for range 2 {
		if err := p.complete(t.Context(), "", node); err != nil {
			t.Fatal(err)
		}
	}
	if len(node.Spec.Taints) != 1 || node.Spec.Taints[0] != notReady {
		t.Errorf("the taints are %v", node.Spec.Taints)
	}
}

// TestWhatIsCompleted: only new pods and nodes are, and a restored one is left as it was: its account may come back after it.
func TestWhatIsCompleted(t *testing.T) {
	t.Parallel()
	pods, nodes := corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithResource("nodes")
	for name, tt := range map[string]struct {
		resource    schema.GroupVersionResource
		subresource string
		operation   admission.Operation
		restoring   bool
		unread      bool // accounts and classes
		account     string
		completed   bool
		refused     bool
	}{
		"a new pod":                       {resource: pods, operation: admission.Create, completed: true},
		"a new node":                      {resource: nodes, operation: admission.Create, completed: true},
		"a node before accounts are read": {resource: nodes, operation: admission.Create, unread: true, completed: true},
		"a pod before accounts are read":  {resource: pods, operation: admission.Create, unread: true, refused: true},
		"a pod of an unknown account":     {resource: pods, operation: admission.Create, account: "none", refused: true},
		"an update":                       {resource: pods, operation: admission.Update, account: "none"},
		"a deletion":                      {resource: pods, operation: admission.Delete, account: "none"},
		"a subresource":                   {resource: pods, subresource: "eviction", operation: admission.Create, account: "none"},
		"a restored pod":                  {resource: pods, operation: admission.Create, restoring: true, account: "none"},
	} {
		p, ctx := podsIn(t), t.Context()
		if tt.unread {
			p.SetReadyFunc(func() bool { return false })
		}
		if tt.restoring {
			ctx = kind.Restoring(ctx)
		}
		pod, node := &corev1.Pod{Spec: corev1.PodSpec{ServiceAccountName: tt.account, Containers: []corev1.Container{{Name: "c"}}}}, &corev1.Node{}
		obj := runtime.Object(pod)
		if tt.resource == nodes {
			obj = node
		}
		a := admission.NewAttributesRecord(obj, nil, schema.GroupVersionKind{}, "shop", "x", tt.resource, tt.subresource, tt.operation, nil, false, nil)
		var err error
		synctest.Test(t, func(*testing.T) { err = p.admit(ctx, a) }) // the library waits for ten seconds
		if tt.refused && !apierrors.IsForbidden(err) || !tt.refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if completed := pod.Spec.Tolerations != nil && pod.Spec.Volumes != nil || node.Spec.Taints != nil; completed != tt.completed {
			t.Errorf("%s is completed: %v", name, completed)
		}
	}
}

// TestMapper: policies find the resource of the kind of their parameters, if its objects are stored.
func TestMapper(t *testing.T) {
	t.Parallel()
	m := mapper{kinds: kind.NewRegistry(builtin.Kinds())}
	for _, tt := range []struct {
		group, kind, version, want string
	}{
		{"", "ConfigMap", "", "configmaps v1 namespace"},
		{"", "ConfigMap", "v1", "configmaps v1 namespace"},
		{"", "ConfigMap", "v2", ""},
		{"", "Namespace", "", "namespaces v1 root"},
		{"apps", "Deployment", "v1", "deployments v1 namespace"},
		{"", "Deployment", "v1", ""},
		{"authorization.k8s.io", "SubjectAccessReview", "v1", ""},
		{"", "ComponentStatus", "v1", ""},
	} {
		gk, versions := schema.GroupKind{Group: tt.group, Kind: tt.kind}, []string{tt.version}
		if tt.version == "" {
			versions = nil
		}
		got, err := m.RESTMapping(gk, versions...)
		if tt.want == "" {
			if none, ok := errors.AsType[*meta.NoKindMatchError](err); !ok || none.GroupKind != gk || !slices.Equal(none.SearchedVersions, versions) {
				t.Errorf("%s %v: %v, %v", gk, versions, got, err)
			}
			continue
		}
		if err != nil || got.GroupVersionKind.GroupKind() != gk || got.Resource.Group != tt.group || got.Resource.Resource+" "+got.Resource.Version+" "+string(got.Scope.Name()) != tt.want {
			t.Errorf("%s %v: %+v, %v", gk, versions, got, err)
		}
	}
}
