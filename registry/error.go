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

// The codes: the specification's list, closed, and two for our own faults.
// Clients know UNAVAILABLE from other registries.
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

// statuses is what each code answers, unless an error says otherwise.
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

// Error is an error for the caller. Any other error is ours: it is logged, and
// the caller is only told that there was one.
type Error struct {
	Code    Code
	Message string
	Details []any // one entry of the answer for each; none: one entry without

	status int    // 0: the code's
	allow  string // methods, with 405
}

// Error says what went wrong.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

func errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// as answers with another status than the code's.
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

// errGone: the caller has gone; there is nobody to answer, and no fault of
// ours.
var errGone = errors.New("the caller has gone")

// gone marks an error of writing to, or reading from, the caller.
func gone(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errGone, err)
}

// during says what an error of ours was about. A refusal speaks for itself.
func during(what string, err error) error {
	var refused *Error
	if err == nil || errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// also is a refusal after which something else went wrong, or nothing.
func also(refusal, after error) error {
	if after == nil {
		return refusal
	}
	return errors.Join(refusal, after)
}

// ours is what a caller is told of a fault of ours: whether to try again.
func ours(err error) *Error {
	switch {
	case errors.Is(err, blobstore.ErrFull):
		return errorf(Unavailable, "the registry's storage is full")
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

// retryAfter is what clients are told to wait when trying again may help.
const retryAfter = "5" // seconds

// fail answers with an error. A handler that has begun its answer must not
// return one, but for errGone.
func (r *Registry) fail(w http.ResponseWriter, req *http.Request, err error) {
	var e *Error
	if !errors.As(err, &e) {
		if errors.Is(err, errGone) || errors.Is(err, context.Canceled) && req.Context().Err() != nil {
			r.log.Debug("registry: caller gone", "method", req.Method, "path", req.URL.Path, "error", err)
			return
		}
		r.log.Error("registry: request failed", "method", req.Method, "path", req.URL.Path, "error", err)
		if sqldb.Corrupt(err) {
			r.log.Error(sqldb.CorruptAdvice)
		}
		e = ours(err)
	} else if err != error(e) {
		// What went wrong after it is not for the caller.
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
