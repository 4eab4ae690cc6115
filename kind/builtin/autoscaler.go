package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// autoscalingKinds has one kind in two versions. v2 is stored. v1 knows one target, the
// utilization of the CPU; as in Kubernetes, it carries all else in annotations.
func autoscalingKinds() []*kind.Kind {
	k := def[autoscalingv2.HorizontalPodAutoscaler, *autoscalingv2.HorizontalPodAutoscaler]{
		gv: autoscalingv2.SchemeGroupVersion, plural: "horizontalpodautoscalers", short: []string{"hpa"}, all: true,
		parts:      func(h *autoscalingv2.HorizontalPodAutoscaler) (any, any) { return &h.Spec, &h.Status },
		generation: true,
		validate:   validateAutoscaler,
		table:      autoscalerTable,
	}.kind()
	view := def[autoscalingv1.HorizontalPodAutoscaler, *autoscalingv1.HorizontalPodAutoscaler]{
		gv: autoscalingv1.SchemeGroupVersion, plural: "horizontalpodautoscalers",
		parts:  func(h *autoscalingv1.HorizontalPodAutoscaler) (any, any) { return &h.Spec, &h.Status },
		decode: decodeOldAutoscaler,
		encode: encodeOldAutoscaler,
		table:  oldAutoscalerTable,
	}
	v1 := view.version(k, view.gvk())
	v1.Strategy = oldAutoscalerStrategy{k.Versions[0].Strategy}
	v1.Status = oldAutoscalerStrategy{k.Versions[0].Status}
	k.Versions = append(k.Versions, v1)
	return []*kind.Kind{k}
}

func decodeOldAutoscaler(body []byte, resourceVersion string) (runtime.Object, error) {
	stored := &autoscalingv2.HorizontalPodAutoscaler{}
	if err := object.DecodeInto(body, resourceVersion, autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), stored); err != nil {
		return nil, err
	}
	h := toOldAutoscaler(stored)
	h.SetGroupVersionKind(autoscalingv1.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"))
	return h, nil
}

func encodeOldAutoscaler(obj runtime.Object) ([]byte, error) {
	h, ok := obj.(*autoscalingv1.HorizontalPodAutoscaler)
	if !ok {
		return nil, fmt.Errorf("encode autoscaler: unexpected type %T", obj)
	}
	return object.Encode(toNewAutoscaler(h))
}

func oldAutoscalerTable() table[*autoscalingv1.HorizontalPodAutoscaler] {
	v2 := autoscalerTable()
	return table[*autoscalingv1.HorizontalPodAutoscaler]{
		columns: v2.columns,
		row: func(h *autoscalingv1.HorizontalPodAutoscaler, now time.Time) []any {
			return v2.row(toNewAutoscaler(h), now)
		},
	}
}

// oldAutoscalerStrategy decides about an object of v1 as about the v2 object that it means.
// So a client of v1 that does not send the annotations of the status keeps the status.
type oldAutoscalerStrategy struct{ lifecycle.Strategy }

func (s oldAutoscalerStrategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	h := obj.(*autoscalingv1.HorizontalPodAutoscaler)
	v2 := toNewAutoscaler(h)
	s.Strategy.PrepareForCreate(ctx, v2)
	assignOldAutoscaler(h, v2)
}

func (s oldAutoscalerStrategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	h := obj.(*autoscalingv1.HorizontalPodAutoscaler)
	v2 := toNewAutoscaler(h)
	s.Strategy.PrepareForUpdate(ctx, v2, toNewAutoscaler(old.(*autoscalingv1.HorizontalPodAutoscaler)))
	assignOldAutoscaler(h, v2)
}

func (s oldAutoscalerStrategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return s.Strategy.Validate(ctx, toNewAutoscaler(obj.(*autoscalingv1.HorizontalPodAutoscaler)))
}

func (s oldAutoscalerStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return s.Strategy.ValidateUpdate(ctx, toNewAutoscaler(obj.(*autoscalingv1.HorizontalPodAutoscaler)), toNewAutoscaler(old.(*autoscalingv1.HorizontalPodAutoscaler)))
}

func (s oldAutoscalerStrategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

func (s oldAutoscalerStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

func (s oldAutoscalerStrategy) Canonicalize(runtime.Object) {}

func assignOldAutoscaler(h *autoscalingv1.HorizontalPodAutoscaler, v2 *autoscalingv2.HorizontalPodAutoscaler) {
	said := h.TypeMeta
	*h = *toOldAutoscaler(v2)
	h.TypeMeta = said
}

// The annotations in which v1 carries what only v2 has.
const (
	metricsAnnotation        = "autoscaling.alpha.kubernetes.io/metrics"
	currentMetricsAnnotation = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation     = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorAnnotation       = "autoscaling.alpha.kubernetes.io/behavior"
	scaleDownAnnotation      = "autoscaling.alpha.kubernetes.io/scale-down-tolerance" // written by old releases only
	scaleUpAnnotation        = "autoscaling.alpha.kubernetes.io/scale-up-tolerance"
)

// toOldAutoscaler and toNewAutoscaler share memory between result and argument, except for
// the annotations. An annotation that a client broke is ignored, as in Kubernetes.
func toOldAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv1.HorizontalPodAutoscaler {
	out := &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: h.ObjectMeta,
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(h.Spec.ScaleTargetRef),
			MinReplicas:    h.Spec.MinReplicas, MaxReplicas: h.Spec.MaxReplicas,
		},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{
			ObservedGeneration: h.Status.ObservedGeneration, LastScaleTime: h.Status.LastScaleTime,
			CurrentReplicas: h.Status.CurrentReplicas, DesiredReplicas: h.Status.DesiredReplicas,
		},
	}
	var others []autoscalingv1.MetricSpec
	for i := range h.Spec.Metrics {
		switch m := &h.Spec.Metrics[i]; {
		case !isCPUTarget(m):
			others = append(others, oldMetric(m))
		case out.Spec.TargetCPUUtilizationPercentage == nil:
			out.Spec.TargetCPUUtilizationPercentage = m.Resource.Target.AverageUtilization
		}
	}
	var current []autoscalingv1.MetricStatus
	for i := range h.Status.CurrentMetrics {
		m := &h.Status.CurrentMetrics[i]
		if isCPU(m) && m.Resource.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
		}
		current = append(current, oldMetricStatus(m))
	}
	out.Annotations = withoutAutoscalerAnnotations(h.Annotations)
	annotate(&out.Annotations, metricsAnnotation, others, len(others) > 0)
	annotate(&out.Annotations, currentMetricsAnnotation, current, len(current) > 0)
	annotate(&out.Annotations, conditionsAnnotation, h.Status.Conditions, len(h.Status.Conditions) > 0)
	if h.Spec.Behavior != nil {
		annotate(&out.Annotations, behaviorAnnotation, toOldBehavior(h.Spec.Behavior), true)
	}
	return out
}

func toNewAutoscaler(h *autoscalingv1.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler {
	out := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: h.ObjectMeta,
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(h.Spec.ScaleTargetRef),
			MinReplicas:    h.Spec.MinReplicas, MaxReplicas: h.Spec.MaxReplicas,
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: h.Status.ObservedGeneration, LastScaleTime: h.Status.LastScaleTime,
			CurrentReplicas: h.Status.CurrentReplicas, DesiredReplicas: h.Status.DesiredReplicas,
		},
	}
	for _, m := range annotated[[]autoscalingv1.MetricSpec](h, metricsAnnotation) {
		out.Spec.Metrics = append(out.Spec.Metrics, newMetric(&m))
	}
	if target := h.Spec.TargetCPUUtilizationPercentage; target != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, cpuTarget(*target))
	}
	if len(out.Spec.Metrics) == 0 {
		out.Spec.Metrics = []autoscalingv2.MetricSpec{cpuTarget(defaultCPUTarget)}
	}
	if b := annotated[oldBehavior](h, behaviorAnnotation); b != (oldBehavior{}) {
		out.Spec.Behavior = b.toNew()
	}
	if current := h.Status.CurrentCPUUtilizationPercentage; current != nil {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{
			Type:     autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricStatus{Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: current}},
		}}
	}
	if current := annotated[[]autoscalingv1.MetricStatus](h, currentMetricsAnnotation); current != nil {
		out.Status.CurrentMetrics = nil // the annotation says more
		for _, m := range current {
			out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, newMetricStatus(&m))
		}
	}
	out.Status.Conditions = annotated[[]autoscalingv2.HorizontalPodAutoscalerCondition](h, conditionsAnnotation)
	out.Annotations = withoutAutoscalerAnnotations(h.Annotations)
	return out
}

// withoutAutoscalerAnnotations returns the annotations that are the client's own: the same
// map, or a copy.
func withoutAutoscalerAnnotations(in map[string]string) map[string]string {
	out, copied := in, false
	for _, name := range []string{metricsAnnotation, currentMetricsAnnotation, conditionsAnnotation, behaviorAnnotation, scaleDownAnnotation, scaleUpAnnotation} {
		if _, has := out[name]; !has {
			continue
		}
		if !copied {
			out, copied = maps.Clone(out), true
		}
		delete(out, name)
	}
	return out
}

// annotate sets an annotation in a copy of the map.
func annotate(annotations *map[string]string, name string, value any, set bool) {
	text, err := json.Marshal(value)
	if !set || err != nil { // these types always marshal
		return
	}
	out := map[string]string{name: string(text)}
	maps.Copy(out, *annotations)
	*annotations = out
}

func annotated[T any](h *autoscalingv1.HorizontalPodAutoscaler, name string) (out T) {
	text, ok := h.Annotations[name]
	if ok && json.Unmarshal([]byte(text), &out) != nil {
		var zero T
		return zero
	}
	return out
}

// addAutoscalerConversions lets the library convert the owners of fields and the objects for
// webhooks that name the other version.
func addAutoscalerConversions(s *runtime.Scheme) error {
	err := s.AddConversionFunc((*autoscalingv1.HorizontalPodAutoscaler)(nil), (*autoscalingv2.HorizontalPodAutoscaler)(nil), func(a, b any, _ conversion.Scope) error {
		*b.(*autoscalingv2.HorizontalPodAutoscaler) = *toNewAutoscaler(a.(*autoscalingv1.HorizontalPodAutoscaler))
		return nil
	})
	if err != nil {
		return err
	}
	return s.AddConversionFunc((*autoscalingv2.HorizontalPodAutoscaler)(nil), (*autoscalingv1.HorizontalPodAutoscaler)(nil), func(a, b any, _ conversion.Scope) error {
		*b.(*autoscalingv1.HorizontalPodAutoscaler) = *toOldAutoscaler(a.(*autoscalingv2.HorizontalPodAutoscaler))
		return nil
	})
}
