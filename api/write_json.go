package api

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// jsonWrites are the paths of the common writes, one file for each: JSON in,
// stored bytes out.
// They do what the library's handlers do for such requests, with the same
// decoders, the same lifecycle and the same store, and leave everything else to
// them: whatever is unusual or wrong is handed over, body and all, before
// anything was done. So there is one place that words the errors, and
// TestWritePathsAgree holds the two against each other.
type jsonWrites struct {
	r       *resource
	lenient runtime.Decoder
	strict  runtime.Decoder
	owners  *fieldOwners
}

// newJSONWrites is nil for a kind that the library writes.
func newJSONWrites(r *resource, owners *fieldOwners) *jsonWrites {
	v := r.v
	info, ok := runtime.SerializerInfoForMediaType(v.Wire.Serializer.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		return nil
	}
	strict := kjson.NewSerializerWithOptions(expected{}, v.Wire.Creater, v.Wire.Typer, kjson.SerializerOptions{Strict: true})
	return &jsonWrites{
		r:       r,
		lenient: v.Wire.Serializer.DecoderToVersion(info.Serializer, v.GVK.GroupVersion()),
		strict:  v.Wire.Serializer.DecoderToVersion(strict, v.GVK.GroupVersion()),
		owners:  owners,
	}
}

// expected spares the strict decoder to read every body twice, the first time
// for its kind only: it takes each to be what is expected here, which decode
// checks when the body has been read. A body that says its kind twice, or in
// other letters, is not decoded strictly.
type expected struct{}

func (expected) Interpret([]byte) (*schema.GroupVersionKind, error) {
	return &schema.GroupVersionKind{}, nil
}

// serve answers the request, or says false, with nothing done, if it is not one
// of the common ones or if the library must answer.
func (j *jsonWrites) serve(w http.ResponseWriter, req *http.Request, info *genericrequest.RequestInfo, body []byte) bool {
	var write func(context.Context, http.ResponseWriter, *http.Request, *genericrequest.RequestInfo, []byte) bool
	switch {
	case j.r.v.Kind.Namespaced && info.Namespace == "":
		return false
	case info.Verb == "create" && sendsType(req, runtime.ContentTypeJSON) && knownQuery(req):
		write = j.create
	case info.Verb == "update" && sendsType(req, runtime.ContentTypeJSON) && knownQuery(req):
		write = j.update
	case info.Verb == "patch" && sendsType(req, string(types.MergePatchType)) && knownQuery(req):
		write = j.patch
	case info.Verb == "delete" && (req.ContentLength == 0 || sendsType(req, runtime.ContentTypeJSON)):
		write = j.delete
	default:
		return false
	}
	ctx, cancel := context.WithTimeout(genericrequest.WithNamespace(req.Context(), info.Namespace), writeTimeout)
	defer cancel()
	return write(ctx, w, req, info, body)
}

func sendsType(req *http.Request, contentType string) bool {
	return req.Header.Get("Content-Type") == contentType
}

// knownQuery says whether readOptions knows all options.
func knownQuery(req *http.Request) bool {
	for name := range req.URL.Query() {
		if name != "fieldManager" && name != "fieldValidation" {
			return false
		}
	}
	return true
}

// writeOptions are how a write is meant.
type writeOptions struct {
	manager string // who writes
	lenient bool   // unknown fields are ignored
}

// readOptions says no to all that the library would have something to say
// about.
func (j *jsonWrites) readOptions(req *http.Request) (writeOptions, bool) {
	query := req.URL.Query()
	manager, validate := query.Get("fieldManager"), query.Get("fieldValidation")
	switch validate {
	case "", metav1.FieldValidationWarn, metav1.FieldValidationStrict, metav1.FieldValidationIgnore:
	default:
		return writeOptions{}, false
	}
	if len(validation.ValidateFieldManager(manager, nil)) > 0 {
		return writeOptions{}, false
	}
	return writeOptions{managerName(manager, req.UserAgent()), validate == metav1.FieldValidationIgnore}, true
}

// sent is an object as a client wants it.
type sent struct {
	obj  runtime.Object
	meta metav1.Object
}

// decode reads an object. It says no to all that the library would have
// something to say about.
func (j *jsonWrites) decode(how writeOptions, info *genericrequest.RequestInfo, body []byte) (sent, bool) {
	decoder := j.strict
	if how.lenient {
		decoder = j.lenient
	}
	gvk := j.r.v.GVK
	obj, got, err := decoder.Decode(body, &gvk, j.r.v.New())
	if err != nil || *got != gvk || !saysKind(obj, gvk) {
		return sent{}, false
	}
	accessor, err := meta.Accessor(obj)
	if err != nil || len(accessor.GetOwnerReferences()) > 1 {
		return sent{}, false
	}
	if err := rest.EnsureObjectNamespaceMatchesRequestNamespace(rest.ExpectedNamespaceForResource(info.Namespace, j.r.v.Resource()), accessor); err != nil {
		return sent{}, false
	}
	return sent{obj, accessor}, true
}

// saysKind says whether an object is of a kind by its own words, or says
// nothing. One that has no Go type was read by its kind.
func saysKind(obj runtime.Object, gvk schema.GroupVersionKind) bool {
	said, ok := obj.GetObjectKind().(*metav1.TypeMeta)
	return !ok || (said.Kind == "" || said.Kind == gvk.Kind) && (said.APIVersion == "" || said.APIVersion == gvk.GroupVersion().String())
}
