package archive

import (
	"fmt"
	"slices"
	"sync"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
)

// Kinds are ArchivedObject, Cascade and Restore.
func (a *Archive) Kinds() []*kind.Kind {
	archived := &kind.Kind{
		Group: v1.GroupVersion.Group, Name: "ArchivedObject", ListName: "ArchivedObjectList",
		Plural: "archivedobjects", Singular: "archivedobject", Namespaced: true,
		Storage: kind.StorageName(v1.GroupVersion.Group, "archivedobjects"),
		Source:  source{a},
	}
	version := newVersion(archived, func() runtime.Object { return &v1.ArchivedObject{} })
	version.NewList = func() runtime.Object { return &v1.ArchivedObjectList{} }
	version.SelectableFields = slices.Clone(selectable)
	version.Table = archivedTable{}
	version.Schema = v1.Schema(v1.ArchivedObject{})

	restore := &kind.Kind{
		Group: v1.GroupVersion.Group, Name: "Restore", ListName: "RestoreList",
		Plural: "restores", Singular: "restore",
		Storage: kind.StorageName(v1.GroupVersion.Group, "restores"),
		Answer:  a.answer, Source: requests{a},
	}
	kept := newVersion(restore, func() runtime.Object { return &v1.Restore{} })
	kept.NewList = func() runtime.Object { return &v1.RestoreList{} }
	kept.Table = restoreTable{}
	kept.Schema = v1.Schema(v1.Restore{})
	return []*kind.Kind{archived, a.cascadeKind(), restore}
}

func (a *Archive) cascadeKind() *kind.Kind {
	k := &kind.Kind{
		Group: v1.GroupVersion.Group, Name: "Cascade", ListName: "CascadeList",
		Plural: "cascades", Singular: "cascade", Namespaced: true,
		Storage: kind.StorageName(v1.GroupVersion.Group, "cascades"),
		Source:  cascades{a},
	}
	version := newVersion(k, func() runtime.Object { return &v1.Cascade{} })
	version.NewList = func() runtime.Object { return &v1.CascadeList{} }
	version.Table = cascadeTable{}
	version.Schema = v1.Schema(v1.Cascade{})
	return k
}

// warn sends the important parts of a status as warnings: some clients print no
// status, such as kubectl create without -o.
func warn(status v1.RestoreStatus, say func(text string)) {
	if status.LeftBehind > 0 {
		say(fmt.Sprintf("%d more objects of cascade %s are still in the archive: restore with spec.withCascade, or spec.cascade", status.LeftBehind, status.Cascade))
	}
	if status.Conflicts > 0 {
		say(fmt.Sprintf("%d were skipped because another object has the name: see status.results", status.Conflicts))
	}
	if status.Failed > 0 {
		say(fmt.Sprintf("%d could not be restored: see status.results", status.Failed))
	}
}

// newVersion adds the one version to a kind.
func newVersion(k *kind.Kind, make func() runtime.Object) *kind.Version {
	gvk := v1.GroupVersion.WithKind(k.Name)
	v := &kind.Version{
		Kind: k, GVK: gvk, New: make, Encode: object.Encode,
		Decode: func(body []byte, resourceVersion string) (runtime.Object, error) {
			obj := make()
			return obj, object.DecodeInto(body, resourceVersion, gvk, obj)
		},
		Wire: wire(),
	}
	k.Versions = []*kind.Version{v}
	return v
}

// scheme has the types of this package, and the types of a server's other answers.
var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(v1.GroupVersion, &v1.ArchivedObject{}, &v1.ArchivedObjectList{}, &v1.Cascade{}, &v1.CascadeList{}, &v1.Restore{}, &v1.RestoreList{})
	metav1.AddToGroupVersion(s, v1.GroupVersion)
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	convert := func(label, value string) (string, string, error) {
		if label == "metadata.name" || label == "metadata.namespace" || slices.Contains(selectable, label) {
			return label, value, nil
		}
		return "", "", fmt.Errorf("field label not supported: %s", label)
	}
	if err := s.AddFieldLabelConversionFunc(v1.GroupVersion.WithKind("ArchivedObject"), convert); err != nil {
		panic(fmt.Sprintf("archive scheme: %v", err)) // the input is constant: one test call proves it
	}
	return s
})

var wire = sync.OnceValue(func() *kind.Wire {
	s := scheme()
	codecs := serializer.NewCodecFactory(s, serializer.WithStreamingCollectionEncodingToJSON())
	var text []runtime.SerializerInfo // these types have no protobuf form
	for _, info := range codecs.SupportedMediaTypes() {
		if info.EncodesAsText {
			text = append(text, info)
		}
	}
	return &kind.Wire{
		Serializer:          codecs,
		StandardSerializers: text,
		ParameterCodec:      runtime.NewParameterCodec(s),
		Creater:             s,
		Convertor:           s,
		UnsafeConvertor:     runtime.UnsafeObjectConvertor(s),
		Defaulter:           s,
		Typer:               s,
		TypeConverter:       managedfields.NewDeducedTypeConverter(),
	}
})
