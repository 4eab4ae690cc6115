package object

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Code says why a request is refused; the list is closed. Only api/status.go maps
// codes to HTTP statuses and reasons.
type Code int

// The codes. Any error that is not an *Error is an internal error.
const (
	NotFound        Code = iota + 1 // no such object
	AlreadyExists                   // the name is taken
	BeingDeleted                    // an object with this name is being deleted
	NoNamespace                     // the namespace does not exist
	Conflict                        // the object has another uid or version than the client expects
	Invalid                         // fields break a rule; Fields says which
	BadRequest                      // the request is malformed or contradicts itself
	Forbidden                       // understood and refused
	Expired                         // the requested version is compacted
	TooLarge                        // the object is too large
	TooLargeVersion                 // the requested version is in the future
	Terminating                     // the namespace is being deleted (a Forbidden with that cause)
)

// Error is a refusal with a message for the client.
type Error struct {
	Code    Code
	Message string
	Fields  field.ErrorList // for Invalid
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// BadRequestf makes a BadRequest.
func BadRequestf(format string, args ...any) *Error { return Errorf(BadRequest, format, args...) }

// InvalidFields makes an Invalid from field errors.
func InvalidFields(list field.ErrorList) *Error {
	message := "invalid"
	if all := list.ToAggregate(); all != nil {
		message = all.Error()
	}
	return &Error{Code: Invalid, Message: message, Fields: list}
}

// Is reports whether err is an *Error with this code.
func Is(err error, code Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}
