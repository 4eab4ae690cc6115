package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/sqldb"
)

// Code is an error code of distribution-spec.
type Code string

// The codes: those of the specification, and two for internal errors. Clients
// know UNAVAILABLE from other registries.
const (
	BlobUnknown         Code = "BLOB_UNKNOWN"
	BlobUploadInvalid   Code = "BLOB_UPLOAD_INVALID"
	BlobUploadUnknown   Code = "BLOB_UPLOAD_UNKNOWN"
	DigestInvalid       Code = "DIGEST_INVALID"
	ManifestBlobUnknown Code = "MANIFEST_BLOB_UNKNOWN"
	ManifestInvalid     Code = "MANIFEST_INVALID"
	ManifestUnknown     Code = "MANIFEST_UNKNOWN"
	NameInvalid         Code = "NAME_INVALID"
	NameUnknown         Code = "NAME_UNKNOWN"
	SizeInvalid         Code = "SIZE_INVALID"
	Unauthorized        Code = "UNAUTHORIZED"
	Denied              Code = "DENIED"
	Unsupported         Code = "UNSUPPORTED"
	TooManyRequests     Code = "TOOMANYREQUESTS"
	Unavailable         Code = "UNAVAILABLE"
	Unknown             Code = "UNKNOWN"
)

// statuses is the HTTP status of each code, unless the error sets its own.
var statuses = map[Code]int{
	BlobUnknown:         http.StatusNotFound,
	BlobUploadInvalid:   http.StatusBadRequest,
	BlobUploadUnknown:   http.StatusNotFound,
	DigestInvalid:       http.StatusBadRequest,
	ManifestBlobUnknown: http.StatusNotFound,
	ManifestInvalid:     http.StatusBadRequest,
	ManifestUnknown:     http.StatusNotFound,
	NameInvalid:         http.StatusBadRequest,
	NameUnknown:         http.StatusNotFound,
	SizeInvalid:         http.StatusBadRequest,
	Unauthorized:        http.StatusUnauthorized,
	Denied:              http.StatusForbidden,
	Unsupported:         http.StatusBadRequest,
	TooManyRequests:     http.StatusTooManyRequests,
	Unavailable:         http.StatusServiceUnavailable,
	Unknown:             http.StatusInternalServerError,
}

// Error is an error for the client. Any other error is internal: the server logs
// it, and the client only learns that there was one.
type Error struct {
	Code    Code
	Message string
	Details []any  // the answer has one entry for each; empty means one entry without details
	Reason  string // of UNAUTHORIZED, for the challenge: an error of RFC 6750, or empty
	Final   bool   // of an Upstream: it has answered, and another question would have the same answer

	status int    // 0 means the code's
	allow  string // methods, with 405
}

// Error says what went wrong.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

func errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// as sets a status other than the code's.
func (e *Error) as(status int) *Error {
	e.status = status
	return e
}

// Status is the HTTP status.
func (e *Error) Status() int {
	if e.status != 0 {
		return e.status
	}
	return statuses[e.Code]
}

type errorBody struct {
	Errors []errorEntry `json:"errors"`
}

type errorEntry struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Detail  any    `json:"detail,omitempty"`
}

func (e *Error) body() errorBody {
	if len(e.Details) == 0 {
		return errorBody{[]errorEntry{{e.Code, e.Message, nil}}}
	}
	var b errorBody
	for _, detail := range e.Details {
		b.Errors = append(b.Errors, errorEntry{e.Code, e.Message, detail})
	}
	return b
}

// errClientGone: the client has disconnected. There is no answer to send, and it is
// not an error of the server.
var errClientGone = errors.New("the client has disconnected")

// clientGone marks an error of writing to, or reading from, the client.
func clientGone(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errClientGone, err)
}

// wrapInternal adds the operation to an internal error. An *Error stays as it is.
func wrapInternal(what string, err error) error {
	var refused *Error
	if err == nil || errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// withCleanup joins an error for the client with the error of the cleanup after it;
// nil means that the cleanup succeeded.
func withCleanup(refusal, after error) error {
	if after == nil {
		return refusal
	}
	return errors.Join(refusal, after)
}

// internalError is the answer for an internal error. It says whether a retry may help.
func internalError(err error) *Error {
	switch {
	case errors.Is(err, blobstore.ErrFull):
		return errorf(Unavailable, "the registry's storage is full: delete images, or give it more space")
	case errors.Is(err, blobstore.ErrOverloaded):
		return errorf(TooManyRequests, "the registry's storage is overloaded; try again later")
	case errors.Is(err, blobstore.ErrUnavailable):
		return errorf(Unavailable, "the registry's storage does not answer; try again later")
	case sqldb.Full(err):
		return errorf(Unavailable, "the registry's database is full")
	case sqldb.Corrupt(err):
		return errorf(Unknown, "the registry's database is damaged; its operator has to restore it from a backup")
	case sqldb.Unreachable(err):
		return errorf(Unavailable, "the registry's database does not answer; try again later")
	}
	return errorf(Unknown, "internal error; the server's log says more")
}

// retryAfter is the Retry-After of errors for which a retry may help.
const retryAfter = "5" // seconds

// fail answers with an error. A handler that has started its answer may only
// return errClientGone.
func (r *Registry) fail(w http.ResponseWriter, req *http.Request, err error) {
	var e *Error
	if !errors.As(err, &e) {
		if errors.Is(err, errClientGone) || errors.Is(err, context.Canceled) && req.Context().Err() != nil {
			r.log.Debug("registry: client disconnected", "method", req.Method, "path", req.URL.Path, "error", err)
			return
		}
		r.log.Error("registry: request failed", "method", req.Method, "path", req.URL.Path, "error", err)
		if sqldb.Corrupt(err) {
			r.log.Error(sqldb.CorruptAdvice)
		}
		e = internalError(err)
	} else if err != error(e) {
		// The errors of the cleanup are not for the client.
		r.log.Warn("registry: refusal", "method", req.Method, "path", req.URL.Path, "error", err)
	}
	if e.allow != "" {
		w.Header().Set("Allow", e.allow)
	}
	if e.Code == Unavailable || e.Code == TooManyRequests {
		w.Header().Set("Retry-After", retryAfter)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status())
	if req.Method == http.MethodHead {
		return
	}
	if err := json.NewEncoder(w).Encode(e.body()); err != nil {
		r.log.Debug("registry: error not delivered", "error", err)
	}
}
