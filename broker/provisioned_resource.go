package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"
	"time"
)

// ProvisionedResourceID identifies a resource. Ids are never reused.
type ProvisionedResourceID string

// ProjectID is the name of the project's namespace.
type ProjectID string

// BootstrapTokenID identifies a bootstrap token. It is the broker's handle on
// the node that used the token.
type BootstrapTokenID string

// CloudCredentialRef is the name of a cloud credential in the project.
type CloudCredentialRef string

// ProvisionedResource is the aggregate. It is a value: its methods return
// changed copies; a Repository stores them.
type ProvisionedResource struct{ state State }

// State is the complete state of a resource, for storing it and for reading it
// back.
type State struct {
	ID         ProvisionedResourceID
	Project    ProjectID
	Name       string // unique in the project among resources that are not Deleted
	Blueprint  BlueprintVersionRef
	Credential CloudCredentialRef
	Parameters Parameters // checked, with defaults filled in
	// XR and ProviderConfig are the kinds of its substrate. The resource stores
	// them so that teardown works after its blueprint has changed or gone.
	XR, ProviderConfig ObjectType
	// Deadline is how long the resource may take to become Ready.
	Deadline time.Duration
	// RequestDigest distinguishes a repeated request from a different one with
	// the same id.
	RequestDigest string

	Phase     ProvisionedResourcePhase
	TokenID   BootstrapTokenID // empty means none bound yet
	CreatedAt time.Time
	// ConvergeStartedAt is the start of the deadline: the creation, or the last
	// time that the resource ceased to be Ready.
	ConvergeStartedAt time.Time
	// DeletionRequestedAt is the column deletion_requested_at; zero is NULL:
	// deletion was never requested. It is set once, with the phase, by
	// RequestDeletion, and never changes again.
	DeletionRequestedAt time.Time
}

// Restore makes the aggregate from stored state. It accepts an unknown phase,
// which counts as Pending, unless deletion was requested: such a row could lead
// out of teardown, so Restore refuses it.
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

// State returns a copy of the complete state.
func (r ProvisionedResource) State() State {
	s := r.state
	s.Parameters = maps.Clone(s.Parameters)
	return s
}

// ID is the resource's id.
func (r ProvisionedResource) ID() ProvisionedResourceID { return r.state.ID }

// Phase is the current phase.
func (r ProvisionedResource) Phase() ProvisionedResourcePhase { return r.state.Phase }

// TokenID is the bound bootstrap token, or empty.
func (r ProvisionedResource) TokenID() BootstrapTokenID { return r.state.TokenID }

// XRName is the name of its XR, its ProviderConfig and its token's Secret. It
// contains a digest of the id, so that the unfinished deletion of this resource
// never touches a later resource of the same name.
func (r ProvisionedResource) XRName() string {
	const digits, longest = 10, 63
	sum := sha256.Sum256([]byte(r.state.ID))
	name := r.state.Name
	if most := longest - digits - 1; len(name) > most {
		name = strings.TrimRight(name[:most], "-")
	}
	return name + "-" + hex.EncodeToString(sum[:])[:digits]
}

// Overdue reports whether the deadline has passed. A resource that is Ready, or
// on its way down, has no deadline.
func (r ProvisionedResource) Overdue(now time.Time) bool {
	if r.state.Phase == PhaseReady || isDeletionPhase(r.state.Phase) {
		return false
	}
	return !now.Before(r.state.ConvergeStartedAt.Add(r.state.Deadline))
}

// RequestDeletion returns a copy that has begun its teardown. For a resource
// that is already on its way down, in any phase, it returns the same and false.
func (r ProvisionedResource) RequestDeletion(now time.Time) (ProvisionedResource, bool) {
	if isDeletionPhase(r.state.Phase) {
		return r, false
	}
	r.state.Phase = PhaseDeregistering
	r.state.DeletionRequestedAt = now
	return r, true
}

// advance moves the resource to a phase that Next returned. Only
// RequestDeletion enters teardown, and nothing leaves it; any other move is a
// programming error.
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
	validID    = lazily(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)
	validLabel = lazily(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// lazily compiles an expression at its first use, as internal/pattern does.
func lazily(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

const (
	idRule    = "must be 1 to 128 letters, digits, '.', '_' or '-', and begin and end with a letter or digit"
	labelRule = "must be 1 to 63 lower-case letters, digits or '-', and begin and end with a letter or digit"
)

func checkIdentity(errs *FieldErrors, id ProvisionedResourceID, project ProjectID, name string) {
	if !validID().MatchString(string(id)) {
		errs.add("id", idRule)
	}
	if !validLabel().MatchString(string(project)) {
		errs.add("project", labelRule)
	}
	if !validLabel().MatchString(name) {
		errs.add("name", labelRule)
	}
}
