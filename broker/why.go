package broker

import "strings"

// Holder says what kind of thing holds a resource in its phase.
type Holder string

// The holders: a closed set.
const (
	HolderNamespace Holder = "namespace"
	HolderToken     Holder = "token"
	HolderPeer      Holder = "peer"
	HolderCondition Holder = "condition"
	HolderFinalizer Holder = "finalizer"
	HolderDeadline  Holder = "deadline"
)

// Reason is one thing that holds a resource in its phase.
type Reason struct {
	Holder  Holder
	Name    string // the finalizer, the peer, the type of the condition
	Object  string // the object it is on: "XNode/web-1a2b3c4d5e"; may be empty
	Message string // details; may be empty
}

func (r Reason) String() string {
	var b strings.Builder
	b.WriteString(string(r.Holder))
	if r.Name != "" {
		b.WriteString(" " + r.Name)
	}
	if r.Object != "" {
		b.WriteString(" on " + r.Object)
	}
	if r.Message != "" {
		b.WriteString(": " + r.Message)
	}
	return b.String()
}

// holders lists what can hold each phase. Ready and Deleted wait for nothing.
var holders = map[ProvisionedResourcePhase][]Holder{
	PhasePending:        {HolderNamespace, HolderToken, HolderPeer},
	PhaseProvisioning:   {HolderCondition, HolderFinalizer, HolderPeer},
	PhaseEnrolling:      {HolderToken},
	PhaseFailed:         {HolderCondition, HolderDeadline},
	PhaseDeregistering:  {HolderPeer, HolderToken},
	PhaseDeprovisioning: {HolderFinalizer, HolderCondition},
}

// Why says in one line what a resource in the phase waits for, or why it has
// failed: what the facts say, and the reasons that apply to that phase. It is
// empty when the resource waits for nothing.
func Why(observed ObservedXR, phase ProvisionedResourcePhase) string {
	text := held(observed, phase)
	if text == "" {
		return ""
	}
	var reasons []string
	for _, holder := range holders[phase] {
		for _, r := range observed.Reasons {
			if r.Holder == holder {
				reasons = append(reasons, r.String())
			}
		}
	}
	if len(reasons) > 0 {
		text += " (" + strings.Join(reasons, "; ") + ")"
	}
	return text
}

// held explains the phase from the facts alone.
func held(o ObservedXR, phase ProvisionedResourcePhase) string {
	switch phase {
	case PhasePending:
		return heldPending(o)
	case PhaseProvisioning:
		if o.XRExists && o.XRDeleting {
			return "another client deletes the XR; the broker creates it again when it is gone"
		}
		return "waiting for the XR to become ready"
	case PhaseEnrolling:
		return "waiting for the node to enrol"
	case PhaseFailed:
		return heldFailed(o)
	case PhaseDeregistering:
		if o.NodeRegistered {
			return "waiting for the node to leave the mesh"
		}
		return "waiting for the bootstrap token to be revoked"
	case PhaseDeprovisioning:
		if o.XRExists {
			return "waiting for the XR to be gone"
		}
		return "waiting for the ProviderConfig and the token's secret to be gone"
	}
	return ""
}

func heldPending(o ObservedXR) string {
	switch {
	case o.NodeRegistered:
		return "the XR is gone; waiting for its node to leave the mesh"
	case !o.NamespaceReady:
		return "waiting for the namespace to be ready"
	case o.needsToken():
		return "waiting for a bootstrap token"
	}
	return "waiting for the XR to be applied"
}

func heldFailed(o ObservedXR) string {
	switch {
	case o.XRExists && o.XRFailed:
		return "the XR has failed"
	case o.Overdue:
		return "the resource did not become ready in time"
	}
	return "the resource has failed"
}
