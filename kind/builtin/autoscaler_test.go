package builtin

import (
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	"sigs.k8s.io/yaml"

	"github.com/exeunt/exeunt/object"
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

// TestAutoscalerVersions: v1 shows all that is stored, gives it back, and keeps the status of a
// client that does not know the annotations.
func TestAutoscalerVersions(t *testing.T) {
	t.Parallel()
	v := lookup(t, schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "HorizontalPodAutoscaler"})
	v2 := readAutoscaler(t)
	body, err := object.Encode(v2)
	if err != nil {
		t.Fatal(err)
	}
	obj, err := v.Decode(body, "")
	if err != nil {
		t.Fatal(err)
	}
	v1 := obj.(*autoscalingv1.HorizontalPodAutoscaler)
	if *v1.Spec.TargetCPUUtilizationPercentage != 60 || *v1.Status.CurrentCPUUtilizationPercentage != 61 || *v1.Spec.MinReplicas != 2 || v1.Annotations["mine"] != "1" {
		t.Errorf("v1 is %+v", v1)
	}
	again, err := v.Encode(v1)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "the stored form", again, body)
	sent := v1.DeepCopy()
	sent.Annotations = nil
	v.Strategy.Update(background, sent, v1)
	conditions := autoscaling.HorizontalPodAutoscalerConditionsAnnotation
	if sent.Annotations[conditions] != v1.Annotations[conditions] || sent.Annotations[autoscaling.MetricSpecsAnnotation] != "" || sent.Generation != 1 {
		t.Errorf("the update became %+v", sent.ObjectMeta)
	}
	sent.Annotations[autoscaling.MetricSpecsAnnotation] = "{"
	if _, errs := v.Strategy.Create(background, sent); len(errs) == 0 {
		t.Error("an annotation that does not parse is valid")
	}
}
