package mesh

import (
	"fmt"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
)

// Denial is a refusal with a reason for programs (v1alpha1.Reason…) and a text
// for people. Any other error of this package is an internal error.
type Denial struct {
	Reason  string
	Message string
}

func (d *Denial) Error() string { return d.Message }

func deny(reason, format string, args ...any) *Denial {
	return &Denial{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// invalid refuses a field of a request.
func invalid(field, format string, args ...any) *Denial {
	return deny(reasonInvalid, "%s: %s", field, fmt.Sprintf(format, args...))
}

// Reasons that Kubernetes defines too.
const (
	reasonInvalid  = "BadRequest"
	reasonNotFound = "NotFound"
	reasonBusy     = "TooManyRequests"
	reasonTooLarge = "RequestEntityTooLarge"
	reasonMethod   = "MethodNotAllowed"
)

// Refusals with a fixed text. The first two reveal as little as possible.
var (
	errUnknownToken = deny(v1alpha1.ReasonUnknownToken, "the bootstrap token is not valid")
	errUnknownNode  = deny(v1alpha1.ReasonUnknownNode, "no such node: it has left the mesh, or never was in it")
	errTokenEnded   = deny(v1alpha1.ReasonTokenConsumed, "the token was used or ended by another request at the same moment")
)
