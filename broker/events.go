package broker

import "time"

// EventType is the type of an event, in storage and on the wire. The set is
// closed; the database's CHECK constraint holds the same strings.
type EventType string

// The five events. The other phases have none.
const (
	EventRequested EventType = "broker.ProvisionedResourceRequested"
	EventReady     EventType = "broker.ProvisionedResourceReady"
	EventFailed    EventType = "broker.ProvisionedResourceFailed"
	EventDeleting  EventType = "broker.ProvisionedResourceDeleting"
	EventDeleted   EventType = "broker.ProvisionedResourceDeleted"
)

// Event is a change of a resource that the broker publishes.
type Event interface {
	EventType() EventType
	// Head holds the fields that all events have.
	Head() EventHead
}

// EventHead holds the fields that all events have.
type EventHead struct {
	// EventID is the outbox token: equal for every attempt to emit the event.
	EventID               OutboxToken           `json:"eventID"`
	OccurredAt            time.Time             `json:"occurredAt"`
	ProvisionedResourceID ProvisionedResourceID `json:"provisionedResourceID"`
	ProjectID             ProjectID             `json:"projectID"`
	XRName                string                `json:"xrName"`
}

// Head returns the head itself, for the events that embed it.
func (h EventHead) Head() EventHead { return h }

// ProvisionedResourceRequested: a declaration was accepted.
type ProvisionedResourceRequested struct {
	EventHead
	Blueprint  BlueprintVersionRef `json:"blueprint"`
	Credential CloudCredentialRef  `json:"credential"`
}

// ProvisionedResourceReady: the XR is ready and the node has enrolled, for the
// first time. A resource that recovers later emits no second one.
type ProvisionedResourceReady struct{ EventHead }

// ProvisionedResourceFailed: the resource will not become ready.
type ProvisionedResourceFailed struct {
	EventHead
	Reason string `json:"reason"`
}

// ProvisionedResourceDeleting: a deletion was accepted.
type ProvisionedResourceDeleting struct{ EventHead }

// ProvisionedResourceDeleted: node and substrate are gone.
type ProvisionedResourceDeleted struct{ EventHead }

// EventType is "broker.ProvisionedResourceRequested".
func (ProvisionedResourceRequested) EventType() EventType { return EventRequested }

// EventType is "broker.ProvisionedResourceReady".
func (ProvisionedResourceReady) EventType() EventType { return EventReady }

// EventType is "broker.ProvisionedResourceFailed".
func (ProvisionedResourceFailed) EventType() EventType { return EventFailed }

// EventType is "broker.ProvisionedResourceDeleting".
func (ProvisionedResourceDeleting) EventType() EventType { return EventDeleting }

// EventType is "broker.ProvisionedResourceDeleted".
func (ProvisionedResourceDeleted) EventType() EventType { return EventDeleted }

// OutboxToken identifies an event. It is unique in the outbox, so an event that
// is emitted again after a crash is stored at most once.
type OutboxToken string

// NewOutboxToken uses only values that are equal in every attempt: no time,
// nothing random. A resource has each event at most once in its life, and its
// id is never reused, so id and type suffice.
func NewOutboxToken(id ProvisionedResourceID, event EventType) OutboxToken {
	return OutboxToken(string(event) + "/" + string(id))
}

func (r ProvisionedResource) eventHead(t EventType, at time.Time) EventHead {
	return EventHead{
		EventID:               NewOutboxToken(r.state.ID, t),
		OccurredAt:            at,
		ProvisionedResourceID: r.state.ID,
		ProjectID:             r.state.Project,
		XRName:                r.XRName(),
	}
}

// RequestedEvent is what Repository.Create puts into the outbox.
func (r ProvisionedResource) RequestedEvent() ProvisionedResourceRequested {
	return ProvisionedResourceRequested{
		EventHead:  r.eventHead(EventRequested, r.state.CreatedAt),
		Blueprint:  r.state.Blueprint,
		Credential: r.state.Credential,
	}
}

// DeletingEvent is what Repository.RecordDeletionIntent puts into the outbox.
func (r ProvisionedResource) DeletingEvent() ProvisionedResourceDeleting {
	return ProvisionedResourceDeleting{EventHead: r.eventHead(EventDeleting, r.state.DeletionRequestedAt)}
}

// crossing is the event of a resource that has just entered its phase, or nil.
// It never is Requested or Deleting: the repository writes those together with
// the phase.
func (r ProvisionedResource) crossing(at time.Time, why string) Event {
	switch r.state.Phase {
	case PhaseReady:
		return ProvisionedResourceReady{r.eventHead(EventReady, at)}
	case PhaseFailed:
		return ProvisionedResourceFailed{EventHead: r.eventHead(EventFailed, at), Reason: why}
	case PhaseDeleted:
		return ProvisionedResourceDeleted{r.eventHead(EventDeleted, at)}
	}
	return nil
}
