package builtin

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	corev1 "k8s.io/api/core/v1"

	"github.com/exeunt/exeunt/kind"
)

// at returns the JSON of an object at a dotted path, or "-". A number is an index.
func at(t *testing.T, obj runtime.Object, path string) string {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	var value any = content
	for _, step := range strings.Split(path, "/") {
		switch v := value.(type) {
		case map[string]any:
			next, ok := v[step]
			if !ok {
				return "-"
			}
			value = next
		case []any:
			i := int(step[0] - '0')
			if i >= len(v) {
				return "-"
			}
			value = v[i]
		default:
			return "-"
		}
	}
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

const pod = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  containers:
  - name: app
    image: nginx:1.29
`

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: nginx}]}
`

const job = `
apiVersion: batch/v1
kind: Job
metadata: {name: once, namespace: default, uid: 0000-1}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: app, image: busybox}]}
`

func TestDefaults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, manifest string
		want           map[string]string
	}{
		{"pod", pod, map[string]string{
			"spec/restartPolicy": `"Always"`, "spec/dnsPolicy": `"ClusterFirst"`, "spec/terminationGracePeriodSeconds": "30",
			"spec/schedulerName": `"default-scheduler"`, "spec/securityContext": "{}", "spec/enableServiceLinks": "true",
			"spec/containers/0/imagePullPolicy": `"IfNotPresent"`, "spec/containers/0/terminationMessagePath": `"/dev/termination-log"`,
			"spec/containers/0/terminationMessagePolicy": `"File"`,
		}},
		{"pod: details", `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  serviceAccount: robot
  terminationGracePeriodSeconds: -3
  hostNetwork: true
  volumes: [{name: a}, {name: b, secret: {secretName: s}}]
  containers:
  - name: app
    image: nginx
    ports: [{containerPort: 80}]
    resources: {limits: {cpu: 1}}
    livenessProbe: {httpGet: {port: 80}}
    env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
  initContainers: [{name: init, image: "host:5000/x@sha256:00"}]
`, map[string]string{
			"spec/serviceAccountName": `"robot"`, "spec/terminationGracePeriodSeconds": "1",
			"spec/volumes/0/emptyDir": "{}", "spec/volumes/1/secret/defaultMode": "420", "spec/volumes/1/emptyDir": "-",
			"spec/containers/0/imagePullPolicy": `"Always"`, "spec/containers/0/ports/0/protocol": `"TCP"`,
			"spec/containers/0/ports/0/hostPort": "80", "spec/containers/0/resources/requests/cpu": `"1"`,
			"spec/containers/0/livenessProbe/periodSeconds": "10", "spec/containers/0/livenessProbe/failureThreshold": "3",
			"spec/containers/0/livenessProbe/timeoutSeconds": "1", "spec/containers/0/livenessProbe/successThreshold": "1",
			"spec/containers/0/livenessProbe/httpGet/path": `"/"`, "spec/containers/0/livenessProbe/httpGet/scheme": `"HTTP"`,
			"spec/containers/0/env/0/valueFrom/fieldRef/apiVersion": `"v1"`,
			"spec/initContainers/0/imagePullPolicy":                 `"IfNotPresent"`,
		}},
		{"deployment", deployment, map[string]string{
			"spec/replicas": "1", "spec/revisionHistoryLimit": "10", "spec/progressDeadlineSeconds": "600",
			"spec/strategy/type": `"RollingUpdate"`, "spec/strategy/rollingUpdate/maxSurge": `"25%"`,
			"spec/strategy/rollingUpdate/maxUnavailable": `"25%"`,
			"spec/template/spec/restartPolicy":           `"Always"`, "spec/template/spec/enableServiceLinks": "-",
		}},
		{"deployment that recreates", strings.Replace(deployment, "spec:\n", "spec:\n  replicas: 0\n  strategy: {type: Recreate}\n", 1), map[string]string{
			"spec/replicas": "0", "spec/strategy": `{"type":"Recreate"}`,
		}},
		{"statefulset", `
apiVersion: apps/v1
kind: StatefulSet
spec:
  volumeClaimTemplates: [{metadata: {name: data}, spec: {}}]
`, map[string]string{
			"spec/replicas": "1", "spec/podManagementPolicy": `"OrderedReady"`, "spec/updateStrategy/type": `"RollingUpdate"`,
			"spec/updateStrategy/rollingUpdate/partition":           "0",
			"spec/persistentVolumeClaimRetentionPolicy/whenDeleted": `"Retain"`,
			"spec/volumeClaimTemplates/0/kind":                      `"PersistentVolumeClaim"`,
			"spec/volumeClaimTemplates/0/spec/volumeMode":           `"Filesystem"`,
		}},
		{"daemonset", "apiVersion: apps/v1\nkind: DaemonSet\n", map[string]string{
			"spec/updateStrategy/rollingUpdate": `{"maxSurge":0,"maxUnavailable":1}`, "spec/revisionHistoryLimit": "10",
		}},
		{"replicaset", "apiVersion: apps/v1\nkind: ReplicaSet\n", map[string]string{"spec/replicas": "1"}},
		{"replicationcontroller", `
apiVersion: v1
kind: ReplicationController
spec: {template: {metadata: {labels: {a: b}}}}
`, map[string]string{"spec/replicas": "1", "spec/selector": `{"a":"b"}`, "metadata/labels": `{"a":"b"}`}},
		{"job", job, map[string]string{
			"spec/completions": "1", "spec/parallelism": "1", "spec/backoffLimit": "6", "spec/completionMode": `"NonIndexed"`,
			"spec/suspend": "false", "spec/podReplacementPolicy": `"TerminatingOrFailed"`, "spec/manualSelector": "false",
		}},
		{"job: a work queue", "apiVersion: batch/v1\nkind: Job\nspec: {parallelism: 3}\n", map[string]string{
			"spec/completions": "-", "spec/parallelism": "3",
		}},
		{"cronjob", "apiVersion: batch/v1\nkind: CronJob\n", map[string]string{
			"spec/concurrencyPolicy": `"Allow"`, "spec/suspend": "false", "spec/successfulJobsHistoryLimit": "3",
			"spec/failedJobsHistoryLimit": "1", "spec/jobTemplate/spec/backoffLimit": "-",
		}},
		{"service", "apiVersion: v1\nkind: Service\nspec: {ports: [{port: 80}]}\n", map[string]string{
			"spec/type": `"ClusterIP"`, "spec/sessionAffinity": `"None"`, "spec/internalTrafficPolicy": `"Cluster"`,
			"spec/ports/0": `{"port":80,"protocol":"TCP","targetPort":80}`, "spec/externalTrafficPolicy": "-",
		}},
		{"service: load balancer", "apiVersion: v1\nkind: Service\nspec: {type: LoadBalancer, sessionAffinity: ClientIP}\n", map[string]string{
			"spec/externalTrafficPolicy": `"Cluster"`, "spec/allocateLoadBalancerNodePorts": "true",
			"spec/sessionAffinityConfig/clientIP/timeoutSeconds": "10800",
		}},
		{"secret", "apiVersion: v1\nkind: Secret\ndata: {a: b2xk, b: Yg==}\nstringData: {a: new}\n", map[string]string{
			"type": `"Opaque"`, "data": `{"a":"bmV3","b":"Yg=="}`, "stringData": "-",
		}},
		{"namespace", "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n", map[string]string{
			"status/phase": `"Active"`, "metadata/labels": `{"kubernetes.io/metadata.name":"x"}`,
		}},
		{"claim", "apiVersion: v1\nkind: PersistentVolumeClaim\n", map[string]string{"spec/volumeMode": `"Filesystem"`, "status/phase": `"Pending"`}},
		{"volume", "apiVersion: v1\nkind: PersistentVolume\nspec: {hostPath: {path: /x}}\n", map[string]string{"spec/hostPath/type": `""`, "status/phase": `"Pending"`}},
		{"node", "apiVersion: v1\nkind: Node\nspec: {podCIDR: 10.0.0.0/24}\n", map[string]string{"spec/podCIDRs": `["10.0.0.0/24"]`}},
		{"rolebinding", `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
roleRef: {kind: Role, name: r}
subjects: [{kind: User, name: u}, {kind: ServiceAccount, name: s}]
`, map[string]string{
			"roleRef/apiGroup": `"rbac.authorization.k8s.io"`, "subjects/0/apiGroup": `"rbac.authorization.k8s.io"`, "subjects/1/apiGroup": "-",
		}},
		{"networkpolicy", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nspec: {egress: [{ports: [{port: 1}]}]}\n", map[string]string{
			"spec/policyTypes": `["Ingress","Egress"]`, "spec/egress/0/ports/0/protocol": `"TCP"`,
		}},
		{"autoscaler", "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nspec: {behavior: {}}\n", map[string]string{
			"spec/minReplicas": "1", "spec/metrics/0/resource/target/averageUtilization": "80",
			"spec/behavior/scaleUp/policies/0/type": `"Pods"`, "spec/behavior/scaleDown/policies/0/type": `"Percent"`,
		}},
		{"limitrange", "apiVersion: v1\nkind: LimitRange\nspec: {limits: [{type: Container, max: {cpu: 2}}]}\n", map[string]string{
			"spec/limits/0/default/cpu": `"2"`, "spec/limits/0/defaultRequest/cpu": `"2"`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			obj := read(t, tt.manifest)
			for path, want := range tt.want {
				if got := at(t, obj, path); got != want {
					t.Errorf("%s: got %s, want %s", path, got, want)
				}
			}
		})
	}
}

// TestDefaultsSettle checks that defaulting is idempotent, and that it works for an empty and for
// a full object.
func TestDefaultsSettle(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v *kind.Version) {
		for _, obj := range []runtime.Object{v.New(), full(t, v.GVK)} {
			Scheme().Default(obj)
			once := obj.DeepCopyObject()
			Scheme().Default(obj)
			equal(t, "the second defaulting", obj, once)
		}
	})
}

func TestPullPolicy(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]corev1.PullPolicy{
		"":                          corev1.PullIfNotPresent,
		"nginx":                     corev1.PullAlways,
		"nginx:latest":              corev1.PullAlways,
		"nginx:1.29":                corev1.PullIfNotPresent,
		"host:5000/a/nginx":         corev1.PullAlways,
		"host:5000/a/nginx:2":       corev1.PullIfNotPresent,
		"nginx@sha256:00":           corev1.PullIfNotPresent,
		"nginx:latest@sha256:00":    corev1.PullAlways,
		"host:5000/nginx@sha256:00": corev1.PullIfNotPresent,
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("pullPolicy(%q) = %s, want %s", image, got, want)
		}
	}
}
