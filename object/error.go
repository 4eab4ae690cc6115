package object

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Code is the closed list of ways a request can be refused. Only api/status.go
// knows which HTTP status and reason each becomes.
type Code int

// The codes. Anything that is not an *Error is a fault of ours.
const (
	NotFound        Code = iota + 1 // no such object
	AlreadyExists                   // the name is taken
	BeingDeleted                    // the name is held by an object that is being deleted
	NoNamespace                     // the namespace does not exist
	Conflict                        // the object is not the one, or not at the version, the caller expected
	Invalid                         // fields break a rule; Fields says which
	BadRequest                      // the request makes no sense
	Forbidden                       // understood and refused
	Expired                         // the version asked for has been compacted away
	TooLarge                        // the object does not fit
	TooLargeVersion                 // the version asked for has not happened yet
	Terminating                     // the namespace is being deleted (a Forbidden with that cause)
)

// Error is a refusal with a text for the person who reads it.
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

// InvalidFields makes an Invalid of field errors.
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
