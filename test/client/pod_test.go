package client_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/test/harness"
)

// testCompletedPods creates the same pods as JSON, which takes the fast path, and as
// protobuf: both get a token, tolerations and a priority, or the same refusal.
func testCompletedPods(t *testing.T, s *harness.Server) {
	t.Helper()
	ctx, binary := t.Context(), s.Config()
	binary.ContentType = runtime.ContentTypeProtobuf
	plain, protobuf := typed(t, s.Config()), typed(t, binary)
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		change(p)
		return p
	}
	first, err := plain.CoreV1().Pods("default").Create(ctx, pod(func(*corev1.Pod) {}), metav1.CreateOptions{})
	check(t, err)
	second, err := protobuf.CoreV1().Pods("default").Create(ctx, pod(func(*corev1.Pod) {}), metav1.CreateOptions{})
	check(t, err)
	if v := first.Spec.Volumes; len(v) != 1 || !regexp.MustCompile("^kube-api-access-[a-z0-9]{5}$").MatchString(v[0].Name) || first.Spec.Containers[0].VolumeMounts[0].Name != v[0].Name {
		t.Errorf("volumes %v of %v", v, first.Spec.Containers)
	}
	if first.Spec.Priority == nil || *first.Spec.Priority != 0 || len(first.Spec.Tolerations) != 2 {
		t.Errorf("priority %v, tolerations %v", first.Spec.Priority, first.Spec.Tolerations)
	}
	second.Spec.Volumes[0].Name, second.Spec.Containers[0].VolumeMounts[0].Name = first.Spec.Volumes[0].Name, first.Spec.Volumes[0].Name
	if diff := cmp.Diff(first.Spec, second.Spec); diff != "" {
		t.Errorf("protobuf and JSON differ (-JSON +protobuf):\n%s", diff)
	}
	for _, tt := range []struct {
		namespace, text string
		change          func(*corev1.Pod)
		is              func(error) bool
	}{
		{"default", `is forbidden: error looking up service account default/none: serviceaccount "none" not found`,
			func(p *corev1.Pod) { p.Name, p.Spec.ServiceAccountName = "a", "none" }, apierrors.IsForbidden},
		{"default", "is forbidden: no PriorityClass with name none was found",
			func(p *corev1.Pod) { p.Name, p.Spec.PriorityClassName = "a", "none" }, apierrors.IsForbidden},
		{"nowhere", `namespaces "nowhere" not found`, func(p *corev1.Pod) { p.Name, p.Spec.ServiceAccountName = "a", "none" }, apierrors.IsNotFound},
	} {
		_, asJSON := plain.CoreV1().Pods(tt.namespace).Create(ctx, pod(tt.change), metav1.CreateOptions{})
		_, asProtobuf := protobuf.CoreV1().Pods(tt.namespace).Create(ctx, pod(tt.change), metav1.CreateOptions{})
		for _, err := range []error{asJSON, asProtobuf} {
			if !tt.is(err) || !strings.Contains(err.Error(), tt.text) || err.Error() != asJSON.Error() {
				t.Errorf("got %v, want %q", err, tt.text)
			}
		}
	}
	critical, err := plain.CoreV1().Pods("default").Create(ctx, pod(func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" }), metav1.CreateOptions{})
	check(t, err)
	if *critical.Spec.Priority != 2000001000 {
		t.Errorf("priority %d", *critical.Spec.Priority)
	}
}
