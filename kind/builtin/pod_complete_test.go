package builtin

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func podOf(names ...string) *corev1.Pod {
	pod := &corev1.Pod{}
	for _, name := range names {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
	}
	return pod
}

func TestUseAccount(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	own := corev1.VolumeMount{Name: "own", MountPath: tokenPath}
	for _, tt := range []struct {
		name         string
		change       func(*corev1.Pod, *corev1.ServiceAccount)
		mounts       []string // volume of each container, "" for none
		volumes      int
		pullsSecrets int
	}{
		{"plain", func(*corev1.Pod, *corev1.ServiceAccount) {}, []string{"kube-api-access-x", "kube-api-access-x"}, 1, 0},
		{"the pod says no", func(p *corev1.Pod, a *corev1.ServiceAccount) {
			p.Spec.AutomountServiceAccountToken, a.AutomountServiceAccountToken = &no, &yes
		}, []string{"", ""}, 0, 0},
		{"the account says no", func(_ *corev1.Pod, a *corev1.ServiceAccount) { a.AutomountServiceAccountToken = &no }, []string{"", ""}, 0, 0},
		{"the pod says yes", func(p *corev1.Pod, a *corev1.ServiceAccount) {
			p.Spec.AutomountServiceAccountToken, a.AutomountServiceAccountToken = &yes, &no
		}, []string{"kube-api-access-x", "kube-api-access-x"}, 1, 0},
		{"one container mounts its own", func(p *corev1.Pod, _ *corev1.ServiceAccount) {
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{own}
		}, []string{"own", "kube-api-access-x"}, 1, 0},
		{"all containers mount their own", func(p *corev1.Pod, _ *corev1.ServiceAccount) {
			p.Spec.Containers[0].VolumeMounts, p.Spec.Containers[1].VolumeMounts = []corev1.VolumeMount{own}, []corev1.VolumeMount{own}
		}, []string{"own", "own"}, 0, 0},
		{"the volume is there", func(p *corev1.Pod, _ *corev1.ServiceAccount) {
			p.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-y"}}
		}, []string{"kube-api-access-y", "kube-api-access-y"}, 1, 0},
		{"pull secrets", func(_ *corev1.Pod, a *corev1.ServiceAccount) {
			a.AutomountServiceAccountToken, a.ImagePullSecrets = &no, []corev1.LocalObjectReference{{Name: "s"}}
		}, []string{"", ""}, 0, 1},
	} {
		pod, account := podOf("a", "b"), &corev1.ServiceAccount{}
		tt.change(pod, account)
		UseAccount(pod, account, "x")
		var mounts []string
		for _, c := range pod.Spec.Containers {
			mount := ""
			for _, m := range c.VolumeMounts {
				mount += m.Name
				if m.Name != own.Name && (!m.ReadOnly || m.MountPath != tokenPath) {
					t.Errorf("%s: mount %+v", tt.name, m)
				}
			}
			mounts = append(mounts, mount)
		}
		if diff := cmp.Diff(tt.mounts, mounts); diff != "" || len(pod.Spec.Volumes) != tt.volumes || len(pod.Spec.ImagePullSecrets) != tt.pullsSecrets {
			t.Errorf("%s: %d volumes, %d pull secrets, mounts:\n%s", tt.name, len(pod.Spec.Volumes), len(pod.Spec.ImagePullSecrets), diff)
		}
	}
}

func TestTolerateNodes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		has  []corev1.Toleration
		want int
	}{
		{"none", nil, 2},
		{"everything", []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, 1},
		{"not ready", []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}, 2},
		{"another effect", []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}, 3},
	} {
		spec := &corev1.PodSpec{Tolerations: tt.has}
		TolerateNodes(spec)
		TolerateNodes(spec) // it is idempotent
		if len(spec.Tolerations) != tt.want {
			t.Errorf("%s: %v", tt.name, spec.Tolerations)
		}
	}
}

func TestPrioritize(t *testing.T) {
	t.Parallel()
	never, seven, eight := corev1.PreemptNever, int32(7), int32(8)
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 7, PreemptionPolicy: &never}
	for _, tt := range []struct {
		name    string
		spec    corev1.PodSpec
		class   *schedulingv1.PriorityClass
		want    int32
		policy  corev1.PreemptionPolicy
		refusal string
	}{
		{"no class", corev1.PodSpec{}, nil, 0, corev1.PreemptLowerPriority, ""},
		{"a class", corev1.PodSpec{}, class, 7, never, ""},
		{"the same", corev1.PodSpec{Priority: &seven, PreemptionPolicy: &never}, class, 7, never, ""},
		{"another priority", corev1.PodSpec{Priority: &eight}, class, 0, "", "the integer value of priority (8)"},
		{"another policy", corev1.PodSpec{PreemptionPolicy: &never}, nil, 0, "", "the string value of PreemptionPolicy (Never)"},
	} {
		err := Prioritize(&tt.spec, tt.class)
		if tt.refusal != "" {
			if err == nil || !strings.Contains(err.Error(), tt.refusal) {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err != nil || *tt.spec.Priority != tt.want || *tt.spec.PreemptionPolicy != tt.policy {
			t.Errorf("%s: priority %d, policy %s: %v", tt.name, *tt.spec.Priority, *tt.spec.PreemptionPolicy, err)
		}
	}
}

func TestPodUpdateKeepsItsCompletion(t *testing.T) {
	t.Parallel()
	old := podOf("a")
	TolerateNodes(&old.Spec)
	if err := Prioritize(&old.Spec, nil); err != nil {
		t.Fatal(err)
	}
	sent := podOf("a")
	keepCompletion(sent, old)
	if diff := cmp.Diff(old.Spec, sent.Spec); diff != "" {
		t.Errorf("an update without the completed fields changes them:\n%s", diff)
	}
	plain := podOf("a")
	keepCompletion(plain, podOf("a"))
	if diff := cmp.Diff(podOf("a").Spec, plain.Spec); diff != "" {
		t.Errorf("an update completes a pod that was not:\n%s", diff)
	}
}
