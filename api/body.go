package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/apihelpers"

	"github.com/exeunt/exeunt/api/bodycost"
	"github.com/exeunt/exeunt/api/selector"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

const (
	// maxBodies limits the bytes of all bodies in memory: bodies being received and
	// bodies of requests being served.
	maxBodies = 256 << 20
	// firstRead is the memory, in bytes, that a body gets before its first byte
	// arrives. The buffer grows with the bytes received, so a client cannot
	// reserve memory that it does not fill.
	firstRead = 16 << 10
)

// sendsBody reports whether requests of this verb have a body.
func sendsBody(info *genericrequest.RequestInfo) bool {
	switch info.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// checkHeaders checks the headers and returns an error for a request that must
// be refused before the server receives its body.
func (a *API) checkHeaders(req *http.Request, info *genericrequest.RequestInfo, v *kind.Version) error {
	if !v.Wire.Custom {
		if err := checkAccept(req, info.Verb == "watch"); err != nil {
			return err
		}
	}
	if !sendsBody(info) {
		return nil
	}
	switch {
	case req.ContentLength > bodycost.MaxBody:
		return errBodySize()
	case a.inFlight.Full():
		return errBusy()
	case info.Verb == "patch":
		mediaType, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
		if supported := patchTypes(v); !slices.Contains(supported, mediaType) {
			return errPatchType(v, supported)
		}
	case info.Verb == "create" || info.Verb == "update":
		if sendsProtobuf(req) && v.Wire.Custom {
			return negotiation.NewUnsupportedMediaTypeError([]string{"application/json", "application/yaml"})
		}
		_, err := negotiation.NegotiateInputSerializer(req, false, v.Wire.Serializer)
		return err
	case req.ContentLength > 0: // options of a delete
		_, err := negotiation.NegotiateInputSerializer(req, false, apihelpers.GetMetaInternalVersionCodecs())
		return err
	}
	return nil
}

// received is a request whose body is complete in memory.
type received struct {
	*http.Request
	body []byte
	held int64 // bytes counted in API.bodies
}

// receive reads the body and checks it. The body of the returned request can be
// read once more, by the library. The memory is counted until a.release.
func (a *API) receive(req *http.Request, info *genericrequest.RequestInfo) (r received, err error) {
	r.Request = req
	if !sendsBody(info) || req.ContentLength == 0 || req.Body == nil {
		return r, nil
	}
	r.body, r.held, err = readBody(req, &a.bodies)
	if err == nil {
		err = bodycost.Check(req.Header.Get("Content-Type"), r.body)
	}
	if err == nil && info.Verb == "patch" {
		r.Request, err = bodycost.MeasurePatch(req, r.body)
	}
	if err != nil {
		a.release(r)
		return received{}, err
	}
	r.Body = io.NopCloser(bytes.NewReader(r.body))
	return r, nil
}

func (a *API) release(r received) { a.bodies.Add(-r.held) }

// readBody reads a body of at most bodycost.MaxBody bytes. held is the memory that it
// counted in inMemory, also when it fails.
func readBody(req *http.Request, inMemory *atomic.Int64) (body []byte, held int64, err error) {
	size := int64(firstRead)
	if req.ContentLength > 0 {
		size = min(size, req.ContentLength+1) // one byte more, to read io.EOF
	}
	for {
		if inMemory.Add(size) > maxBodies {
			return nil, held + size, errBusy()
		}
		held += size
		body = slices.Grow(body, int(size))
		for int64(len(body)) < held {
			n, err := req.Body.Read(body[len(body):held])
			body = body[:len(body)+n]
			switch {
			case err == io.EOF && len(body) <= bodycost.MaxBody:
				return body, held, nil
			case len(body) > bodycost.MaxBody:
				return nil, held, errBodySize()
			case err != nil:
				return nil, held, errReadBody(err)
			}
		}
		size = min(held, bodycost.MaxBody+1-held) // double the buffer
	}
}

func errBodySize() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", bodycost.MaxBody))
}

func errBusy() error {
	return apierrors.NewTooManyRequests("the server is serving as many requests as it can; please try again", retryAfter)
}

// errSelectors refuses a watch whose client evaluates too much already.
func errSelectors() error {
	return apierrors.NewTooManyRequests(fmt.Sprintf("the selectors of watches have more terms than this client's share; use selectors of fewer than %d terms, which do not count", selector.TermsPerSlot), retryAfter)
}

// errReadBody says why a body could not be read. It has no Retry-After: a
// connection that is too slow for the body would be too slow again.
func errReadBody(err error) error {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return errBodySize()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusRequestTimeout, Reason: metav1.StatusReasonTimeout,
			Message: "the body of the request did not arrive in time",
		}}
	}
	return apierrors.NewBadRequest("the body of the request ended before it was complete")
}

// documentStatus turns an error about a document into a Status.
func documentStatus(err error) error {
	var refused *object.Error
	if !errors.As(err, &refused) {
		return err
	}
	if refused.Code == object.TooLarge {
		return apierrors.NewRequestEntityTooLargeError(refused.Message)
	}
	return apierrors.NewBadRequest(refused.Message)
}

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
