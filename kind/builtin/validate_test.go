package builtin

import (
	"slices"
	"sort"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// brief shows errors as "path: Type", sorted and without duplicates.
func brief(errs field.ErrorList) []string {
	out := []string{}
	for _, e := range errs {
		out = append(out, e.Field+": "+e.Type.String())
	}
	sort.Strings(out)
	return slices.Compact(out)
}

// create prepares and validates an object as the lifecycle does.
func create(t *testing.T, obj runtime.Object) field.ErrorList {
	t.Helper()
	s := lookup(t, obj.GetObjectKind().GroupVersionKind()).Strategy
	s.PrepareForCreate(background, obj)
	return s.Validate(background, obj)
}

// edit returns a manifest with one text replaced, and fails if the text is missing.
func edit(t *testing.T, manifest, old, text string) string {
	t.Helper()
	if !strings.Contains(manifest, old) {
		t.Fatalf("%q is not in the manifest", old)
	}
	return strings.Replace(manifest, old, text, 1)
}

// valid are correct objects of many kinds, the starting points of the tests.
var valid = map[string]string{
	"Pod": pod, "Deployment": deployment, "Job": job,
	"ConfigMap": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: d}\ndata: {key: value}\n",
	"Secret":    "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: d}\ntype: kubernetes.io/tls\nstringData: {tls.crt: a, tls.key: b}\n",
	"Namespace": "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n",
	"Service":   "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: d}\nspec: {ports: [{port: 80}]}\n",
	"Lease":     "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: l, namespace: d}\nspec: {leaseDurationSeconds: 15}\n",
	"Event":     "apiVersion: v1\nkind: Event\nmetadata: {name: e.1, namespace: d}\ninvolvedObject: {namespace: d}\n",
	"NewEvent": `
apiVersion: events.k8s.io/v1
kind: Event
metadata: {name: e.1, namespace: d}
regarding: {namespace: d}
eventTime: "2026-01-01T00:00:00.000000Z"
type: Normal
reason: R
action: A
reportingController: example.com/c
reportingInstance: i
`,
	"CronJob": `
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: d}
spec:
  schedule: "0 3 * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: OnFailure, containers: [{name: a, image: b}]}}}}
`,
	"StatefulSet": `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: d}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: a, image: b, volumeMounts: [{name: data, mountPath: /data}]}]}
  volumeClaimTemplates: [{metadata: {name: data}}]
`,
	"DaemonSet": `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: logs, namespace: d}
spec:
  selector: {matchLabels: {app: logs}}
  template: {metadata: {labels: {app: logs}}, spec: {containers: [{name: a, image: b}]}}
`,
	"ReplicaSet": `
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-1, namespace: d}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: a, image: b}]}}
`,
	"ReplicationController": `
apiVersion: v1
kind: ReplicationController
metadata: {name: web, namespace: d}
spec: {template: {metadata: {labels: {app: web}}, spec: {containers: [{name: a, image: b}]}}}
`,
	"Role":        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: 'system:x', namespace: d}\nrules: [{verbs: [get], apiGroups: [''], resources: [pods]}]\n",
	"ClusterRole": "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: x}\nrules: [{verbs: [get], nonResourceURLs: [/healthz]}]\n",
	"RoleBinding": `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: b, namespace: d}
roleRef: {kind: Role, name: x}
subjects: [{kind: User, name: jane}, {kind: ServiceAccount, name: robot}]
`,
	"PersistentVolumeClaim": "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c, namespace: d}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n",
	"PersistentVolume":      "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v}\nspec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /x}}\n",
	"Ingress": `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: i, namespace: d}
spec: {rules: [{host: a.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
`,
	"NetworkPolicy":       "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: np, namespace: d}\nspec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 80}]}]}\n",
	"PodDisruptionBudget": "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: p, namespace: d}\nspec: {minAvailable: 50%, selector: {}}\n",
	"EndpointSlice":       "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: e, namespace: d}\naddressType: IPv4\nendpoints: [{addresses: [10.0.0.1]}]\nports: [{port: 80}]\n",
	"PriorityClass":       "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 1000\n",
	"StorageClass":        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: fast}\nprovisioner: example.com/disk\n",
	"ControllerRevision":  "apiVersion: apps/v1\nkind: ControllerRevision\nmetadata: {name: r, namespace: d}\nrevision: 1\ndata: {a: b}\n",
	"Node":                "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nspec: {taints: [{key: a, effect: NoSchedule}]}\n",
	"Endpoints":           "apiVersion: v1\nkind: Endpoints\nmetadata: {name: web, namespace: d}\nsubsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 80}]}]\n",
	"LimitRange":          "apiVersion: v1\nkind: LimitRange\nmetadata: {name: l, namespace: d}\nspec: {limits: [{type: Container, max: {cpu: 2}}]}\n",
	"ResourceQuota":       "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q, namespace: d}\nspec: {hard: {pods: 10}}\n",
	"ServiceAccount":      "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: sa, namespace: d}\n",
	"PodTemplate":         "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: t, namespace: d}\ntemplate: {spec: {containers: [{name: a, image: b}]}}\n",
	"HorizontalPodAutoscaler": `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: h, namespace: d}
spec: {scaleTargetRef: {kind: Deployment, name: web}, maxReplicas: 3}
`,
	"SubjectAccessReview": "apiVersion: authorization.k8s.io/v1\nkind: SubjectAccessReview\nspec: {user: u, resourceAttributes: {verb: get}}\n",
	"TokenReview":         "apiVersion: authentication.k8s.io/v1\nkind: TokenReview\nspec: {token: t}\n",
	"LocalSubjectAccessReview": "apiVersion: authorization.k8s.io/v1\nkind: LocalSubjectAccessReview\nmetadata: {namespace: d}\n" +
		"spec: {user: u, resourceAttributes: {verb: get, namespace: d}}\n",
}

func TestValidObjects(t *testing.T) {
	t.Parallel()
	for name, manifest := range valid {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			obj := read(t, manifest)
			if errs := create(t, obj); len(errs) > 0 {
				t.Fatalf("create: %v", errs.ToAggregate())
			}
			v := lookup(t, obj.GetObjectKind().GroupVersionKind())
			if v.Kind.Ephemeral {
				return
			}
			obj.(metav1.Object).SetResourceVersion("1") // as stored
			same := obj.DeepCopyObject()
			v.Strategy.PrepareForUpdate(background, same, obj)
			if errs := v.Strategy.ValidateUpdate(background, same, obj); len(errs) > 0 {
				t.Errorf("update without a change: %v", errs.ToAggregate())
			}
		})
	}
}

func TestInvalidObjects(t *testing.T) {
	t.Parallel()
	tests := []struct {
		kind, old, text string // the edit
		want            []string
	}{
		{"Pod", "name: web", "name: Web_1", []string{"metadata.name: Invalid value"}},
		{"Pod", ", namespace: default", "", []string{"metadata.namespace: Required value"}},
		{"Pod", "  containers:\n  - name: app\n    image: nginx:1.29\n", "  hostname: h\n", []string{"spec.containers: Required value"}},
		{"Pod", "    image: nginx:1.29\n", "", []string{"spec.containers[0].image: Required value"}},
		{"Pod", "image: nginx:1.29", "image: ' nginx'", []string{"spec.containers[0].image: Invalid value"}},
		{"Pod", "name: app", "name: App", []string{"spec.containers[0].name: Invalid value"}},
		{"Pod", "image: nginx:1.29\n", "image: nginx\n  - {name: app, image: x}\n", []string{"spec.containers[1].name: Duplicate value"}},
		{"Pod", "image: nginx:1.29\n", "image: nginx\n  initContainers: [{name: app, image: x}]\n", []string{"spec.initContainers[0].name: Duplicate value"}},
		{"Pod", "spec:\n", "spec:\n  restartPolicy: Sometimes\n", []string{"spec.restartPolicy: Unsupported value"}},
		{"Pod", "image: nginx:1.29\n", "image: x\n    ports: [{containerPort: 70000}, {containerPort: 80, name: UP}]\n",
			[]string{"spec.containers[0].ports[0].containerPort: Invalid value", "spec.containers[0].ports[1].name: Invalid value"}},
		{"Pod", "image: nginx:1.29\n", "image: x\n    volumeMounts: [{name: data, mountPath: /d}]\n", []string{"spec.containers[0].volumeMounts[0].name: Not found"}},
		{"Pod", "image: nginx:1.29\n", "image: x\n    resources: {requests: {cpu: 2}, limits: {cpu: 1}}\n", []string{"spec.containers[0].resources.requests[cpu]: Invalid value"}},
		{"Pod", "image: nginx:1.29\n", "image: x\n    resources: {limits: {cpu: -1}}\n",
			[]string{"spec.containers[0].resources.limits[cpu]: Invalid value", "spec.containers[0].resources.requests[cpu]: Invalid value"}},
		{"Pod", "image: nginx:1.29\n", "image: x\n    env: [{value: a}, {name: B, value: c, valueFrom: {}}]\n",
			[]string{"spec.containers[0].env[0].name: Required value", "spec.containers[0].env[1].valueFrom: Invalid value"}},
		{"Pod", "image: nginx:1.29\n", "image: x\n    livenessProbe: {periodSeconds: -1}\n",
			[]string{"spec.containers[0].livenessProbe.periodSeconds: Invalid value", "spec.containers[0].livenessProbe: Required value"}},

		{"Deployment", "  selector: {matchLabels: {app: web}}\n", "", []string{"spec.selector: Required value", "spec.template.metadata.labels: Invalid value"}},
		{"Deployment", "{matchLabels: {app: web}}", "{}", []string{"spec.selector: Invalid value"}},
		{"Deployment", "labels: {app: web}", "labels: {app: other}", []string{"spec.template.metadata.labels: Invalid value"}},
		{"Deployment", "spec:\n", "spec:\n  replicas: -1\n", []string{"spec.replicas: Invalid value"}},
		{"Deployment", "spec: {containers", "spec: {restartPolicy: Never, containers", []string{"spec.template.spec.restartPolicy: Unsupported value"}},
		{"Deployment", "spec:\n", "spec:\n  strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0}}\n", []string{"spec.strategy.rollingUpdate.maxUnavailable: Invalid value"}},
		{"Deployment", "spec:\n", "spec:\n  strategy: {type: Recreate, rollingUpdate: {}}\n", []string{"spec.strategy.rollingUpdate: Forbidden"}},
		{"Deployment", "spec:\n", "spec:\n  minReadySeconds: 600\n", []string{"spec.progressDeadlineSeconds: Invalid value"}},
		{"ReplicaSet", "{matchLabels: {app: web}}", "{matchLabels: {app: x}}", []string{"spec.template.metadata.labels: Invalid value"}},
		{"StatefulSet", "[{metadata: {name: data}}]", "[]", []string{"spec.template.spec.containers[0].volumeMounts[0].name: Not found"}},
		{"DaemonSet", "spec:\n", "spec:\n  updateStrategy: {rollingUpdate: {maxSurge: 1}}\n", []string{"spec.updateStrategy.rollingUpdate.maxSurge: Invalid value"}},
		{"ReplicationController", "spec: {template", "spec: {selector: {a: b}, template", []string{"spec.template.metadata.labels: Invalid value"}},
		{"ControllerRevision", "data: {a: b}\n", "", []string{"data: Required value"}},

		{"Job", "restartPolicy: Never, ", "", []string{"spec.template.spec.restartPolicy: Required value"}},
		{"Job", "spec: {restartPolicy", "metadata: {labels: {job-name: other}}\n    spec: {restartPolicy", []string{"spec.template.metadata.labels[job-name]: Invalid value"}},
		{"Job", "  template:\n", "  selector: {matchLabels: {a: b}}\n  template:\n", []string{"spec.selector: Invalid value", "spec.template.metadata.labels: Invalid value"}},
		{"Job", "  template:\n", "  completionMode: Indexed\n  parallelism: 1\n  template:\n", []string{"spec.completions: Required value"}},
		{"CronJob", "0 3 * * *", "0 25 * * *", []string{"spec.schedule: Invalid value"}},
		{"CronJob", "0 3 * * *", "TZ=UTC 0 3 * * *", []string{"spec.schedule: Invalid value"}},
		{"CronJob", "  schedule", "  timeZone: Mars/Olympus\n  schedule", []string{"spec.timeZone: Invalid value"}},
		{"CronJob", "name: nightly", "name: " + strings.Repeat("n", 53), []string{"metadata.name: Invalid value"}},

		{"ConfigMap", "key: value", "'a b': x", []string{"data[a b]: Invalid value"}},
		{"ConfigMap", "data: {key: value}", "data: {k: v}\nbinaryData: {k: dg==}", []string{"data[k]: Invalid value"}},
		{"ConfigMap", "key: value", "key: " + strings.Repeat("x", 1<<20+1), []string{"[]: Too long"}},
		{"Secret", ", tls.key: b", "", []string{"data[tls.key]: Required value"}},
		{"Secret", "{tls.crt: a, tls.key: b}", "{tls.crt: a, tls.key: " + strings.Repeat("x", 1<<20) + "}", []string{"data: Too long"}},
		{"Secret", "kubernetes.io/tls", "kubernetes.io/dockerconfigjson", []string{"data[.dockerconfigjson]: Required value"}},
		{"Secret", "kubernetes.io/tls", "kubernetes.io/service-account-token", []string{"metadata.annotations[kubernetes.io/service-account.name]: Required value"}},
		{"Namespace", "name: team", "name: a.b", []string{"metadata.name: Invalid value"}},
		{"Service", "name: web", "name: 1web", []string{"metadata.name: Invalid value"}},
		{"Service", "ports: [{port: 80}]", "ports: []", []string{"spec.ports: Required value"}},
		{"Service", "{port: 80}", "{port: 0, targetPort: 1}", []string{"spec.ports[0].port: Invalid value"}},
		{"Service", "{port: 80}", "{port: 80, name: a}, {port: 80, name: a}", []string{"spec.ports[1].name: Duplicate value", "spec.ports[1]: Duplicate value"}},
		{"Service", "spec: {", "spec: {type: ExternalName, ", []string{"spec.externalName: Required value"}},
		{"Service", "spec: {", "spec: {clusterIP: nowhere, ", []string{"spec.clusterIPs[0]: Invalid value"}},
		{"Endpoints", "10.0.0.1", "nowhere", []string{"subsets[0].addresses[0].ip: Invalid value"}},
		{"Node", "{key: a, effect: NoSchedule}", "{key: a, effect: Never}", []string{"spec.taints[0].effect: Unsupported value"}},
		{"PersistentVolumeClaim", "accessModes: [ReadWriteOnce], ", "", []string{"spec.accessModes: Required value"}},
		{"PersistentVolumeClaim", "storage: 1Gi", "cpu: 1", []string{"spec.resources.requests[storage]: Required value"}},
		{"PersistentVolume", ", hostPath: {path: /x}", "", []string{"spec: Required value"}},
		{"LimitRange", "max: {cpu: 2}", "max: {cpu: 2}, min: {cpu: 3}", []string{"spec.limits[0].min[cpu]: Invalid value"}},
		{"ResourceQuota", "pods: 10", "pods: -1", []string{"spec.hard[pods]: Invalid value"}},

		{"Event", "involvedObject: {namespace: d}", "involvedObject: {namespace: e}", []string{"involvedObject.namespace: Invalid value"}},
		{"Event", "involvedObject: {namespace: d}", "involvedObject: {kind: Node}", []string{"involvedObject.namespace: Invalid value"}},
		{"NewEvent", "action: A\n", "", []string{"action: Required value"}},
		{"NewEvent", "type: Normal", "type: Odd\ndeprecatedCount: 2", []string{"count: Invalid value", "type: Invalid value"}},
		{"NewEvent", "eventTime", "# eventTime", []string{"eventTime: Required value"}},
		{"Lease", "leaseDurationSeconds: 15", "leaseDurationSeconds: 0, leaseTransitions: -1",
			[]string{"spec.leaseDurationSeconds: Invalid value", "spec.leaseTransitions: Invalid value"}},
		{"Role", "name: 'system:x'", "name: a/b", []string{"metadata.name: Invalid value"}},
		{"Role", "verbs: [get], ", "", []string{"rules[0].verbs: Required value"}},
		{"Role", "resources: [pods]", "nonResourceURLs: [/x]", []string{"rules[0].nonResourceURLs: Invalid value"}},
		{"ClusterRole", "nonResourceURLs: [/healthz]", "resources: [pods]", []string{"rules[0].apiGroups: Required value"}},
		{"RoleBinding", "kind: Role, name: x", "kind: Thing, name: ''", []string{"roleRef.kind: Unsupported value", "roleRef.name: Required value"}},
		{"RoleBinding", "kind: User, name: jane", "kind: Cat, name: tom", []string{"subjects[0].kind: Unsupported value"}},
		{"Ingress", "pathType: Prefix, ", "", []string{"spec.rules[0].http.paths[0].pathType: Required value"}},
		{"Ingress", "{number: 80}", "{}", []string{"spec.rules[0].http.paths[0].backend: Required value"}},
		{"Ingress", "host: a.example.com", "host: 10.0.0.1", []string{"spec.rules[0].host: Invalid value"}},
		{"NetworkPolicy", "cidr: 10.0.0.0/8", "cidr: all", []string{"spec.ingress[0].from[0].ipBlock.cidr: Invalid value"}},
		{"PodDisruptionBudget", "minAvailable: 50%", "minAvailable: 150%", []string{"spec.minAvailable: Invalid value"}},
		{"PodDisruptionBudget", "minAvailable: 50%", "minAvailable: 1, maxUnavailable: 1", []string{"spec: Invalid value"}},
		{"EndpointSlice", "addresses: [10.0.0.1]", "addresses: ['::1']", []string{"endpoints[0].addresses[0]: Invalid value"}},
		{"PriorityClass", "value: 1000", "value: 1000000001", []string{"value: Forbidden"}},
		{"PriorityClass", "name: high", "name: system-high", []string{"metadata.name: Forbidden"}},
		{"StorageClass", "provisioner: example.com/disk\n", "", []string{"provisioner: Required value"}},
		{"HorizontalPodAutoscaler", "maxReplicas: 3", "maxReplicas: 3, minReplicas: 4", []string{"spec.maxReplicas: Invalid value"}},
		{"HorizontalPodAutoscaler", "maxReplicas: 3", "maxReplicas: 3, metrics: [{type: Pods}]", []string{"spec.metrics[0].pods: Required value"}},
		{"SubjectAccessReview", "user: u, ", "", []string{"spec.user: Invalid value"}},
		{"LocalSubjectAccessReview", "verb: get, namespace: d", "verb: get, namespace: e", []string{"spec.resourceAttributes.namespace: Invalid value"}},
		{"TokenReview", "token: t", "", []string{"spec.token: Required value"}},
	}
	for _, tt := range tests {
		t.Run(tt.kind+": "+tt.want[0], func(t *testing.T) {
			t.Parallel()
			errs := create(t, read(t, edit(t, valid[tt.kind], tt.old, tt.text)))
			if got := brief(errs); !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestInvalidUpdates(t *testing.T) {
	t.Parallel()
	immutable := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: d}\nimmutable: true\ndata: {key: value}\n"
	bound := valid["PersistentVolumeClaim"]
	tests := []struct {
		name, manifest, old, text string
		want                      []string
	}{
		{"pod: image may change", pod, "nginx:1.29", "nginx:1.30", nil},
		{"pod: a toleration may be added", pod, "spec:\n", "spec:\n  tolerations: [{key: a, operator: Exists}]\n", nil},
		{"pod: a deadline may be set", pod, "spec:\n", "spec:\n  activeDeadlineSeconds: 5\n", nil},
		{"pod: its node may not change", pod, "spec:\n", "spec:\n  nodeName: other\n", []string{"spec: Forbidden"}},
		{"pod: no more containers", pod, "    image: nginx:1.29\n", "    image: nginx:1.29\n  - {name: b, image: c}\n", []string{"spec: Forbidden"}},
		{"deployment: replicas may change", deployment, "spec:\n", "spec:\n  replicas: 4\n", nil},
		{"deployment: selector", deployment, "selector: {matchLabels: {app: web}}", "selector: {matchExpressions: [{key: app, operator: Exists}]}", []string{"spec.selector: Invalid value"}},
		{"statefulset: service name", valid["StatefulSet"], "serviceName: db", "serviceName: other", []string{"spec: Forbidden"}},
		{"statefulset: replicas may change", valid["StatefulSet"], "serviceName: db", "serviceName: db\n  replicas: 3", nil},
		{"daemonset: selector", valid["DaemonSet"], "selector: {matchLabels: {app: logs}}", "selector: {matchExpressions: [{key: app, operator: Exists}]}", []string{"spec.selector: Invalid value"}},
		{"job: template", job, "image: busybox", "image: other", []string{"spec.template: Invalid value"}},
		{"job: parallelism may change", job, "spec:\n", "spec:\n  parallelism: 2\n  completions: 1\n", nil},
		{"job: completions", job, "spec:\n", "spec:\n  parallelism: 1\n  completions: 2\n", []string{"spec.completions: Invalid value"}},
		{"configmap: immutable data", immutable, "key: value", "key: other", []string{"data: Forbidden"}},
		{"configmap: immutable stays", immutable, "immutable: true\n", "", []string{"immutable: Forbidden"}},
		{"configmap: an immutable one's labels may change", immutable, "namespace: d", "namespace: d, labels: {a: b}", nil},
		{"secret: type", valid["Secret"], "kubernetes.io/tls", "Opaque", []string{"type: Invalid value"}},
		{"service: an address may be set", valid["Service"], "spec: {", "spec: {clusterIP: 10.0.0.1, ", nil},
		{"any: a finalizer without a domain", valid["Lease"], "name: l", "name: l, finalizers: [mine]", []string{"metadata.finalizers[0]: Invalid value"}},
		{"any: finalizers of the system and with a domain", valid["Lease"], "name: l", "name: l, finalizers: [orphan, foregroundDeletion, kubernetes, example.com/mine]", nil},
		{"any: an old finalizer without a domain stays", strings.Replace(valid["Lease"], "name: l", "name: l, finalizers: [mine]", 1), "finalizers: [mine]", "finalizers: [mine], labels: {a: b}", nil},
		{"rolebinding: roleRef", valid["RoleBinding"], "kind: Role, name: x", "kind: Role, name: other", []string{"roleRef: Invalid value"}},
		{"rolebinding: subjects may change", valid["RoleBinding"], "name: jane", "name: joe", nil},
		{"storageclass: provisioner", valid["StorageClass"], "example.com/disk", "example.com/tape", []string{"provisioner: Invalid value"}},
		{"priorityclass: value", valid["PriorityClass"], "value: 1000", "value: 1001", []string{"value: Forbidden"}},
		{"event: what has happened", valid["NewEvent"], "reason: R", "reason: S", []string{"reason: Invalid value"}},
		{"event: the series goes on", valid["NewEvent"], "reason: R", "reason: R\nseries: {count: 2, lastObservedTime: '2026-01-01T00:00:01.000000Z'}", nil},
		{"claim: size of an unbound one", bound, "storage: 1Gi", "storage: 2Gi", []string{"spec: Forbidden"}},
		{"claim: may be bound", bound, "spec: {", "spec: {volumeName: v, ", nil},
		{"volume: source", valid["PersistentVolume"], "path: /x", "path: /y", []string{"spec.persistentvolumesource: Forbidden"}},
		{"any: name", valid["Lease"], "name: l", "name: m", []string{"metadata.name: Invalid value"}},
		{"any: still valid", valid["Lease"], "leaseDurationSeconds: 15", "leaseDurationSeconds: 0", []string{"spec.leaseDurationSeconds: Invalid value"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			old, obj := read(t, tt.manifest), read(t, edit(t, tt.manifest, tt.old, tt.text))
			s := lookup(t, old.GetObjectKind().GroupVersionKind()).Strategy
			s.PrepareForCreate(background, old)
			s.PrepareForCreate(background, obj) // a client sends what it read, with the change
			old.(metav1.Object).SetResourceVersion("1")
			obj.(metav1.Object).SetResourceVersion("1")
			s.PrepareForUpdate(background, obj, old)
			got := brief(s.ValidateUpdate(background, obj, old))
			if !slices.Equal(got, append([]string{}, tt.want...)) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestServiceAddressIsKept(t *testing.T) {
	t.Parallel()
	old := read(t, edit(t, valid["Service"], "spec: {", "spec: {clusterIP: 10.0.0.1, "))
	obj := read(t, edit(t, valid["Service"], "spec: {", "spec: {clusterIP: 10.0.0.2, "))
	s := lookup(t, old.GetObjectKind().GroupVersionKind()).Strategy
	s.PrepareForCreate(background, old)
	s.PrepareForUpdate(background, obj, old)
	old.(metav1.Object).SetResourceVersion("1")
	obj.(metav1.Object).SetResourceVersion("1")
	if got := brief(s.ValidateUpdate(background, obj, old)); !slices.Equal(got, []string{"spec.clusterIPs[0]: Invalid value"}) {
		t.Errorf("got %q", got)
	}
}

func TestBoundClaimGrows(t *testing.T) {
	t.Parallel()
	s := lookup(t, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")).Strategy
	for size, want := range map[string][]string{
		"2Gi": {}, "1Gi": {}, "1Mi": {"spec.resources.requests.storage: Forbidden"},
	} {
		old := read(t, valid["PersistentVolumeClaim"]).(*corev1.PersistentVolumeClaim)
		old.Status.Phase, old.ResourceVersion = corev1.ClaimBound, "1"
		obj := read(t, edit(t, valid["PersistentVolumeClaim"], "1Gi", size)).(*corev1.PersistentVolumeClaim)
		obj.ResourceVersion = "1"
		if got := brief(s.ValidateUpdate(background, obj, old)); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", size, got, want)
		}
	}
}

func TestNamespaceStatusFollowsDeletion(t *testing.T) {
	t.Parallel()
	v := lookup(t, namespaceGVK)
	old := read(t, valid["Namespace"]).(*corev1.Namespace)
	old.ResourceVersion = "1"
	obj := old.DeepCopy()
	obj.Status.Phase = corev1.NamespaceTerminating
	if got := brief(v.Status.ValidateUpdate(background, obj, old)); !slices.Equal(got, []string{"status.phase: Invalid value"}) {
		t.Errorf("terminating without a deletion: %q", got)
	}
	now := metav1.Now()
	old.DeletionTimestamp, obj.DeletionTimestamp = &now, &now
	if got := v.Status.ValidateUpdate(background, obj, old); len(got) > 0 {
		t.Errorf("terminating while deleting: %v", got)
	}
}

func TestReplicaCounts(t *testing.T) {
	t.Parallel()
	v := lookup(t, read(t, deployment).GetObjectKind().GroupVersionKind())
	old := read(t, deployment)
	old.(metav1.Object).SetResourceVersion("1")
	obj := read(t, deployment+"status: {replicas: 1, readyReplicas: 2, updatedReplicas: -1}\n")
	obj.(metav1.Object).SetResourceVersion("1")
	want := []string{"status.readyReplicas: Invalid value", "status.updatedReplicas: Invalid value"}
	if got := brief(v.Status.ValidateUpdate(background, obj, old)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestValidationNeverPanics passes an empty and a full object to every strategy.
func TestValidationNeverPanics(t *testing.T) {
	t.Parallel()
	for _, k := range Kinds() {
		for _, v := range k.Versions {
			empty, all := v.New(), full(t, v.GVK)
			v.Strategy.PrepareForCreate(background, empty)
			v.Strategy.PrepareForCreate(background, all)
			if errs := v.Strategy.Validate(background, empty); len(errs) == 0 && !k.Ephemeral {
				t.Errorf("%s: an empty object is valid", v.GVK)
			}
			v.Strategy.Validate(background, all)
			v.Strategy.WarningsOnCreate(background, empty)
			for _, pair := range [][2]runtime.Object{{empty, all}, {all, empty}, {v.New(), v.New()}} {
				obj, old := pair[0].DeepCopyObject(), pair[1]
				v.Strategy.PrepareForUpdate(background, obj, old)
				v.Strategy.ValidateUpdate(background, obj, old)
				v.Strategy.Canonicalize(obj)
				if v.Status != nil {
					v.Status.PrepareForUpdate(background, obj, old)
					v.Status.ValidateUpdate(background, obj, old)
				}
			}
		}
	}
}

func TestCheckSchedule(t *testing.T) {
	t.Parallel()
	for schedule, ok := range map[string]bool{
		"* * * * *":                true,
		"*/5 0-6,12 1 JAN mon-fri": true,
		"0 0 ? * 0":                true,
		"5/10 * * * *":             true,
		"@daily":                   true,
		"@every 1h30m":             true,
		"":                         false,
		"* * * *":                  false,
		"* * * * * *":              false,
		"60 * * * *":               false,
		"* 24 * * *":               false,
		"* * 0 * *":                false,
		"* * * 13 *":               false,
		"* * * * 7":                false,
		"5-1 * * * *":              false,
		"*/0 * * * *":              false,
		"1,,2 * * * *":             false,
		"a * * * *":                false,
		"@never":                   false,
		"@every soon":              false,
	} {
		if err := checkSchedule(schedule); (err == nil) != ok {
			t.Errorf("checkSchedule(%q) = %v, want ok %v", schedule, err, ok)
		}
	}
}

func FuzzCheckSchedule(f *testing.F) {
	for _, seed := range []string{"*/5 * * * *", "@every 1h", "1-2/3 * * * *", "-", "/ / / / /"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, schedule string) {
		if checkSchedule(schedule) == nil && strings.TrimSpace(schedule) == "" {
			t.Errorf("an empty schedule is valid")
		}
	})
}
