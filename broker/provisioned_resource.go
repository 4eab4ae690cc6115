package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"
)

// ProvisionedResourceID names a resource for good: no two in all time share one.
type ProvisionedResourceID string

// ProjectID is the name of the namespace that a project is.
type ProjectID string

// BootstrapTokenID names a bootstrap token. It is the broker's own handle on the
// node that used the token.
type BootstrapTokenID string

// CloudCredentialRef is the name of a cloud credential in the project.
type CloudCredentialRef string

// ProvisionedResource is the aggregate. It is a value: its methods return changed
// copies, and nothing is stored before a Repository was given one.
type ProvisionedResource struct{ state State }

// State is all that a resource is, for storing it and for reading it back.
type State struct {
	ID         ProvisionedResourceID
	Project    ProjectID
	Name       string // unique in the project among those that are not Deleted
	Blueprint  BlueprintVersionRef
	Credential CloudCredentialRef
	Parameters Parameters // checked, with defaults filled in
	// XR and ProviderConfig say of which kinds its substrate is. They are kept
	// with it, so that it can be torn down whatever has become of its blueprint.
	XR, ProviderConfig ObjectType
	// Deadline is how long the resource may take to become Ready.
	Deadline time.Duration
	// RequestDigest tells a request that is repeated from another with the same
	// id.
	RequestDigest string

	Phase     ProvisionedResourcePhase
	TokenID   BootstrapTokenID // empty: none bound yet
	CreatedAt time.Time
	// ConvergeStartedAt is what the deadline counts from: the creation, or the
	// last time that the resource ceased to be Ready.
	ConvergeStartedAt time.Time
	// DeletionRequestedAt is the column deletion_requested_at; zero is NULL:
	// deletion was never requested. It is set once, with the phase, by
	// RequestDeletion, and never changes again.
	DeletionRequestedAt time.Time
}

// Restore makes the aggregate of what was stored. A phase that is not known is
// accepted, and counts as Pending, unless deletion was requested: such a row
// could lead out of teardown, and is refused.
func Restore(s State) (ProvisionedResource, error) {
	var errs FieldErrors
	checkIdentity(&errs, s.ID, s.Project, s.Name)
	if deleting := !s.DeletionRequestedAt.IsZero(); deleting != isDeletionPhase(s.Phase) {
		errs.add("phase", fmt.Sprintf("%q does not go with deletion requested: %t", s.Phase, deleting))
	}
	if s.Deadline <= 0 {
		errs.add("deadline", "must be more than zero")
	}
	if err := errs.err(); err != nil {
		return ProvisionedResource{}, fmt.Errorf("restore provisioned resource %q: %w", s.ID, err)
	}
	s.Parameters = maps.Clone(s.Parameters)
	return ProvisionedResource{s}, nil
}

// State returns a copy of all that the resource is.
func (r ProvisionedResource) State() State {
	s := r.state
	s.Parameters = maps.Clone(s.Parameters)
	return s
}

// ID is the resource's id.
func (r ProvisionedResource) ID() ProvisionedResourceID { return r.state.ID }

// Phase is the phase it is in.
func (r ProvisionedResource) Phase() ProvisionedResourcePhase { return r.state.Phase }

// TokenID is the bootstrap token bound to it, or empty.
func (r ProvisionedResource) TokenID() BootstrapTokenID { return r.state.TokenID }

// XRName is the name of its XR, its ProviderConfig and its token's secret. It
// holds a digest of the id, so that a resource created later under the same name
// never meets what the deletion of this one still does.
func (r ProvisionedResource) XRName() string {
	const digits, longest = 10, 63
	sum := sha256.Sum256([]byte(r.state.ID))
	name := r.state.Name
	if most := longest - digits - 1; len(name) > most {
		name = strings.TrimRight(name[:most], "-")
	}
	return name + "-" + hex.EncodeToString(sum[:])[:digits]
}

// Overdue says whether the time to become Ready is over. A resource that is
// Ready, or on its way down, has no deadline.
func (r ProvisionedResource) Overdue(now time.Time) bool {
	if r.state.Phase == PhaseReady || isDeletionPhase(r.state.Phase) {
		return false
	}
	return !now.Before(r.state.ConvergeStartedAt.Add(r.state.Deadline))
}

// RequestDeletion records the wish to be deleted: it returns a copy that has
// begun its teardown. Of a resource that is already on its way down, whichever
// phase it has reached, it returns the same and false.
func (r ProvisionedResource) RequestDeletion(now time.Time) (ProvisionedResource, bool) {
	if isDeletionPhase(r.state.Phase) {
		return r, false
	}
	r.state.Phase = PhaseDeregistering
	r.state.DeletionRequestedAt = now
	return r, true
}

// advance moves the resource to a phase that Next has named. Teardown is entered
// by RequestDeletion alone and left by nothing: anything else is a broken caller.
func (r ProvisionedResource) advance(to ProvisionedResourcePhase, now time.Time) (ProvisionedResource, error) {
	from := r.state.Phase
	if _, err := ParsePhase(string(to)); err != nil {
		return r, fmt.Errorf("%w: %w", ErrPhaseConflict, err)
	}
	if isDeletionPhase(from) != isDeletionPhase(to) || (from != to && (from == PhaseDeleted || from == PhaseFailed)) {
		return r, fmt.Errorf("%w: %s cannot become %s", ErrPhaseConflict, from, to)
	}
	if from == PhaseReady && to != PhaseReady {
		r.state.ConvergeStartedAt = now
	}
	r.state.Phase = to
	return r, nil
}

var (
	validID    = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)
	validLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

const (
	idRule    = "must be 1 to 128 letters, digits, '.', '_' or '-', and begin and end with a letter or digit"
	labelRule = "must be 1 to 63 lower-case letters, digits or '-', and begin and end with a letter or digit"
)

func checkIdentity(errs *FieldErrors, id ProvisionedResourceID, project ProjectID, name string) {
	if !validID.MatchString(string(id)) {
		errs.add("id", idRule)
	}
	if !validLabel.MatchString(string(project)) {
		errs.add("project", labelRule)
	}
	if !validLabel.MatchString(name) {
		errs.add("name", labelRule)
	}
}
