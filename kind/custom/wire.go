package custom

import (
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/crdserverscheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/versioning"

	"github.com/exeunt/exeunt/kind"
)

// wire returns the codecs of one version of the family.
func (f *family) wire(v apiextensionsv1.CustomResourceDefinitionVersion) *kind.Wire {
	// Options objects arrive under the version's own name, but are not custom objects.
	// This scheme contains only them.
	options := runtime.NewScheme()
	options.AddUnversionedTypes(schema.GroupVersion{Group: f.kind.Group, Version: v.Name},
		&metav1.ListOptions{}, &metav1.GetOptions{}, &metav1.DeleteOptions{})
	typer := typer{options}
	s := &serializer{family: f, scheme: messages(), media: mediaTypes(typer)}
	return &kind.Wire{
		Serializer:          s,
		StandardSerializers: s.media[:2:2], // without protobuf, which is only for Status, Table etc.
		ParameterCodec:      runtime.NewParameterCodec(options),
		Creater:             creater{},
		Convertor:           f.copying,
		UnsafeConvertor:     f.convert,
		Defaulter:           defaulter{delegate: options, family: f},
		Typer:               typer,
		TypeConverter:       types{f},
		Custom:              true,
	}
}

// messages is the scheme of responses and requests that are not objects: Status, watch
// events, options. It is built once and never changed.
var messages = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(s, v1)
	s.AddUnversionedTypes(v1, &metav1.Status{}, &metav1.WatchEvent{}, &metav1.APIVersions{},
		&metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return s
})

// mediaTypes are JSON and YAML, for everything, and protobuf, last, for responses that
// are not custom objects.
func mediaTypes(t typer) []runtime.SerializerInfo {
	text := func(o json.SerializerOptions) *json.Serializer {
		return json.NewSerializerWithOptions(json.DefaultMetaFactory, creater{}, t, o)
	}
	return []runtime.SerializerInfo{{
		MediaType: runtime.ContentTypeJSON, MediaTypeType: "application", MediaTypeSubType: "json",
		EncodesAsText:    true,
		Serializer:       text(json.SerializerOptions{StreamingCollectionsEncoding: true}),
		PrettySerializer: text(json.SerializerOptions{Pretty: true}),
		StrictSerializer: text(json.SerializerOptions{Strict: true, StreamingCollectionsEncoding: true}),
		StreamSerializer: &runtime.StreamSerializerInfo{
			EncodesAsText: true, Serializer: text(json.SerializerOptions{}), Framer: json.Framer,
		},
	}, {
		MediaType: runtime.ContentTypeYAML, MediaTypeType: "application", MediaTypeSubType: "yaml",
		EncodesAsText:    true,
		Serializer:       text(json.SerializerOptions{Yaml: true}),
		StrictSerializer: text(json.SerializerOptions{Yaml: true, Strict: true}),
	}, {
		MediaType: runtime.ContentTypeProtobuf, MediaTypeType: "application", MediaTypeSubType: "vnd.kubernetes.protobuf",
		Serializer:       protobuf.NewSerializerWithOptions(creater{}, t, protobuf.SerializerOptions{StreamingCollectionsEncoding: true}),
		StrictSerializer: protobuf.NewSerializerWithOptions(creater{}, t, protobuf.SerializerOptions{StreamingCollectionsEncoding: true}),
		StreamSerializer: &runtime.StreamSerializerInfo{
			Serializer: protobuf.NewRawSerializer(creater{}, t), Framer: protobuf.LengthDelimitedFramer,
		},
	}}
}

// serializer is the family's runtime.NegotiatedSerializer. Its decoders prune objects
// and set defaults.
type serializer struct {
	family *family
	scheme *runtime.Scheme
	media  []runtime.SerializerInfo
}

// SupportedMediaTypes lists JSON, YAML and protobuf.
func (s *serializer) SupportedMediaTypes() []runtime.SerializerInfo { return s.media }

// EncoderForVersion encodes objects in a version, and messages unchanged.
func (s *serializer) EncoderForVersion(e runtime.Encoder, gv runtime.GroupVersioner) runtime.Encoder {
	return versioning.NewCodec(e, nil, s.family.copying, s.scheme, s.scheme, s.scheme, gv, nil, "custom")
}

// DecoderToVersion decodes objects. A strict decoder also reports unknown fields.
func (s *serializer) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	strict := false
	if text, ok := d.(*json.Serializer); ok {
		strict = text.IsStrict()
	}
	fitting := decoder{delegate: d, coercer: coercer{family: s.family, track: strict}}
	defaults := defaulter{delegate: s.scheme, family: s.family}
	return versioning.NewCodec(nil, fitting, runtime.UnsafeObjectConvertor(s.scheme), s.scheme, s.scheme, defaults, nil, gv, "custom")
}

// decoder coerces the objects that its delegate decodes.
type decoder struct {
	delegate runtime.Decoder
	coercer  coercer
}

// Decode returns the object together with the error if the error is a strict one.
func (d decoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	var strict []error
	obj, gvk, err := d.delegate.Decode(data, defaults, into)
	if err != nil {
		e, ok := runtime.AsStrictDecodingError(err)
		if !ok || obj == nil {
			return nil, gvk, err
		}
		strict = e.Errors()
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		unknown, err := d.coercer.apply(u)
		if err != nil {
			return nil, gvk, err
		}
		for _, path := range unknown {
			strict = append(strict, fmt.Errorf("unknown field %q", path))
		}
	}
	if d.coercer.track && len(strict) > 0 {
		return obj, gvk, runtime.NewStrictDecodingError(strict)
	}
	return obj, gvk, nil
}

// typer reads the kind of custom objects from their content, and of options by Go type.
type typer struct{ options *runtime.Scheme }

// ObjectKinds implements runtime.ObjectTyper.
func (t typer) ObjectKinds(obj runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	if _, ok := obj.(runtime.Unstructured); ok {
		return crdserverscheme.NewUnstructuredObjectTyper().ObjectKinds(obj)
	}
	return t.options.ObjectKinds(obj)
}

// Recognizes implements runtime.ObjectTyper.
func (t typer) Recognizes(gvk schema.GroupVersionKind) bool { return t.options.Recognizes(gvk) }

// creater creates unstructured objects of any kind.
type creater struct{}

// New implements runtime.ObjectCreater.
func (creater) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

// defaulter sets the defaults of the object's own version.
type defaulter struct {
	delegate runtime.ObjectDefaulter // for all types outside the family
	family   *family
}

// Default implements runtime.ObjectDefaulter.
func (d defaulter) Default(obj runtime.Object) {
	u, ok := obj.(runtime.Unstructured)
	if !ok || u.GetObjectKind().GroupVersionKind().GroupKind() != d.family.kind {
		d.delegate.Default(obj)
		return
	}
	if s, err := d.family.structural(u.GetObjectKind().GroupVersionKind().Version); err == nil { // else the next step fails
		defaulting.Default(u.UnstructuredContent(), s)
	}
}
