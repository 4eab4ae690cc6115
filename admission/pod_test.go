package admission

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// podsIn is a plugin that has read accounts and classes. Its client reaches a server that
// has the namespaces shop, and ending, which terminates, and the account shop/new.
func podsIn(t *testing.T, objects ...any) *podPlugin {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch req.URL.Path {
		case "/api/v1/namespaces/shop":
			_, _ = w.Write([]byte(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"shop"}}`))
		case "/api/v1/namespaces/ending":
			_, _ = w.Write([]byte(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"ending","deletionTimestamp":"2026-01-01T00:00:00Z"}}`))
		case "/api/v1/namespaces/shop/serviceaccounts/new":
			_, _ = w.Write([]byte(`{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"new"},"automountServiceAccountToken":false}`))
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
		}
	}))
	t.Cleanup(h.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: h.URL})
	if err != nil {
		t.Fatal(err)
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
	return &podPlugin{client: client, accounts: corelisters.NewServiceAccountLister(accounts), classes: schedulinglisters.NewPriorityClassLister(classes)}
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
		{"an account in a missing namespace", "nowhere", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "none" }, 10, 1, ""},
		{"an account in a terminating namespace", "ending", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "none" }, 10, 1, ""},
		{"a mirror pod", "shop", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }, 10, 0, ""},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
		tt.change(pod)
		err := p.complete(t.Context(), tt.namespace, pod)
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
