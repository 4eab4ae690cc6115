package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// ObjectVersionList is the versions of one name, the newest first: the answer to GET /at/versions/ and the path of an
// object.
type ObjectVersionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ObjectVersion `json:"items"`
}

// ObjectVersion is an object as a change left it, and who made the change.
type ObjectVersion struct {
	// Version is the resourceVersion that the change has.
	Version string `json:"version"`
	// Time is when it was made. Absent: an earlier version of this server made it.
	Time *metav1.MicroTime `json:"time,omitempty"`
	// UID is the object's. An object that was created again under its name has another.
	UID types.UID `json:"uid"`
	// Event is what happened to the object: created, changed or removed.
	Event VersionEvent `json:"event"`
	// User made the request, or is the part of the server that made the change.
	User string `json:"user,omitempty"`
	// Client is the User-Agent of the request.
	Client string `json:"client,omitempty"`
	// Verb is that of the request: "patch", or "update status".
	Verb string `json:"verb,omitempty"`
	// RequestID is the Audit-Id of the request.
	RequestID string `json:"requestID,omitempty"`
	// Changes is what differs from the version before, without metadata.managedFields, generation and resourceVersion.
	Changes []Change `json:"changes,omitempty"`
	// Object is the object. Absent: it was removed.
	Object *runtime.RawExtension `json:"object,omitempty"`
}

// VersionEvent is what a change did to an object.
//
// +enum
type VersionEvent string

// The events of versions.
const (
	VersionCreated VersionEvent = "created"
	VersionChanged VersionEvent = "changed"
	VersionRemoved VersionEvent = "removed"
)
