package api

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/json"

	"github.com/exeunt/exeunt/api/fieldowner"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// fastWrites serves the common writes: JSON in, stored bytes out; or
// protobuf, as controllers send it. It does the same as the library's handlers, with the same decoders, lifecycle and
// store. Every unusual or invalid request goes to the library, with its body, before
// anything is written. So error messages come from one place.
// TestWritePathsAgree compares the two paths.
type fastWrites struct {
	r       *resource
	lenient runtime.Decoder
	strict  runtime.Decoder
	proto   *protobuf // nil if the kind has no protobuf form
	owners  *fieldowner.Owners
}

// newJSONWrites returns nil for a kind that only the library writes.
func newJSONWrites(r *resource, owners *fieldowner.Owners) *fastWrites {
	v := r.v
	info, ok := runtime.SerializerInfoForMediaType(v.Wire.Serializer.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		return nil
	}
	strict := kjson.NewSerializerWithOptions(expected{}, v.Wire.Creater, v.Wire.Typer, kjson.SerializerOptions{Strict: true})
	return &fastWrites{
		r:       r,
		lenient: v.Wire.Serializer.DecoderToVersion(info.Serializer, v.GVK.GroupVersion()),
		strict:  v.Wire.Serializer.DecoderToVersion(strict, v.GVK.GroupVersion()),
		proto:   newProtobuf(v),
		owners:  owners,
	}
}

// expected makes the strict decoder assume the expected kind, so that it does not
// parse every body twice, first for the kind alone. decode checks the kind after
// parsing. A body with a duplicate or differently capitalised kind fails the strict
// decoding.
type expected struct{}

func (expected) Interpret([]byte) (*schema.GroupVersionKind, error) {
	return &schema.GroupVersionKind{}, nil
}

// serve answers a common request. It returns false, and has done nothing, if the
// library must serve the request.
func (j *fastWrites) serve(w http.ResponseWriter, req *http.Request, info *genericrequest.RequestInfo, body []byte) bool {
	var write func(context.Context, http.ResponseWriter, *http.Request, *genericrequest.RequestInfo, []byte) bool
	switch {
	case j.r.v.Kind.Namespaced && info.Namespace == "", j.r.admits(info.Verb, info.Namespace):
		return false
	case info.Verb == "create" && j.reads(req) && knownQuery(req):
		write = j.create
	case info.Verb == "update" && j.reads(req) && knownQuery(req):
		write = j.update
	case info.Verb == "patch" && sendsType(req, string(types.MergePatchType)) && knownQuery(req):
		write = j.patch
	case info.Verb == "delete" && (req.ContentLength == 0 || sendsType(req, runtime.ContentTypeJSON) || sendsType(req, runtime.ContentTypeProtobuf)):
		write = j.delete
	default:
		return false
	}
	ctx, cancel := context.WithTimeout(genericrequest.WithNamespace(req.Context(), info.Namespace), writeTimeout)
	defer cancel()
	return write(ctx, w, req, info, body)
}

// admits reports whether plugins, webhooks or policies may judge a write. The library calls
// them.
func (r *resource) admits(verb, namespace string) bool {
	operation := admission.Update
	switch verb {
	case "create":
		operation = admission.Create
	case "delete":
		operation = admission.Delete
	}
	written := r.v.Resource().GroupResource()
	return r.api.Admission.Selects(written, "", operation) || r.api.Admission.SelectsIn(namespace, written, operation)
}

// reads reports whether decode can decode the body.
func (j *fastWrites) reads(req *http.Request) bool {
	return sendsJSON(req) || j.proto != nil && sendsType(req, runtime.ContentTypeProtobuf)
}

// sendsJSON reports whether the body is JSON, which is also what no Content-Type means.
func sendsJSON(req *http.Request) bool {
	return sendsType(req, runtime.ContentTypeJSON) || sendsType(req, "")
}

func sendsType(req *http.Request, contentType string) bool {
	return req.Header.Get("Content-Type") == contentType
}

// knownQuery reports whether readOptions supports all options of the query.
func knownQuery(req *http.Request) bool {
	for name := range req.URL.Query() {
		if name != "fieldManager" && name != "fieldValidation" {
			return false
		}
	}
	return true
}

// writeOptions are the options of a write.
type writeOptions struct {
	manager  string // field manager
	lenient  bool   // ignore unknown fields
	protobuf bool   // the body is protobuf
}

// readOptions returns false for options that the library would refuse.
func (j *fastWrites) readOptions(req *http.Request) (writeOptions, bool) {
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
	return writeOptions{
		manager:  fieldowner.ManagerName(manager, req.UserAgent()),
		lenient:  validate == metav1.FieldValidationIgnore,
		protobuf: sendsType(req, runtime.ContentTypeProtobuf),
	}, true
}

// sent is an object as the client sent it.
type sent struct {
	obj  runtime.Object
	meta metav1.Object
}

// decode decodes an object. It returns false for a body that the library would
// refuse or warn about.
func (j *fastWrites) decode(opts writeOptions, info *genericrequest.RequestInfo, body []byte) (sent, bool) {
	decoder := j.strict
	switch {
	case opts.protobuf:
		decoder = j.proto.decoder
	case opts.lenient:
		decoder = j.lenient
	}
	gvk := j.r.v.GVK
	obj, got, err := decoder.Decode(body, &gvk, j.r.v.New())
	if err != nil || *got != gvk || !hasKind(obj, gvk) {
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

// hasKind reports whether the object's own apiVersion and kind, where set, are gvk. An
// unstructured object was already decoded by its kind.
func hasKind(obj runtime.Object, gvk schema.GroupVersionKind) bool {
	said, ok := obj.GetObjectKind().(*metav1.TypeMeta)
	return !ok || (said.Kind == "" || said.Kind == gvk.Kind) && (said.APIVersion == "" || said.APIVersion == gvk.GroupVersion().String())
}

// create serves the POST of an object. It returns false, and has done nothing, if
// the library must serve the request.
func (j *fastWrites) create(ctx context.Context, w http.ResponseWriter, req *http.Request, info *genericrequest.RequestInfo, body []byte) bool {
	opts, ok := j.readOptions(req)
	if !ok {
		return false
	}
	s, ok := j.decode(opts, info, body)
	if !ok || len(s.meta.GetManagedFields()) > 0 {
		return false
	}
	mark(ctx, stepDecoded)
	j.r.api.audit.Object(ctx, j.r.v, s.obj)
	rest.WipeObjectMetaSystemFields(s.meta)
	var o object.Object
	err := j.r.recovering(func() error {
		j.owners.Created(s.obj, s.meta, opts.manager, j.r.api.Now())
		return nil
	})
	if err == nil {
		err = j.r.complete(ctx, s.obj)
	}
	if err == nil {
		o, err = j.r.create(ctx, s.obj, nil, false)
	}
	mark(ctx, stepStored)
	if err != nil {
		j.r.fail(w, req, err)
		return true
	}
	j.answer(w, req, http.StatusCreated, written{s.obj, o})
	return true
}

// complete does for a new object what the chain does in the library's handlers.
func (r *resource) complete(ctx context.Context, obj runtime.Object) error {
	err := r.api.Admission.Complete(ctx, genericrequest.NamespaceValue(ctx), obj)
	if err == nil {
		return nil
	}
	m, accessErr := meta.Accessor(obj)
	if accessErr != nil {
		return accessErr
	}
	return admission.NewForbidden(createAttributes(ctx, r.v, obj, r.key(ctx, m.GetName()), false), err)
}

// update serves the PUT of an object. It returns false, and has done nothing, if
// the library must serve the request.
func (j *fastWrites) update(ctx context.Context, w http.ResponseWriter, req *http.Request, info *genericrequest.RequestInfo, body []byte) bool {
	opts, ok := j.readOptions(req)
	if !ok {
		return false
	}
	s, ok := j.decode(opts, info, body)
	if !ok || s.meta.GetName() != info.Name {
		return false
	}
	mark(ctx, stepDecoded)
	j.r.api.audit.Object(ctx, j.r.v, s.obj)
	owned := func(_ context.Context, obj, live runtime.Object) (runtime.Object, error) {
		return j.owners.Updated(live, obj, opts.manager, j.r.api.Now()), nil
	}
	written, created, err := j.r.update(ctx, j.r.key(ctx, info.Name), updating{UpdatedObjectInfo: rest.DefaultUpdatedObjectInfo(s.obj, owned)})
	mark(ctx, stepStored)
	if err != nil {
		j.r.fail(w, req, err)
		return true
	}
	code := http.StatusOK
	if created {
		code = http.StatusCreated
	}
	j.answer(w, req, code, written)
	return true
}

// patch serves the JSON merge patch of an object. It returns false, and has done
// nothing, if the library must serve the request. It may find that out only when
// it applies the patch.
func (j *fastWrites) patch(ctx context.Context, w http.ResponseWriter, req *http.Request, info *genericrequest.RequestInfo, body []byte) bool {
	opts, ok := j.readOptions(req)
	if !ok || opts.lenient || !hasUniqueKeys(body) {
		return false
	}
	mark(ctx, stepDecoded)
	uncommon := false
	merge := func(_ context.Context, _, live runtime.Object) (runtime.Object, error) {
		merged, err := j.merge(opts, info, live, body)
		uncommon = err != nil // of the last try, which decides: one before may have begun with an old state
		if err != nil {
			return nil, err
		}
		return j.owners.Updated(live, merged, opts.manager, j.r.api.Now()), nil
	}
	written, _, err := j.r.update(ctx, j.r.key(ctx, info.Name), updating{UpdatedObjectInfo: rest.DefaultUpdatedObjectInfo(nil, merge)})
	mark(ctx, stepStored)
	switch {
	case uncommon:
		return false
	case err != nil:
		j.r.fail(w, req, err)
	default:
		j.answer(w, req, http.StatusOK, written)
	}
	return true
}

// errUncommon marks a patch that the library must apply.
var errUncommon = errors.New("not a common patch")

// merge applies the patch to an existing object.
func (j *fastWrites) merge(opts writeOptions, info *genericrequest.RequestInfo, live runtime.Object, patch []byte) (runtime.Object, error) {
	m, err := meta.Accessor(live)
	if err != nil || m.GetUID() == "" {
		return nil, errUncommon
	}
	revision, err := object.ParseResourceVersion(m.GetResourceVersion())
	if err != nil {
		return nil, err
	}
	stored, err := j.r.v.Encode(live)
	if err != nil {
		return nil, err
	}
	merged, err := jsonpatch.MergePatch(object.AppendWire(nil, j.r.prefix, stored, revision), patch)
	if err != nil {
		return nil, err
	}
	s, ok := j.decode(opts, info, merged)
	if !ok || s.meta.GetName() != info.Name {
		return nil, errUncommon
	}
	return s.obj, nil
}

// hasUniqueKeys reports whether a patch is a JSON object without duplicate keys.
func hasUniqueKeys(patch []byte) bool {
	twice, err := json.UnmarshalStrict(patch, &map[string]any{})
	return err == nil && len(twice) == 0
}

// protobuf has the codecs of a kind for the format in which controllers write.
type protobuf struct {
	decoder runtime.Decoder
	encoder runtime.Encoder // writes the object as it is, with its apiVersion and kind
}

// newProtobuf returns nil for a kind without a protobuf form.
func newProtobuf(v *kind.Version) *protobuf {
	info, ok := runtime.SerializerInfoForMediaType(v.Wire.Serializer.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if _, typed := v.New().(interface{ Marshal() ([]byte, error) }); !ok || !typed || v.Wire.Custom {
		return nil
	}
	return &protobuf{decoder: v.Wire.Serializer.DecoderToVersion(info.Serializer, v.GVK.GroupVersion()), encoder: info.Serializer}
}

// writes reports whether answer has the format that the client wants.
func (j *fastWrites) writes(req *http.Request) bool {
	return wantsJSON(req) || j.proto != nil && wantsProtobuf(req)
}

// wantsProtobuf reports whether the client's first choice is protobuf.
func wantsProtobuf(req *http.Request) bool {
	accept, _, _ := strings.Cut(req.Header.Get("Accept"), ",")
	return strings.TrimSpace(accept) == runtime.ContentTypeProtobuf
}

// answer sends the result of a write. Without a decoded object it decodes the stored one if
// it has to.
func (j *fastWrites) answer(w http.ResponseWriter, req *http.Request, code int, result written) {
	if !wantsProtobuf(req) {
		j.r.writeObject(w, code, result.stored)
		return
	}
	obj, err := result.obj, error(nil)
	if obj == nil {
		obj, err = j.r.decode(result.stored)
	} else {
		obj, err = withVersion(obj, result.stored)
	}
	if err != nil {
		j.r.fail(w, req, err)
		return
	}
	obj.GetObjectKind().SetGroupVersionKind(j.r.v.GVK)
	j.answerProtobuf(w, req, code, obj)
}

// answerStatus sends the Status of a delete.
func (j *fastWrites) answerStatus(w http.ResponseWriter, req *http.Request, status *metav1.Status) {
	if !wantsProtobuf(req) {
		writeJSON(w, http.StatusOK, status)
		return
	}
	j.answerProtobuf(w, req, http.StatusOK, status)
}

func (j *fastWrites) answerProtobuf(w http.ResponseWriter, req *http.Request, code int, obj runtime.Object) {
	var buf bytes.Buffer
	if err := j.proto.encoder.Encode(obj, &buf); err != nil {
		j.r.fail(w, req, j.r.internalError(err))
		return
	}
	h := w.Header()
	h["Content-Type"] = protobufContentType
	h["Cache-Control"] = noCache
	w.WriteHeader(code)
	_, _ = w.Write(buf.Bytes())
}

var protobufContentType = []string{runtime.ContentTypeProtobuf}
