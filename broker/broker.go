// Package broker is the domain of provisioning: how a declaration becomes a
// machine that has joined the mesh, and how the machine leaves again. It
// decides, and it declares the ports that it needs. It imports the standard
// library only: no database, no Kubernetes, no network.
//
// Begin with [Next]: the whole state machine in one pure function.
// testdata/next.txt holds the table of all its answers; docs/spec/broker.md
// holds the races and their answers.
//
// # The story
//
// A [ProvisionedResource] joins a [BlueprintVersion], a cloud credential and a
// project, which is a namespace. [Service.Provision] checks all of that, and
// stores it, or refuses and stores nothing.
//
// From then on a loop looks at it, one resource at a time, in four steps:
//
//	observe           what is: the token, the node, the substrate    [ObservedXR]
//	decide            what follows from it                           [Next]
//	apply             the one action                                 ports
//	emit and persist  the event, then the phase                      [Service.Advance]
//
// Only the phase is stored between two rounds; a round reads all other facts
// again. So a round may be repeated, interrupted, or run by another process.
//
// On the way up the resource is Pending until its namespace is ready and a
// bootstrap token is minted. Then the broker applies the ProviderConfig and,
// second, the composite resource (XR): Provisioning. When the XR is ready, the
// machine runs and its node must enrol: Enrolling. When the node has used the
// token: Ready. A condition that the XR cannot leave by itself, or the
// deadline, makes the resource Failed; only deletion ends Failed. The broker
// replaces a token that can no longer be used, as long as no node has used it.
//
// On the way down, from any phase, [Service.Deprovision] records the intent and
// revokes the token, so that a machine that boots late cannot enrol. Then the
// mesh drains the node: Deregistering. Only then does the broker delete the XR,
// and after the XR is observed gone the ProviderConfig, whose credentials the
// substrate needs for its own deletion: Deprovisioning. Then the resource is
// Deleted, and no action follows.
//
// # What always holds
//
//   - The node leaves before its substrate. Deleting the substrate of a live
//     peer would leave a peer in the mesh that can no longer drain.
//   - Teardown is one way. No observation leads out of it.
//   - Deleted is the end: no action follows.
//   - From any phase, a requested deletion ends in Deleted once the causes that
//     hold it are gone.
//   - A token is not replaced while the node that used it is registered: the
//     token's id is the only handle on that node.
//   - Each of the five events of a resource is stored at most once, and
//     published at least once under one token.
package broker

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The domain's errors: a closed set. Clients distinguish them with errors.Is,
// through any wrapping.
var (
	// ErrInvalidRequest: a field of a request, or a parameter, is invalid.
	ErrInvalidRequest = errors.New("broker: invalid request")
	// ErrBlueprintNotFound: no such blueprint, or no such version of it.
	ErrBlueprintNotFound = errors.New("broker: blueprint version not found")
	// ErrCloudCredentialNotFound: no such credential, or it is not the project's.
	ErrCloudCredentialNotFound = errors.New("broker: cloud credential not found")
	// ErrNamespaceUnavailable: the project's namespace is terminating or
	// missing. A namespace that is not ready yet is not an error: the resource waits in
	// Pending.
	ErrNamespaceUnavailable = errors.New("broker: namespace is terminating or missing")
	// ErrProvisionedResourceExists: the id, or the name in the project, belongs to
	// another resource.
	ErrProvisionedResourceExists = errors.New("broker: provisioned resource exists")
	// ErrProvisionedResourceNotFound: there is no resource of that id.
	ErrProvisionedResourceNotFound = errors.New("broker: provisioned resource not found")
	// ErrPhaseConflict: the resource has changed since it was read, or the move
	// is not allowed. Nothing was written; read again.
	ErrPhaseConflict = errors.New("broker: phase conflict")
	// ErrBootstrapTokenFailed: the token could not be minted, bound or revoked.
	ErrBootstrapTokenFailed = errors.New("broker: bootstrap token failed")
	// ErrNodeDeregistrationFailed: the node could not be drained. The round ends
	// here, before any phase is written and before any substrate is deleted.
	ErrNodeDeregistrationFailed = errors.New("broker: node deregistration failed")
)

// DeregistrationStep is a part of a node's deregistration.
type DeregistrationStep string

// The steps of a deregistration, in order.
const (
	StepLookup  DeregistrationStep = "lookup"  // find the node that used the token
	StepDrain   DeregistrationStep = "drain"   // ask the node to finish its connections
	StepRemoval DeregistrationStep = "removal" // remove the node when it has, or when its time is over
)

// DeregistrationError says which step of a deregistration failed. It is the cause
// of an ErrNodeDeregistrationFailed: errors.As finds it there.
type DeregistrationError struct {
	Step DeregistrationStep
	Err  error
}

func (e *DeregistrationError) Error() string { return string(e.Step) + ": " + e.Err.Error() }
func (e *DeregistrationError) Unwrap() error { return e.Err }

// ErrServiceTokenTTL is an error of wiring, as those of Incomplete: a program that has one does not start. They
// are not part of the domain's set.
var ErrServiceTokenTTL = errors.New("broker service: the token's lifetime must be from 5 minutes to 24 hours")

// Incomplete returns an error that names the parts which a program lacks; nil if it has all.
func Incomplete(program string, lacks map[string]bool) error {
	var errs []error
	for _, part := range slices.Sorted(maps.Keys(lacks)) {
		if lacks[part] {
			errs = append(errs, fmt.Errorf("%s: %s required", program, part))
		}
	}
	return errors.Join(errs...)
}

// FieldError says which field of a request is refused, why, and by which of the
// domain's errors.
type FieldError struct {
	Field  string // "blueprint", "credential", "parameters.size"
	Detail string
	Err    error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Detail }
func (e *FieldError) Unwrap() error { return e.Err }

// FieldErrors are all refused fields of a request, so that a person can correct
// them all at once.
type FieldErrors []*FieldError

func (e FieldErrors) Error() string {
	texts := make([]string, len(e))
	for i, field := range e {
		texts[i] = field.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap lets errors.Is and errors.As see each of them.
func (e FieldErrors) Unwrap() []error {
	all := make([]error, len(e))
	for i, field := range e {
		all[i] = field
	}
	return all
}

// add records an invalid field.
func (e *FieldErrors) add(field, detail string) { e.refuse(field, detail, ErrInvalidRequest) }

func (e *FieldErrors) refuse(field, detail string, err error) {
	*e = append(*e, &FieldError{Field: field, Detail: detail, Err: err})
}

// err is nil if there are none: a nil FieldErrors in an error would not be nil.
func (e FieldErrors) err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}
