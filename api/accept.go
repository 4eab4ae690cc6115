package api

import (
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"

	"github.com/exeunt/exeunt/kind"
)

// produced are the media types of answers about built-in kinds, and of discovery.
var produced = []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"}

// checkAccept refuses a request whose Accept header names none of the produced types, in
// the words of Kubernetes. The library checks the parameters (as=Table).
func checkAccept(req *http.Request, watch bool) error {
	values := req.Header.Values("Accept")
	if len(values) == 0 || values[0] == "" {
		return nil
	}
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			name, _, _ := strings.Cut(part, ";")
			switch name = strings.ToLower(strings.TrimSpace(name)); {
			case name == "*/*", name == "application/*", name == "*", slices.Contains(produced, name):
				return nil
			}
		}
	}
	offered := strings.Join(produced, ", ")
	if watch {
		offered += ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
	}
	return mediaTypeError(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "406: Not Acceptable\n\nAvailable representations: "+offered)
}

// errPatchType refuses a patch of a type that the kind does not support.
func errPatchType(v *kind.Version, supported []string) error {
	if v.Wire.Custom {
		return negotiation.NewUnsupportedMediaTypeError(supported)
	}
	return mediaTypeError(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "415: Unsupported Media Type")
}

func mediaTypeError(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: &metav1.StatusDetails{},
	}}
}
