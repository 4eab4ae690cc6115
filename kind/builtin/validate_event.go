package builtin

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateEvent(e *corev1.Event) field.ErrorList {
	return validateEventAs(e, "reportingComponent")
}

// validateNewEvent validates an events.k8s.io event by the rules and field names of the
// stored form, as Kubernetes does.
func validateNewEvent(e *eventsv1.Event) field.ErrorList {
	return validateEventAs(toCoreEvent(e), "reportingController")
}

// validateEventAs distinguishes old from new events by their eventTime. Old ones only need
// the namespace of the object they are about.
func validateEventAs(e *corev1.Event, reporter string) field.ErrorList {
	errs := eventNamespace(e)
	if e.EventTime.IsZero() {
		return errs
	}
	at := field.NewPath(reporter)
	if e.ReportingController == "" {
		errs = append(errs, field.Required(at, ""))
	}
	errs = append(errs, invalids(at, e.ReportingController, validation.IsQualifiedName(e.ReportingController))...)
	for _, f := range []struct{ name, value string }{
		{"reportingInstance", e.ReportingInstance}, {"action", e.Action}, {"reason", e.Reason},
	} {
		errs = append(errs, required(field.NewPath(f.name), f.value)...)
		errs = append(errs, tooLong(field.NewPath(f.name), f.value, 128)...)
	}
	return append(errs, tooLong(field.NewPath("message"), e.Message, 1024)...)
}

// eventNamespace requires that an event is in the namespace of its object. Events about
// cluster-scoped objects are in default or kube-system.
func eventNamespace(e *corev1.Event) field.ErrorList {
	about := e.InvolvedObject.Namespace
	system := e.Namespace == metav1.NamespaceDefault || e.Namespace == metav1.NamespaceSystem
	if about == e.Namespace || (about == "" && system) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("involvedObject", "namespace"), about, "does not match event.namespace")}
}

// validateNewEventCreate refuses fields that only old events have.
func validateNewEventCreate(e *eventsv1.Event) field.ErrorList {
	errs := validateSeries(e)
	if e.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", "has invalid value: "+e.Type))
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"firstTimestamp", !e.DeprecatedFirstTimestamp.IsZero()},
		{"lastTimestamp", !e.DeprecatedLastTimestamp.IsZero()},
		{"count", e.DeprecatedCount != 0},
		{"source", e.DeprecatedSource != (corev1.EventSource{})},
	} {
		if f.set {
			errs = append(errs, field.Invalid(field.NewPath(f.name), "", "needs to be unset"))
		}
	}
	return errs
}

func validateSeries(e *eventsv1.Event) field.ErrorList {
	if e.Series == nil {
		return nil
	}
	var errs field.ErrorList
	if e.Series.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series", "count"), "", "should be at least 2"))
	}
	if e.Series.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series", "lastObservedTime"), ""))
	}
	return errs
}

// validateNewEventUpdate lets only the series of an event change.
func validateNewEventUpdate(obj, old *eventsv1.Event) field.ErrorList {
	errs := validateSeries(obj)
	a, b := toCoreEvent(obj), toCoreEvent(old)
	for _, f := range []struct {
		name       string
		value, was any
	}{
		{"involvedObject", a.InvolvedObject, b.InvolvedObject},
		{"reason", a.Reason, b.Reason},
		{"message", a.Message, b.Message},
		{"source", a.Source, b.Source},
		{"firstTimestamp", a.FirstTimestamp, b.FirstTimestamp},
		{"lastTimestamp", a.LastTimestamp, b.LastTimestamp},
		{"count", a.Count, b.Count},
		{"type", a.Type, b.Type},
		{"eventTime", a.EventTime, b.EventTime},
		{"action", a.Action, b.Action},
		{"related", a.Related, b.Related},
		{"reportingController", a.ReportingController, b.ReportingController},
		{"reportingInstance", a.ReportingInstance, b.ReportingInstance},
	} {
		errs = append(errs, unchanged(field.NewPath(f.name), f.value, f.was)...)
	}
	return errs
}
