// Package object defines an object: its key, its metadata, and the JSON in which
// it is stored. It knows no database, no HTTP and no kind.
//
// The stored form of a body (see [Encode]) is valid JSON that begins with
// `{"metadata":{` and leaves out what the store or the request sets: apiVersion,
// kind and metadata.resourceVersion. To send an object is therefore a splice
// ([AppendWire]), without decoding.
package object

import (
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// Key names an object. Kind is the storage name of its kind: the plural and
// the group, as in "deployments.apps", or the plural alone for the core group.
// Namespace is empty for cluster-scoped kinds.
type Key struct {
	Kind, Namespace, Name string
}

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
