package builtin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/exeunt/exeunt/kind"
)

// clock is the time at which tests render tables: two minutes after creation.
var clock = time.Date(2026, 1, 1, 0, 2, 0, 0, time.UTC)

// cells returns a row as `kubectl get` prints it, with the columns of -o wide after a bar.
func cells(t *testing.T, manifest string) string {
	t.Helper()
	obj := read(t, strings.Replace(manifest, "metadata: {", "metadata: {creationTimestamp: '2026-01-01T00:00:00Z', ", 1))
	made, err := frozenTable(t, obj).ConvertToTable(background, obj, &metav1.TableOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var narrow, more []string
	for i, c := range made.ColumnDefinitions {
		cell := fmt.Sprint(made.Rows[0].Cells[i])
		if c.Priority == 0 {
			narrow = append(narrow, cell)
		} else {
			more = append(more, cell)
		}
	}
	return strings.TrimSuffix(strings.Join(narrow, " ; ")+" | "+strings.Join(more, " ; "), " | ")
}

// frozenTable returns the object's convertor with a fixed clock.
func frozenTable(t *testing.T, obj runtime.Object) rest.TableConvertor {
	t.Helper()
	convertor := lookup(t, obj.GetObjectKind().GroupVersionKind()).Table
	c, ok := convertor.(interface {
		at(func() time.Time) rest.TableConvertor
	})
	if !ok {
		return convertor
	}
	return c.at(func() time.Time { return clock })
}

// at returns the same table with another clock.
func (c *convertor[P]) at(now func() time.Time) rest.TableConvertor {
	return &convertor[P]{resource: c.resource, table: c.table, now: now}
}

func TestTables(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, manifest, want string }{
		{"deployment", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 3, selector: {matchLabels: {app: web}}, template: {spec: {containers: [{name: a, image: x}, {name: b, image: z}]}}}
status: {readyReplicas: 2, updatedReplicas: 1, availableReplicas: 2}
`, "web ; 2/3 ; 1 ; 2 ; 2m | a,b ; x,z ; app=web"},
		{"replicaset", "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: r}\nspec: {replicas: 3}\nstatus: {replicas: 2, readyReplicas: 1}\n",
			"r ; 3 ; 2 ; 1 ; 2m |  ;  ; <none>"},
		{"replicationcontroller", "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: r}\nspec: {selector: {a: b}}\n", "r ; 1 ; 0 ; 0 ; 2m |  ;  ; a=b"},
		{"statefulset", "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: s}\nstatus: {readyReplicas: 1}\n", "s ; 1/1 ; 2m |  ; "},
		{"daemonset", "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d}\nspec: {template: {spec: {nodeSelector: {a: b}}}}\nstatus: {desiredNumberScheduled: 3, numberReady: 2}\n",
			"d ; 3 ; 0 ; 2 ; 0 ; 0 ; a=b ; 2m |  ;  ; <none>"},
		{"controllerrevision", "apiVersion: apps/v1\nkind: ControllerRevision\nmetadata: {name: c, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: u, controller: true}]}\nrevision: 4\n",
			"c ; daemonset.apps/d ; 4 ; 2m"},
		{"job", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nstatus: {succeeded: 1, startTime: '2026-01-01T00:01:00Z', completionTime: '2026-01-01T00:01:30Z', conditions: [{type: Complete, status: 'True'}]}\n",
			"j ; Complete ; 1/1 ; 30s ; 2m |  ;  ; <none>"},
		{"job: running", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {parallelism: 3}\nstatus: {startTime: '2026-01-01T00:01:00Z'}\n",
			"j ; Running ; 0/1 of 3 ; 60s ; 2m |  ;  ; <none>"},
		{"cronjob", "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: c}\nspec: {schedule: '@daily'}\nstatus: {lastScheduleTime: '2026-01-01T00:01:50Z', active: [{}]}\n",
			"c ; @daily ; <none> ; False ; 1 ; 10s ; 2m |  ;  ; <none>"},
		{"service", "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {type: NodePort, clusterIP: 10.0.0.1, ports: [{port: 80, nodePort: 30080}, {port: 53, protocol: UDP}], selector: {a: b}}\n",
			"s ; NodePort ; 10.0.0.1 ; <none> ; 80:30080/TCP,53/UDP ; 2m | a=b"},
		{"service: waiting", "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {type: LoadBalancer}\n", "s ; LoadBalancer ; <none> ; <pending> ; <none> ; 2m | <none>"},
		{"service: elsewhere", "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {type: ExternalName, externalName: a.b}\n", "s ; ExternalName ; <none> ; a.b ; <none> ; 2m | <none>"},
		{"endpoints", "apiVersion: v1\nkind: Endpoints\nmetadata: {name: e}\nsubsets: [{addresses: [{ip: 10.0.0.1}, {ip: 10.0.0.2}], ports: [{port: 80}, {port: 81}]}]\n",
			"e ; 10.0.0.1:80,10.0.0.2:80,10.0.0.1:81 + 1 more... ; 2m"},
		{"endpointslice", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: e}\naddressType: IPv4\nendpoints: [{addresses: [10.0.0.1]}]\n", "e ; IPv4 ; <unset> ; 10.0.0.1 ; 2m"},
		{"namespace", "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n", "team ; Active ; 2m"},
		{"node", "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {node-role.kubernetes.io/worker: ''}}\nspec: {unschedulable: true}\nstatus: {conditions: [{type: Ready, status: 'True'}], addresses: [{type: InternalIP, address: 10.0.0.1}], nodeInfo: {kubeletVersion: v1, kernelVersion: '6.1', architecture: amd64}}\n",
			"n1 ; Ready,SchedulingDisabled ; worker ; 2m ; v1 | 10.0.0.1 ; <none> ; <unknown> ; 6.1 (amd64) ; <unknown>"},
		{"configmap", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\nbinaryData: {c: ZA==}\n", "c ; 2 ; 2m"},
		{"secret", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: b}\n", "s ; Opaque ; 1 ; 2m"},
		{"serviceaccount", "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: s}\n", "s ; 2m"},
		{"event", "apiVersion: v1\nkind: Event\nmetadata: {name: e}\ninvolvedObject: {kind: Pod, name: web, fieldPath: spec}\nreason: R\ntype: Normal\nmessage: ' hello '\nlastTimestamp: '2026-01-01T00:01:55Z'\nfirstTimestamp: '2026-01-01T00:01:00Z'\ncount: 3\nsource: {component: c, host: h}\n",
			"5s ; Normal ; R ; pod/web ; hello | spec ; c, h ; 60s ; 3 ; e"},
		{"event of events.k8s.io", "apiVersion: events.k8s.io/v1\nkind: Event\nmetadata: {name: e}\nregarding: {kind: Pod}\nreason: R\ntype: Normal\nnote: hello\neventTime: '2026-01-01T00:01:00.000000Z'\nseries: {count: 9, lastObservedTime: '2026-01-01T00:01:58.000000Z'}\nreportingController: c\n",
			"2s ; Normal ; R ; pod ; hello |  ; c ; 60s ; 9 ; e"},
		{"lease", "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: l}\nspec: {holderIdentity: me}\n", "l ; me ; 2m"},
		{"claim", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c}\nspec: {volumeName: v, storageClassName: fast}\nstatus: {phase: Bound, capacity: {storage: 1Gi}, accessModes: [ReadWriteMany, ReadWriteOnce]}\n",
			"c ; Bound ; v ; 1Gi ; RWO,RWX ; fast ; <unset> ; 2m | Filesystem"},
		{"volume", "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], claimRef: {namespace: d, name: c}}\n",
			"v ; 1Gi ; RWO ; Retain ; Pending ; d/c ;  ; <unset> ;  ; 2m | Filesystem"},
		{"quota", "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nstatus: {hard: {pods: 4, limits.cpu: 2}, used: {pods: 1, limits.cpu: 1}}\n", "q ; pods: 1/4 ; limits.cpu: 1/2 ; 2m"},
		{"ingress", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: i}\nspec: {ingressClassName: nginx, tls: [{}], rules: [{host: a}, {host: b}, {host: c}, {host: d}]}\nstatus: {loadBalancer: {ingress: [{ip: 10.0.0.1}]}}\n",
			"i ; nginx ; a,b,c + 1 more... ; 10.0.0.1 ; 80, 443 ; 2m"},
		{"networkpolicy", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: np}\nspec: {podSelector: {matchLabels: {a: b}}}\n", "np ; a=b ; 2m"},
		{"rolebinding", "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: b}\nroleRef: {kind: Role, name: r}\nsubjects: [{kind: User, name: jane}, {kind: Group, name: g}, {kind: ServiceAccount, namespace: d, name: s}]\n",
			"b ; Role/r ; 2m | jane ; g ; d/s"},
		{"role", "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r}\n", "r ; 2026-01-01T00:00:00Z"},
		{"budget", "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: p}\nspec: {minAvailable: 50%}\nstatus: {disruptionsAllowed: 2}\n", "p ; 50% ; N/A ; 2 ; 2m"},
		{"priorityclass", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: p}\nvalue: 7\n", "p ; 7 ; false ; 2m ; PreemptLowerPriority"},
		{"certificate request", "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {name: r}\nspec: {signerName: a.b/c, username: jane, expirationSeconds: 7200}\n", "r ; 2m ; a.b/c ; jane ; 120m ; Pending"},
		{"certificate request, issued", "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {name: r}\nspec: {signerName: a.b/c}\nstatus: {certificate: eA==, conditions: [{type: Approved}]}\n", "r ; 2m ; a.b/c ;  ; <none> ; Approved,Issued"},
		{"storageclass", "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: s}\nprovisioner: p\n", "s ; p ; Delete ; Immediate ; false ; 2m"},
		{"autoscaler", "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: h}\nspec: {scaleTargetRef: {kind: Deployment, name: web}, maxReplicas: 5}\nstatus: {currentReplicas: 2, currentMetrics: [{type: Resource, resource: {name: cpu, current: {averageUtilization: 40}}}]}\n",
			"h ; Deployment/web ; cpu: 40%/80% ; 1 ; 5 ; 2 ; 2m"},
		{"autoscaler: a metric without its source", "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: h}\nspec: {maxReplicas: 5, metrics: [{type: Pods}, {type: External}, {type: Odd}]}\n",
			"h ; / ; <unknown>/<unknown>, <unknown>/<unknown> + 1 more... ; 1 ; 5 ; 0 ; 2m"},
		{"podtemplate", "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: p}\ntemplate: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: d}]}}\n", "p ; c ; d ; a=b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := cells(t, tt.manifest); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestPodTable(t *testing.T) {
	t.Parallel()
	head := "apiVersion: v1\nkind: Pod\nmetadata: {name: web%s}\nspec: {nodeName: n1, containers: [{name: a}, {name: b}], initContainers: [{name: i}, {name: s, restartPolicy: Always}]}\nstatus: {phase: %s, podIP: 10.0.0.1, %s}\n"
	running := "{name: a, ready: true, state: {running: {}}, restartCount: 1, lastState: {terminated: {finishedAt: '2026-01-01T00:01:30Z'}}}, {name: b, ready: true, state: {running: {}}}"
	sidecar := "initContainerStatuses: [{name: i, state: {terminated: {exitCode: 0}}}, {name: s, started: true, ready: true, state: {running: {}}}], "
	gone := ", deletionTimestamp: '2026-01-01T00:01:00Z'"
	tests := []struct{ name, meta, phase, status, want string }{
		{"pending", "", "Pending", "", "0/3 ; Pending ; 0"},
		{"gated", "", "Pending", "conditions: [{type: PodScheduled, status: 'False', reason: SchedulingGated}]", "0/3 ; SchedulingGated ; 0"},
		{"running with a restart", "", "Running", sidecar + "containerStatuses: [" + running + "]", "3/3 ; Running ; 1 (30s ago)"},
		{"initializing", "", "Pending", "initContainerStatuses: [{name: i, state: {running: {}}}]", "0/3 ; Init:0/2 ; 0"},
		{"init failed", "", "Pending", "initContainerStatuses: [{name: i, restartCount: 2, state: {terminated: {exitCode: 1}}}]", "0/3 ; Init:ExitCode:1 ; 2"},
		{"init crashes", "", "Pending", "initContainerStatuses: [{name: i, state: {waiting: {reason: CrashLoopBackOff}}}]", "0/3 ; Init:CrashLoopBackOff ; 0"},
		{"crashes", "", "Running", sidecar + "containerStatuses: [{name: a, restartCount: 4, state: {waiting: {reason: CrashLoopBackOff}}}]", "1/3 ; CrashLoopBackOff ; 4"},
		{"completed", "", "Succeeded", "containerStatuses: [{name: a, state: {terminated: {reason: Completed}}}]", "0/3 ; Completed ; 0"},
		{"one completed, one runs", "", "Running", "containerStatuses: [{name: a, state: {terminated: {reason: Completed}}}, {name: b, ready: true, state: {running: {}}}]", "1/3 ; NotReady ; 0"},
		{"one completed, one failed", "", "Failed", "containerStatuses: [{name: a, state: {terminated: {reason: Completed}}}, {name: b, state: {terminated: {exitCode: 2, reason: Error}}}]", "0/3 ; Error ; 0"},
		{"killed", "", "Failed", "containerStatuses: [{name: a, state: {terminated: {exitCode: 137, signal: 9}}}]", "0/3 ; Signal:9 ; 0"},
		{"evicted", "", "Failed", "reason: Evicted", "0/3 ; Evicted ; 0"},
		{"terminating", gone, "Running", "", "0/3 ; Terminating ; 0"},
		{"ended before it was deleted", gone, "Succeeded", "containerStatuses: [{name: a, state: {terminated: {reason: Completed}}}]", "0/3 ; Completed ; 0"},
		{"its node is lost", gone, "Running", "reason: NodeLost", "0/3 ; Unknown ; 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := "web ; " + tt.want + " ; 2m | 10.0.0.1 ; n1 ; <none> ; <none>"
			if got := cells(t, fmt.Sprintf(head, tt.meta, tt.phase, tt.status)); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestTableOfAList(t *testing.T) {
	t.Parallel()
	left := int64(5)
	list := &corev1.PodList{
		ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: "more", RemainingItemCount: &left},
		Items:    []corev1.Pod{{Status: corev1.PodStatus{Phase: corev1.PodFailed}}, {}},
	}
	convertor := lookup(t, corev1.SchemeGroupVersion.WithKind("Pod")).Table
	made, err := convertor.ConvertToTable(background, list, &metav1.TableOptions{NoHeaders: true})
	if err != nil {
		t.Fatal(err)
	}
	if made.ResourceVersion != "9" || made.Continue != "more" || made.RemainingItemCount == nil || *made.RemainingItemCount != 5 {
		t.Errorf("list metadata became %+v", made.ListMeta)
	}
	if len(made.Rows) != 2 || made.Rows[0].Object.Object != runtime.Object(&list.Items[0]) {
		t.Fatalf("rows are %+v", made.Rows)
	}
	if len(made.Rows[0].Conditions) != 1 || len(made.Rows[1].Conditions) != 0 {
		t.Errorf("conditions are %v and %v", made.Rows[0].Conditions, made.Rows[1].Conditions)
	}
	if len(made.ColumnDefinitions) != 0 {
		t.Errorf("there are headers")
	}
	if _, err := convertor.ConvertToTable(background, &corev1.ConfigMap{}, nil); err == nil {
		t.Errorf("a ConfigMap became a row of pods")
	}
}

// TestTableOfEveryKind checks that each row has a cell for each column, of a JSON type, for an
// empty and for a full object. The review kinds have no table.
func TestTableOfEveryKind(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v *kind.Version) {
		if v.Kind.Ephemeral {
			if v.Table != nil {
				t.Error("a review kind has a table")
			}
			return
		}
		objects := []runtime.Object{v.New(), full(t, v.GVK)}
		if v.NewList != nil {
			list := v.NewList()
			if err := meta.SetList(list, objects); err != nil {
				t.Fatal(err)
			}
			objects = append(objects, list)
		}
		for _, obj := range objects {
			made, err := v.Table.ConvertToTable(background, obj, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range made.Rows {
				if len(row.Cells) != len(made.ColumnDefinitions) {
					t.Fatalf("%d cells in %d columns", len(row.Cells), len(made.ColumnDefinitions))
				}
				row.DeepCopy() // panics at a cell that JSON has no type for
			}
			for _, c := range made.ColumnDefinitions {
				if c.Description == "" {
					t.Errorf("column %s is not described", c.Name)
				}
			}
		}
	})
}

func TestFieldLabels(t *testing.T) {
	t.Parallel()
	podKind, v1 := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion
	eventKind := schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"}
	tests := []struct {
		gvk                schema.GroupVersionKind
		label, value, want string
	}{
		{podKind, "metadata.name", "a", "metadata.name"},
		{podKind, "spec.nodeName", "n", "spec.nodeName"},
		{podKind, "spec.host", "n", "spec.nodeName"},
		{podKind, "spec.hostNetwork", "false", "spec.hostNetwork"},
		{v1.WithKind("Node"), "spec.unschedulable", "false", "spec.unschedulable"},
		{v1.WithKind("Event"), "source", "kubelet", "source"},
		{v1.WithKind("ConfigMap"), "metadata.namespace", "d", "metadata.namespace"},
		{eventKind, "regarding.name", "web", "involvedObject.name"},
		{schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, "status.successful", "0", "status.successful"},
	}
	for _, tt := range tests {
		label, value, err := Scheme().ConvertFieldLabel(tt.gvk, tt.label, tt.value)
		if err != nil || label != tt.want || value != tt.value {
			t.Errorf("%s %s=%s: %s=%s, %v", tt.gvk.Kind, tt.label, tt.value, label, value, err)
		}
	}
	for _, gvk := range []schema.GroupVersionKind{podKind, eventKind, v1.WithKind("ConfigMap")} {
		if _, _, err := Scheme().ConvertFieldLabel(gvk, "spec.color", "red"); err == nil {
			t.Errorf("%s can be selected by its color", gvk.Kind)
		}
	}
}

func TestSelectableFields(t *testing.T) {
	t.Parallel()
	for gvk, want := range map[schema.GroupVersionKind]string{
		corev1.SchemeGroupVersion.WithKind("Pod"): "spec.hostNetwork spec.nodeName spec.restartPolicy spec.schedulerName " +
			"spec.serviceAccountName status.nominatedNodeName status.phase status.podIP",
		corev1.SchemeGroupVersion.WithKind("Service"):   "spec.clusterIP spec.type",
		corev1.SchemeGroupVersion.WithKind("ConfigMap"): "",
		{Group: "events.k8s.io", Version: "v1", Kind: "Event"}: "involvedObject.apiVersion involvedObject.fieldPath involvedObject.kind involvedObject.name " +
			"involvedObject.namespace involvedObject.resourceVersion involvedObject.uid reason reportingComponent type",
	} {
		if got := strings.Join(lookup(t, gvk).SelectableFields, " "); got != want {
			t.Errorf("%s: %s", gvk, got)
		}
	}
}
