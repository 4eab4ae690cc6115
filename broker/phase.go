package broker

import (
	"fmt"
	"slices"
	"time"
)

// ProvisionedResourcePhase is the progress of a resource. The set is closed.
type ProvisionedResourcePhase string

// The eight phases: five on the way up, three on the way down.
const (
	// PhasePending waits for the namespace and for a bootstrap token.
	PhasePending ProvisionedResourcePhase = "Pending"
	// PhaseProvisioning waits for the XR to become ready.
	PhaseProvisioning ProvisionedResourcePhase = "Provisioning"
	// PhaseEnrolling waits for the node to use its token.
	PhaseEnrolling ProvisionedResourcePhase = "Enrolling"
	// PhaseReady has a ready XR and an enrolled node. It is left again when the
	// XR is no longer ready.
	PhaseReady ProvisionedResourcePhase = "Ready"
	// PhaseFailed is left only by deletion.
	PhaseFailed ProvisionedResourcePhase = "Failed"
	// PhaseDeregistering is the first of teardown: the mesh drains the node,
	// and the substrate is not touched.
	PhaseDeregistering ProvisionedResourcePhase = "Deregistering"
	// PhaseDeprovisioning is the second: the node is gone, and the broker
	// deletes the XR and then the ProviderConfig.
	PhaseDeprovisioning ProvisionedResourcePhase = "Deprovisioning"
	// PhaseDeleted is the last phase.
	PhaseDeleted ProvisionedResourcePhase = "Deleted"
)

// Phases returns all phases, in lifecycle order.
func Phases() []ProvisionedResourcePhase {
	return []ProvisionedResourcePhase{
		PhasePending, PhaseProvisioning, PhaseEnrolling, PhaseReady, PhaseFailed,
		PhaseDeregistering, PhaseDeprovisioning, PhaseDeleted,
	}
}

// ParsePhase reads a phase by its exact name.
func ParsePhase(s string) (ProvisionedResourcePhase, error) {
	if p := ProvisionedResourcePhase(s); slices.Contains(Phases(), p) {
		return p, nil
	}
	return "", fmt.Errorf("parse phase: %q is none of %v", s, Phases())
}

func isDeletionPhase(p ProvisionedResourcePhase) bool {
	return p == PhaseDeregistering || p == PhaseDeprovisioning || p == PhaseDeleted
}

// Action is the one thing to do in a round. The set is closed.
//
// Teardown has four actions instead of one "delete". One action would leave the
// order (revoke the token, drain the node, delete the XR, delete the
// ProviderConfig) to the code that carries it out, where only a test with a
// cluster could see it broken. With an action for each, the order is a property
// of Next and is checked for every combination of facts.
type Action string

// The actions. Each is idempotent: a round may repeat it after any crash.
const (
	// ActionNoop does nothing: the resource has what it needs, or waits.
	ActionNoop Action = "Noop"
	// ActionMintToken mints and delivers a bootstrap token in place of one that
	// is missing or can no longer be used. See Service.MintToken.
	ActionMintToken Action = "MintToken"
	// ActionApplySubstrate applies the ProviderConfig and, second, the XR.
	ActionApplySubstrate Action = "ApplySubstrate"
	// ActionDeregisterNode drains the node out of the mesh.
	ActionDeregisterNode Action = "DeregisterNode"
	// ActionRevokeToken makes an unused token worthless, so that no node can
	// enrol after the drain.
	ActionRevokeToken Action = "RevokeToken"
	// ActionDeleteSubstrate deletes the XR with foreground propagation.
	ActionDeleteSubstrate Action = "DeleteSubstrate"
	// ActionDeleteProviderConfig deletes the ProviderConfig and the Secret with
	// the token. It follows only when the XR is observed gone.
	ActionDeleteProviderConfig Action = "DeleteProviderConfig"
)

// Next decides the action for a resource and the phase that follows it. It is
// pure: no clock, no state, no I/O. It is total: every snapshot and every phase
// has an answer; an unknown phase counts as Pending.
//
// Next reads the phase only where the facts cannot tell: whether deletion was
// requested, and whether the resource has failed or is deleted. Everything else
// follows from the observation, so a wrong phase heals by itself.
func Next(observed ObservedXR, current ProvisionedResourcePhase) (Action, ProvisionedResourcePhase) {
	switch {
	case current == PhaseDeleted:
		return ActionNoop, PhaseDeleted
	case isDeletionPhase(current):
		return teardown(observed)
	case current == PhaseFailed:
		return ActionNoop, PhaseFailed
	}
	return converge(observed)
}

// teardown returns the next step down; the order of the cases is the order of
// the steps. A registered node comes first, whatever else exists: while it
// lives, the substrate is not touched. A token that might still be used also
// comes before the substrate: until it is revoked, "no node is registered" can
// become false at any moment.
func teardown(o ObservedXR) (Action, ProvisionedResourcePhase) {
	switch {
	case o.NodeRegistered:
		return ActionDeregisterNode, PhaseDeregistering
	case o.Token.usable():
		return ActionRevokeToken, PhaseDeregistering
	case o.XRExists:
		return ActionDeleteSubstrate, PhaseDeprovisioning
	case o.ProviderConfigExists || o.SecretExists:
		return ActionDeleteProviderConfig, PhaseDeprovisioning
	}
	return ActionNoop, PhaseDeleted
}

// converge returns the next step up. An XR that another client deletes, or has
// deleted, counts as lost: the broker drains its node and revokes its token
// first, as in teardown, and then starts over with a new token, because the
// machine that had the old one is going or gone.
func converge(o ObservedXR) (Action, ProvisionedResourcePhase) {
	lost := !o.XRExists || o.XRDeleting
	ready := !lost && o.XRReady
	switch {
	case o.XRExists && o.XRFailed:
		return ActionNoop, PhaseFailed
	case ready && o.enrolled():
		return supply(o), PhaseReady
	case o.Overdue:
		return ActionNoop, PhaseFailed
	case ready:
		return supply(o), PhaseEnrolling
	case lost && o.NodeRegistered:
		return ActionDeregisterNode, waiting(o)
	case o.XRExists && o.XRDeleting && o.Token.usable():
		return ActionRevokeToken, PhaseProvisioning
	case o.XRExists && o.XRDeleting:
		return ActionNoop, PhaseProvisioning
	}
	action := supply(o)
	if action == ActionApplySubstrate {
		return action, PhaseProvisioning
	}
	return action, waiting(o)
}

// supply returns the action that adds what the resource lacks. A namespace that
// is not ready takes no objects.
func supply(o ObservedXR) Action {
	switch {
	case !o.NamespaceReady:
		return ActionNoop
	case o.needsToken():
		return ActionMintToken
	case !o.XRExists || !o.ProviderConfigExists:
		return ActionApplySubstrate
	}
	return ActionNoop
}

func waiting(o ObservedXR) ProvisionedResourcePhase {
	if o.XRExists {
		return PhaseProvisioning
	}
	return PhasePending
}

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
