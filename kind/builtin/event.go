package builtin

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// eventKinds are the two views of the stored Events. The core view equals the stored form.
func eventKinds() []*kind.Kind {
	return []*kind.Kind{
		def[corev1.Event, *corev1.Event]{
			gv: corev1.SchemeGroupVersion, plural: "events", short: []string{"ev"},
			createOnUpdate: true,
			name:           path.ValidatePathSegmentName,
			validate:       validateEvent,
			table:          eventTable,
		}.kind(),
		def[eventsv1.Event, *eventsv1.Event]{
			gv: eventsv1.SchemeGroupVersion, plural: "events", short: []string{"ev"},
			createOnUpdate: true,
			storage:        "events",
			decode:         decodeNewEvent,
			encode:         encodeNewEvent,
			validate:       validateNewEvent,
			validateCreate: validateNewEventCreate,
			validateUpdate: validateNewEventUpdate,
			table:          newEventTable,
		}.kind(),
	}
}

func decodeNewEvent(body []byte, resourceVersion string) (runtime.Object, error) {
	stored := &corev1.Event{}
	if err := object.DecodeInto(body, resourceVersion, corev1.SchemeGroupVersion.WithKind("Event"), stored); err != nil {
		return nil, err
	}
	e := toNewEvent(stored)
	e.SetGroupVersionKind(eventsv1.SchemeGroupVersion.WithKind("Event"))
	return e, nil
}

func encodeNewEvent(obj runtime.Object) ([]byte, error) {
	e, ok := obj.(*eventsv1.Event)
	if !ok {
		return nil, fmt.Errorf("encode event: unexpected type %T", obj)
	}
	return object.Encode(toCoreEvent(e))
}

// toNewEvent and toCoreEvent are inverse to each other. Their results share memory with
// their arguments.
func toNewEvent(e *corev1.Event) *eventsv1.Event {
	out := &eventsv1.Event{
		ObjectMeta:               e.ObjectMeta,
		EventTime:                e.EventTime,
		ReportingController:      e.ReportingController,
		ReportingInstance:        e.ReportingInstance,
		Action:                   e.Action,
		Reason:                   e.Reason,
		Regarding:                e.InvolvedObject,
		Related:                  e.Related,
		Note:                     e.Message,
		Type:                     e.Type,
		DeprecatedSource:         e.Source,
		DeprecatedFirstTimestamp: e.FirstTimestamp,
		DeprecatedLastTimestamp:  e.LastTimestamp,
		DeprecatedCount:          e.Count,
	}
	if e.Series != nil {
		out.Series = &eventsv1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return out
}

func toCoreEvent(e *eventsv1.Event) *corev1.Event {
	out := &corev1.Event{
		ObjectMeta:          e.ObjectMeta,
		EventTime:           e.EventTime,
		ReportingController: e.ReportingController,
		ReportingInstance:   e.ReportingInstance,
		Action:              e.Action,
		Reason:              e.Reason,
		InvolvedObject:      e.Regarding,
		Related:             e.Related,
		Message:             e.Note,
		Type:                e.Type,
		Source:              e.DeprecatedSource,
		FirstTimestamp:      e.DeprecatedFirstTimestamp,
		LastTimestamp:       e.DeprecatedLastTimestamp,
		Count:               e.DeprecatedCount,
	}
	if e.Series != nil {
		out.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return out
}
