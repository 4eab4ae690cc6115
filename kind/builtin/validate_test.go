package builtin

import (
	"slices"
	"sort"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

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
	_, errs := s.Create(background, obj)
	return errs
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
	"Pod": aPod, "Deployment": aDeployment, "Job": aJob,
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
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
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
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, maxReplicas: 3}
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
			body, err := v.Encode(obj)
			if err == nil {
				obj, err = v.Decode(body, "1")
			}
			if err != nil {
				t.Fatal(err)
			}
			same := obj.DeepCopyObject()
			if _, errs := v.Strategy.Update(background, same, obj); len(errs) > 0 {
				t.Errorf("update without a change: %v", errs.ToAggregate())
			}
			for what, pair := range map[string][2]runtime.Object{
				"bodies without defaults": {bare(t, obj), bare(t, obj)}, "a stored body without defaults": {obj.DeepCopyObject(), bare(t, obj)},
			} {
				if _, errs := v.Strategy.Update(background, pair[0], pair[1]); len(errs) > 0 {
					t.Errorf("update of %s: %v", what, errs.ToAggregate())
				}
				equal(t, "the update of "+what, pair[0], same)
			}
		})
	}
}

// bare is an object without every field that defaulting sets as it is: a server before the default existed stored it so.
func bare(t *testing.T, obj runtime.Object) runtime.Object {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	typed := func() runtime.Object {
		out := lookup(t, obj.GetObjectKind().GroupVersionKind()).New()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(runtime.DeepCopyJSON(content), out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	var strip func(value any)
	strip = func(value any) {
		switch v := value.(type) {
		case []any:
			for _, item := range v {
				strip(item)
			}
		case map[string]any:
			for name, field := range v {
				delete(v, name)
				without := typed()
				Scheme().Default(without)
				if !equality.Semantic.DeepEqual(without, obj) {
					v[name] = field
					strip(field)
				}
			}
		}
	}
	strip(content)
	return typed()
}

func TestInvalidUpdates(t *testing.T) {
	t.Parallel()
	immutable := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: d}\nimmutable: true\ndata: {key: value}\n"
	tests := []struct {
		name, manifest, old, text string
		want                      []string
	}{
		{"pod: image may change", aPod, "nginx:1.29", "nginx:1.30", nil},
		{"pod: its node may not change", aPod, "spec:\n", "spec:\n  nodeName: other\n", []string{"spec: Forbidden"}},
		{"deployment: selector", aDeployment, "selector: {matchLabels: {app: web}}", "selector: {matchExpressions: [{key: app, operator: Exists}]}", []string{"spec.selector: Invalid value"}},
		{"job: template", aJob, "image: busybox", "image: other", []string{"spec.template: Invalid value"}},
		{"job: parallelism may change", aJob, "spec:\n", "spec:\n  parallelism: 2\n  completions: 1\n", nil},
		{"configmap: data of an immutable one", immutable, "key: value", "key: other", []string{"data: Forbidden"}},
		{"configmap: an immutable one's labels may change", immutable, "namespace: d", "namespace: d, labels: {a: b}", nil},
		{"service: an address may be set", valid["Service"], "spec: {", "spec: {clusterIP: 10.0.0.1, ", nil},
		{"event: what has happened", valid["NewEvent"], "reason: R", "reason: S", []string{"reason: Invalid value"}},
		{"any: a finalizer without a domain", valid["Secret"], "name: s", "name: s, finalizers: [mine]", []string{"metadata.finalizers[0]: Invalid value"}},
		{"any: name", valid["Lease"], "name: l", "name: m", []string{"metadata.name: Invalid value"}},
		{"any: still valid", valid["Lease"], "leaseDurationSeconds: 15", "leaseDurationSeconds: 0", []string{"spec.leaseDurationSeconds: Invalid value"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			old, obj := read(t, tt.manifest), read(t, edit(t, tt.manifest, tt.old, tt.text))
			s := lookup(t, old.GetObjectKind().GroupVersionKind()).Strategy
			s.Create(background, old)
			s.Create(background, obj) // a client sends what it read, with the change
			old.(metav1.Object).SetResourceVersion("1")
			obj.(metav1.Object).SetResourceVersion("1")
			_, errs := s.Update(background, obj, old)
			got := brief(errs)
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
	s.Create(background, old)
	old.(metav1.Object).SetResourceVersion("1")
	obj.(metav1.Object).SetResourceVersion("1")
	_, errs := s.Update(background, obj, old)
	if got := brief(errs); !slices.Equal(got, []string{"spec.clusterIPs[0]: Invalid value"}) {
		t.Errorf("got %q", got)
	}
}

// TestValidationNeverPanics passes an empty and a full object to every strategy.
func TestValidationNeverPanics(t *testing.T) {
	t.Parallel()
	for _, k := range Kinds() {
		for _, v := range k.Versions {
			empty, all := v.New(), full(t, v.GVK)
			v.Strategy.Create(background, empty)
			v.Strategy.Create(background, all)
			for _, pair := range [][2]runtime.Object{{empty, all}, {all, empty}, {v.New(), v.New()}} {
				obj, old := pair[0].DeepCopyObject(), pair[1]
				v.Strategy.Update(background, obj, old)
				if v.Status != nil {
					v.Status.Update(background, obj, old)
				}
			}
		}
	}
}

// TestForgiven: endpoints may be on loopback, the port of a health check is found later, and pods
// may be privileged.
func TestForgiven(t *testing.T) {
	t.Parallel()
	for _, manifest := range []string{
		"{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: e, namespace: d}, addressType: IPv4, endpoints: [{addresses: [127.0.0.1]}]}",
		"{apiVersion: v1, kind: Endpoints, metadata: {name: e, namespace: d}, subsets: [{addresses: [{ip: 127.0.0.1}], ports: [{port: 80}]}]}",
		"{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: d}, spec: {containers: [{name: c, image: i, securityContext: {privileged: true}}]}}",
		"{apiVersion: v1, kind: Service, metadata: {name: s, namespace: d}, spec: {type: LoadBalancer, externalTrafficPolicy: Local, ports: [{port: 80}]}}",
	} {
		if errs := create(t, read(t, manifest)); len(errs) > 0 {
			t.Errorf("%s: %v", manifest, errs)
		}
	}
}
