package api

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// jsonCreate is the path of the common create: a JSON object in, the stored
// bytes out. It does what the library's handler does for such a request, with
// the same decoders, and leaves everything else to it: whatever is unusual or
// wrong is handed over, body and all, before anything was done. So there is
// one place that words the errors, and TestCreatePathsAgree holds the two
// against each other.
type jsonCreate struct {
	r       *resource
	lenient runtime.Decoder
	strict  runtime.Decoder
	owner   *creator
	library http.HandlerFunc
}

func newJSONCreate(r *resource, library http.HandlerFunc) *jsonCreate {
	v := r.v
	info, ok := runtime.SerializerInfoForMediaType(v.Wire.Serializer.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		return nil
	}
	return &jsonCreate{
		r:       r,
		lenient: v.Wire.Serializer.DecoderToVersion(info.Serializer, v.GVK.GroupVersion()),
		strict:  v.Wire.Serializer.DecoderToVersion(info.StrictSerializer, v.GVK.GroupVersion()),
		owner:   newCreator(v),
		library: library,
	}
}

// takes says whether the request is common enough.
func (c *jsonCreate) takes(req *http.Request) bool {
	if req.Header.Get("Content-Type") != runtime.ContentTypeJSON || req.ContentLength > MaxBody {
		return false
	}
	for name := range req.URL.Query() {
		if name != "fieldManager" && name != "fieldValidation" {
			return false
		}
	}
	return true
}

func (c *jsonCreate) serve(w http.ResponseWriter, req *http.Request, info *genericrequest.RequestInfo) {
	body, err := readBody(req)
	if err != nil {
		c.handOver(w, req, body)
		return
	}
	obj, accessor, ok := c.decode(req, info, body)
	if !ok {
		c.handOver(w, req, body)
		return
	}
	ctx, cancel := context.WithTimeout(genericrequest.WithNamespace(req.Context(), info.Namespace), createTimeout)
	defer cancel()
	manager := managerName(req.URL.Query().Get("fieldManager"), req.UserAgent())
	c.owner.own(obj, accessor, manager, c.r.api.now())
	o, err := c.r.create(ctx, obj, nil, false)
	if err != nil {
		c.r.fail(w, req, err)
		return
	}
	c.r.writeObject(w, http.StatusCreated, o)
}

// decode reads the object. It says no to all that the library would have
// something to say about.
func (c *jsonCreate) decode(req *http.Request, info *genericrequest.RequestInfo, body []byte) (runtime.Object, metav1.Object, bool) {
	query := req.URL.Query()
	decoder := c.strict
	switch query.Get("fieldValidation") {
	case "", metav1.FieldValidationWarn, metav1.FieldValidationStrict:
	case metav1.FieldValidationIgnore:
		decoder = c.lenient
	default:
		return nil, nil, false
	}
	if len(query.Get("fieldManager")) > 64 {
		return nil, nil, false
	}
	gvk := c.r.v.GVK
	obj, got, err := decoder.Decode(body, &gvk, c.r.v.New())
	if err != nil || *got != gvk {
		return nil, nil, false
	}
	accessor, err := meta.Accessor(obj)
	if err != nil || len(accessor.GetOwnerReferences()) > 1 || len(accessor.GetManagedFields()) > 0 {
		return nil, nil, false
	}
	rest.WipeObjectMetaSystemFields(accessor)
	namespace := info.Namespace
	if !c.r.v.Kind.Namespaced {
		namespace = ""
	}
	if err := rest.EnsureObjectNamespaceMatchesRequestNamespace(namespace, accessor); err != nil {
		return nil, nil, false
	}
	return obj, accessor, true
}

func (c *jsonCreate) handOver(w http.ResponseWriter, req *http.Request, read []byte) {
	req.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(read), req.Body), req.Body}
	c.library(w, req)
}

// readBody reads up to one byte more than is allowed.
func readBody(req *http.Request) ([]byte, error) {
	size := req.ContentLength
	if size < 0 {
		size = 512
	}
	buf := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	n, err := buf.ReadFrom(io.LimitReader(req.Body, MaxBody+1))
	if err == nil && n > MaxBody {
		err = io.ErrShortBuffer
	}
	return buf.Bytes(), err
}
