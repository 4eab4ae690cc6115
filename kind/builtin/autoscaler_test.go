package builtin

import (
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// anAutoscaler has what v1 has no field for: every type of metric, behavior, conditions.
const anAutoscaler = `
metadata: {name: web, annotations: {mine: "1"}}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 9
  metrics:
  - {type: Object, object: {describedObject: {kind: Ingress, name: i}, metric: {name: hits, selector: {matchLabels: {a: b}}}, target: {type: Value, value: 10k}}}
  - {type: Object, object: {describedObject: {kind: Ingress, name: i}, metric: {name: hits}, target: {type: AverageValue, averageValue: "5"}}}
  - {type: Pods, pods: {metric: {name: queue}, target: {type: AverageValue, averageValue: "30"}}}
  - {type: Resource, resource: {name: memory, target: {type: AverageValue, averageValue: 1Gi}}}
  - {type: ContainerResource, containerResource: {name: cpu, container: app, target: {type: Utilization, averageUtilization: 70}}}
  - {type: External, external: {metric: {name: lag, selector: {matchLabels: {q: r}}}, target: {type: Value, value: "7"}}}
  - {type: External, external: {metric: {name: lag}, target: {type: AverageValue, averageValue: "7"}}}
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}
  behavior:
    scaleUp: {stabilizationWindowSeconds: 0, selectPolicy: Max, policies: [{type: Pods, value: 4, periodSeconds: 15}]}
    scaleDown: {selectPolicy: Disabled, tolerance: 50m}
status:
  currentReplicas: 3
  desiredReplicas: 4
  observedGeneration: 5
  conditions: [{type: AbleToScale, status: "True", reason: Ready, message: fine, lastTransitionTime: "2026-01-02T03:04:05Z"}]
  currentMetrics:
  - {type: Object, object: {describedObject: {kind: Ingress, name: i}, metric: {name: hits}, current: {value: 9k}}}
  - {type: Pods, pods: {metric: {name: queue}, current: {averageValue: "29"}}}
  - {type: ContainerResource, containerResource: {name: cpu, container: app, current: {averageUtilization: 71, averageValue: 10m}}}
  - {type: External, external: {metric: {name: lag}, current: {value: "0", averageValue: "6"}}}
  - {type: Resource, resource: {name: cpu, current: {averageUtilization: 61, averageValue: 100m}}}
`

func readAutoscaler(t *testing.T) *autoscalingv2.HorizontalPodAutoscaler {
	t.Helper()
	h := &autoscalingv2.HorizontalPodAutoscaler{}
	if err := yaml.UnmarshalStrict([]byte(anAutoscaler), h); err != nil {
		t.Fatal(err)
	}
	return h
}

// TestAutoscalerVersions converts an autoscaler to v1 and back. The annotations are those
// that Kubernetes 1.37 writes.
func TestAutoscalerVersions(t *testing.T) {
	t.Parallel()
	v2 := readAutoscaler(t)
	v1 := toOldAutoscaler(v2)
	if *v1.Spec.TargetCPUUtilizationPercentage != 60 || *v1.Status.CurrentCPUUtilizationPercentage != 61 || *v1.Spec.MinReplicas != 2 || v1.Status.DesiredReplicas != 4 {
		t.Errorf("v1 is %+v", v1)
	}
	for name, want := range map[string]string{
		"mine":                   "1",
		behaviorAnnotation:       `{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":null},"ScaleDown":{"StabilizationWindowSeconds":null,"SelectPolicy":"Disabled","Policies":null,"Tolerance":"50m"}}`,
		conditionsAnnotation:     `[{"type":"AbleToScale","status":"True","lastTransitionTime":"2026-01-02T03:04:05Z","reason":"Ready","message":"fine"}]`,
		metricsAnnotation:        `[{"type":"Object","object":{"target":{"kind":"Ingress","name":"i"},"metricName":"hits","targetValue":"10k","selector":{"matchLabels":{"a":"b"}}}},`,
		currentMetricsAnnotation: `[{"type":"Object","object":{"target":{"kind":"Ingress","name":"i"},"metricName":"hits","currentValue":"9k"}},`,
	} {
		if got := v1.Annotations[name]; !strings.HasPrefix(got, want) {
			t.Errorf("%s is\n%s, want\n%s", name, got, want)
		}
	}
	equal(t, "v2 after v1", toNewAutoscaler(v1), v2)
	equal(t, "the argument", v2, readAutoscaler(t))
}

// TestAutoscalerOfOldClients: a v1 client that does not know the annotations sets the
// metrics and keeps the status; annotations that it broke have no effect.
func TestAutoscalerOfOldClients(t *testing.T) {
	t.Parallel()
	v := lookup(t, schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "HorizontalPodAutoscaler"})
	old := toOldAutoscaler(readAutoscaler(t))
	sent := old.DeepCopy()
	sent.Annotations = nil
	v.Strategy.PrepareForUpdate(background, sent, old)
	if sent.Annotations[conditionsAnnotation] != old.Annotations[conditionsAnnotation] || sent.Annotations[metricsAnnotation] != "" || sent.Generation != 1 {
		t.Errorf("the update became %+v", sent.ObjectMeta)
	}
	sent = old.DeepCopy()
	sent.Spec.TargetCPUUtilizationPercentage = nil
	for name := range sent.Annotations {
		sent.Annotations[name] = "{"
	}
	sent.Annotations["mine"] = "2"
	got := toNewAutoscaler(sent)
	if len(got.Spec.Metrics) != 1 || *got.Spec.Metrics[0].Resource.Target.AverageUtilization != 80 || got.Spec.Behavior != nil || got.Status.Conditions != nil || len(got.Annotations) != 1 {
		t.Errorf("broken annotations became %+v", got)
	}
	if errs := v.Strategy.Validate(background, &autoscalingv1.HorizontalPodAutoscaler{}); !strings.Contains(errs.ToAggregate().Error(), "spec.maxReplicas") {
		t.Errorf("an empty one: %v", errs)
	}
}
