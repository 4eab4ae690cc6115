package broker

import "time"

// EventType tells events apart, in storage and on the wire. The set is closed;
// the strings stand in the database's CHECK constraint, letter by letter.
type EventType string

// The five events. The phases between them are quiet.
const (
	EventRequested EventType = "broker.ProvisionedResourceRequested"
	EventReady     EventType = "broker.ProvisionedResourceReady"
	EventFailed    EventType = "broker.ProvisionedResourceFailed"
	EventDeleting  EventType = "broker.ProvisionedResourceDeleting"
	EventDeleted   EventType = "broker.ProvisionedResourceDeleted"
)

// EventTypes are all of them, in the order of a life.
func EventTypes() []EventType {
	return []EventType{EventRequested, EventReady, EventFailed, EventDeleting, EventDeleted}
}

// Event is something that has happened to a resource, for others to know.
type Event interface {
	EventType() EventType
	// Head is what all events have.
	Head() EventHead
}

// EventHead is what all events have.
type EventHead struct {
	// EventID is the outbox token: the same whenever the event is made again.
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
// first time. A resource that recovers later does not say so again.
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

// OutboxToken names an event for good. It is unique in the outbox, so an event
// that is made again, because a process died before it could write down that it
// had been made, is stored at most once.
type OutboxToken string

// NewOutboxToken is made of nothing that differs between two attempts: not the
// time, nothing random. A resource has each event at most once in its life, and
// its id is never used again, so the two suffice.
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

// crossing is the event of a resource that has just come into its phase, or nil.
// Requested and Deleting are not among them: they are written together with the
// phase, by the repository.
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
