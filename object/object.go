// Package object defines an object: its key, its metadata, and the JSON in which
// it is stored. It knows no database, no HTTP and no kind.
//
// The stored form of a body (see [Encode]) is valid JSON that begins with
// `{"metadata":{` and leaves out what the store or the request sets: apiVersion,
// kind and metadata.resourceVersion. To send an object is therefore a splice
// ([AppendWire]), without decoding.
package object

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Key names an object. Kind is the storage name of its kind: the plural and
// the group, as in "deployments.apps", or the plural alone for the core group.
// Namespace is empty for cluster-scoped kinds.
type Key struct {
	Kind, Namespace, Name string
}

// Scope is the kind in the namespace: the key without the name.
func (k Key) Scope() Key { return Key{Kind: k.Kind, Namespace: k.Namespace} }

// String is for logs and error texts: "pods/default/web".
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + "/" + k.Name
	}
	return k.Kind + "/" + k.Namespace + "/" + k.Name
}

// Object is one version of one object, as stored. Body is shared between
// readers and must not be changed.
type Object struct {
	Key
	UID      types.UID
	Revision int64
	Body     []byte
}

// ResourceVersion is the revision as clients see it.
func (o Object) ResourceVersion() string { return strconv.FormatInt(o.Revision, 10) }

// ParseResourceVersion reads a client's resourceVersion: a decimal integer
// without leading zeros (KEP-5504). Empty and "0" are 0, "any version".
func ParseResourceVersion(s string) (int64, error) {
	if s == "" || s == "0" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || s[0] < '1' || s[0] > '9' { // neither a sign nor a zero in front
		return 0, BadRequestf("invalid resourceVersion %q: must be a decimal integer", s)
	}
	return n, nil
}

// Storage names (Key.Kind) of the kinds that several packages treat specially.
// SQL statements and triggers name some of them too.
const (
	Namespaces           = "namespaces"
	Definitions          = "customresourcedefinitions.apiextensions.k8s.io"
	Events               = "events" // of both API groups
	Secrets              = "secrets"
	Pods                 = "pods"
	ServiceAccounts      = "serviceaccounts"
	SigningRequests      = "certificatesigningrequests.certificates.k8s.io"
	ConfigMaps           = "configmaps"
	ProvisionedResources = "provisionedresources.provisioning.exeunt.dev"
	NodePorts            = "nodeports.networking.exeunt.dev"
	APIServices          = "apiservices.apiregistration.k8s.io"
)

// Every namespace has these two objects: the server creates them.
const (
	DefaultAccount = "default"          // a ServiceAccount
	RootCA         = "kube-root-ca.crt" // a ConfigMap
)

// NameProblem returns why a text cannot be a segment of a path, or "". It is the one rule
// of both sides: the router refuses no other path, and every create asks it. So what
// is stored can be read and deleted by its path.
func NameProblem(name string) string {
	switch {
	case name == "":
		return "must not be empty"
	case name == ".", name == "..":
		return `must not be "." or ".."`
	case strings.Contains(name, "/"):
		return "must not have a slash"
	case !utf8.ValidString(name), strings.ContainsRune(name, 0):
		return "must be valid UTF-8 without NUL"
	}
	return ""
}

// New is an object that passed the rules of its kind: what the store needs to
// create it.
type New struct {
	Key  Key
	Meta metav1.ObjectMeta // the fields that the store keeps in columns
	Body []byte
	// InNamespace: the Namespace must exist and not be terminating.
	InNamespace bool
	// Definition, when set, is the object that declares the kind: it must exist
	// and not be terminating.
	Definition Key
	// With are the objects that the same transaction creates: all exist, or none.
	With []New
	// Most, if not 0, is how many objects of the kind the namespace may have.
	Most int64
	// Taken, if set, is the error if the name is taken. ErrAgain: prepare the object
	// again, with another name.
	Taken error
}

// ErrAgain says that an object must be prepared again: what it chose is taken meanwhile.
var ErrAgain = errors.New("a choice is taken meanwhile")

// MetaOf copies the metadata that the store keeps in columns.
func MetaOf(m metav1.Object) metav1.ObjectMeta {
	if typed, ok := m.(*metav1.ObjectMeta); ok {
		return *typed
	}
	return metav1.ObjectMeta{
		Name:                       m.GetName(),
		Namespace:                  m.GetNamespace(),
		UID:                        m.GetUID(),
		Generation:                 m.GetGeneration(),
		CreationTimestamp:          m.GetCreationTimestamp(),
		DeletionTimestamp:          m.GetDeletionTimestamp(),
		DeletionGracePeriodSeconds: m.GetDeletionGracePeriodSeconds(),
		Labels:                     m.GetLabels(),
		Annotations:                m.GetAnnotations(),
		OwnerReferences:            m.GetOwnerReferences(),
		Finalizers:                 m.GetFinalizers(),
	}
}

// versionHead begins the field that names the version a body was written in. It is the
// first field after the metadata. Bodies whose kind never changed its storage version do
// not have it.
const versionHead = `,"apiVersion":"`

// WithVersion adds the name of the version that a body is written in: "v1". The body has
// none yet.
func WithVersion(body []byte, version string) ([]byte, error) {
	metadata, rest, err := Split(body)
	if err != nil {
		return nil, err
	}
	quoted, err := json.Marshal(version)
	if err != nil {
		return nil, fmt.Errorf("encode version %q: %w", version, err)
	}
	out := make([]byte, 0, len(body)+len(versionHead)+len(quoted))
	out = append(out, head[:len(head)-1]...)
	out = append(out, metadata...)
	out = append(out, versionHead[:len(versionHead)-1]...)
	out = append(out, quoted...)
	return append(out, rest...), nil
}

// MayHaveVersion reports whether CutVersion may find a version. It is much cheaper.
func MayHaveVersion(body []byte) bool { return bytes.Contains(body, []byte("}"+versionHead)) }

// CutVersion returns the name of the version that a body was written in, or "", and the
// body without it.
func CutVersion(body []byte) (version string, unmarked []byte, err error) {
	metadata, rest, err := Split(body)
	if err != nil {
		return "", nil, err
	}
	name, found := bytes.CutPrefix(rest, []byte(versionHead))
	if !found {
		return "", body, nil
	}
	end := bytes.IndexByte(name, '"') // names of versions are DNS labels, without escapes
	if end < 0 {
		return "", nil, fmt.Errorf("the version of the body does not end")
	}
	out := make([]byte, 0, len(body))
	out = append(out, head[:len(head)-1]...)
	out = append(out, metadata...)
	return string(name[:end]), append(out, name[end+1:]...), nil
}

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
	Versioned                       // a resourceVersion for which Kubernetes answers 500: of a new object, or one of a read that is no number
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

// NewUID draws the uid of a new object: a UUID that begins with the time (version 7), so that the
// rows and index entries of objects that were created together lie together. Random ones cost a page of
// their own for each entry of a large index.
func NewUID() types.UID { return types.UID(uuid.Must(uuid.NewV7()).String()) }
