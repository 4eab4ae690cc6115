package builtin

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"go.yaml.in/yaml/v2"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corev1defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	_ "k8s.io/kubernetes/pkg/apis/storagemigration/install"
	"k8s.io/kubernetes/pkg/capabilities"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/exeunt/exeunt/kind"
)

// Scheme returns the scheme of all types of Kubernetes, with their defaults, conversions and
// field labels. It must not be changed.
func Scheme() *runtime.Scheme { return scheme() }

// Codecs returns the serializers of Scheme. They stream collections, so that a list is
// never in memory twice.
func Codecs() serializer.CodecFactory { return codecs() }

// scheme adds Tables and metadata to Kubernetes' own scheme, which its strategies use. Pods may be
// privileged: the labels of a namespace decide about that. A Secret's stringData becomes data with its
// defaults, right after it is decoded, as Kubernetes' internal type does it: owners of fields, webhooks and
// policies never see stringData.
var scheme = sync.OnceValue(func() *runtime.Scheme {
	capabilities.Setup(true, 0)
	s := legacyscheme.Scheme
	add := runtime.NewSchemeBuilder(metav1.AddMetaToScheme, metav1beta1.AddMetaToScheme)
	if err := add.AddToScheme(s); err != nil {
		panic(err) // cannot happen: the types are constant
	}
	s.AddTypeDefaultingFunc(&corev1.Secret{}, func(obj any) {
		secret := obj.(*corev1.Secret)
		corev1defaults.SetObjectDefaults_Secret(secret)
		for k, v := range secret.StringData {
			if secret.Data == nil {
				secret.Data = map[string][]byte{}
			}
			secret.Data[k] = []byte(v)
		}
		secret.StringData = nil
	})
	return s
})

var codecs = sync.OnceValue(func() serializer.CodecFactory {
	return serializer.NewCodecFactory(Scheme(),
		serializer.WithStreamingCollectionEncodingToJSON(),
		serializer.WithStreamingCollectionEncodingToProtobuf())
})

// convert returns obj as another version of its kind. The two may share memory.
func convert(obj runtime.Object, to schema.GroupVersionKind) (runtime.Object, error) {
	in, err := internal(obj)
	if err != nil {
		return nil, err
	}
	return Scheme().UnsafeConvertToVersion(in, to.GroupVersion())
}

// fieldLabels are the labels that a fieldSelector may name, besides metadata.name and
// metadata.namespace, which every kind has, as Scheme converts them. The values of selectors
// are not changed: the reader of the body decides what an absent field means.
var fieldLabels = map[schema.GroupVersionKind][]string{
	corev1.SchemeGroupVersion.WithKind("Pod"): {
		"spec.hostNetwork", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
		"status.nominatedNodeName", "status.phase", "status.podIP",
	},
	corev1.SchemeGroupVersion.WithKind("Node"):                              {"spec.unschedulable"},
	corev1.SchemeGroupVersion.WithKind("ReplicationController"):             {"status.replicas"},
	corev1.SchemeGroupVersion.WithKind("Namespace"):                         {"status.phase"},
	corev1.SchemeGroupVersion.WithKind("Secret"):                            {"type"},
	corev1.SchemeGroupVersion.WithKind("Service"):                           {"spec.clusterIP", "spec.type"},
	corev1.SchemeGroupVersion.WithKind("Event"):                             append([]string{"source"}, eventLabels...),
	eventsv1.SchemeGroupVersion.WithKind("Event"):                           eventLabels,
	appsv1.SchemeGroupVersion.WithKind("ReplicaSet"):                        {"status.replicas"},
	batchv1.SchemeGroupVersion.WithKind("Job"):                              {"status.successful"},
	certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"): {"spec.signerName"},
	certificatesv1.SchemeGroupVersion.WithKind("ClusterTrustBundle"):        {"spec.signerName"},
	certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequest"):     {"spec.nodeName", "spec.podName", "spec.signerName"},
	resourcev1.SchemeGroupVersion.WithKind("ResourceSlice"): {
		resourcev1.ResourceSliceSelectorDriver, resourcev1.ResourceSliceSelectorNodeName, resourcev1.ResourceSliceSelectorPoolName,
	},
}

var eventLabels = []string{
	"involvedObject.apiVersion", "involvedObject.fieldPath", "involvedObject.kind", "involvedObject.name",
	"involvedObject.namespace", "involvedObject.resourceVersion", "involvedObject.uid",
	"reason", "reportingComponent", "type",
}

// wire returns the codecs that all built-in kinds share.
var wire = sync.OnceValue(func() *kind.Wire {
	s := Scheme()
	return &kind.Wire{
		Serializer:      Codecs(),
		ParameterCodec:  runtime.NewParameterCodec(s),
		Creater:         s,
		Convertor:       versions{s, true},
		UnsafeConvertor: versions{s, false},
		Defaulter:       s,
		Typer:           s,
		TypeConverter:   newTypeConverter(s),
	}
})

// Wire returns the codecs of built-in objects. They include Scale, the /scale subresource
// of kinds in all groups.
func Wire() *kind.Wire { return wire() }

// versions converts between the versions that are served, by way of the internal types.
type versions struct {
	*runtime.Scheme
	copies bool // the result shares no memory with the object
}

func (v versions) ConvertToVersion(obj runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	if kinds, unversioned, err := v.ObjectKinds(obj); err == nil && !unversioned {
		if kind, ok := to.KindForGroupVersionKinds(kinds); ok && !slices.Contains(kinds, kind) {
			if obj, err = internal(obj); err != nil {
				return nil, err
			}
		}
	}
	if v.copies {
		return v.Scheme.ConvertToVersion(obj, to)
	}
	return v.UnsafeConvertToVersion(obj, to)
}

//go:generate go test . -run TestTypesAreTheLibrarys -update

// packedTypes are the types of every field of the built-in kinds for server-side apply: a
// map, a list with keys, or atomic. They are client-go's, for the kinds that we serve: a
// gzipped JSON object with one YAML text per type.
//
//go:embed types.json.gz
var packedTypes []byte

// typeConverter types the objects of the built-in kinds for server-side apply. client-go's
// own converter reads the types of all kinds, which takes half a second and several
// megabytes. This one reads the types of a kind when an object of it is first written.
//
// The kinds that are never stored have no types there. Their types are deduced from the values, which is
// enough for objects that are never stored.
type typeConverter struct {
	scheme  *runtime.Scheme
	deduced managedfields.TypeConverter

	kinds sync.Map // schema.GroupVersionKind to *typed.ParseableType; entries never change

	mu    sync.Mutex
	types map[string]smd.TypeDef // types read so far, shared by kinds; guarded by mu
}

func newTypeConverter(s *runtime.Scheme) *typeConverter {
	return &typeConverter{scheme: s, deduced: managedfields.NewDeducedTypeConverter(), types: map[string]smd.TypeDef{}}
}

// ObjectToTyped implements managedfields.TypeConverter.
func (c *typeConverter) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	if hasNoTypes(gvk) {
		return c.deduced.ObjectToTyped(obj, opts...)
	}
	t, err := c.kind(gvk)
	if err != nil {
		return nil, err
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return t.FromUnstructured(u.UnstructuredContent(), opts...)
	}
	return t.FromStructured(obj, opts...)
}

// TypedToObject needs no types: the value has its own.
func (c *typeConverter) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	return c.deduced.TypedToObject(value)
}

// kind returns the type of a kind, with all types that it refers to.
func (c *typeConverter) kind(gvk schema.GroupVersionKind) (*typed.ParseableType, error) {
	if t, ok := c.kinds.Load(gvk); ok {
		return t.(*typed.ParseableType), nil
	}
	name, err := c.scheme.ToOpenAPIDefinitionName(gvk)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	texts, err := unpackTypes()
	if err != nil {
		return nil, err
	}
	s := &smd.Schema{}
	if err := c.reach(name, texts, map[string]bool{}, s); err != nil {
		return nil, fmt.Errorf("types of %s: %w", gvk, err)
	}
	t, _ := c.kinds.LoadOrStore(gvk, &typed.ParseableType{Schema: s, TypeRef: smd.TypeRef{NamedType: &name}})
	return t.(*typed.ParseableType), nil
}

// reach adds the named type, and all that it refers to, to s. The caller holds mu.
func (c *typeConverter) reach(name string, texts map[string]string, done map[string]bool, s *smd.Schema) error {
	if done[name] {
		return nil
	}
	done[name] = true
	t, ok := c.types[name]
	if !ok {
		text, ok := texts[name]
		if !ok {
			return fmt.Errorf("type %s does not exist", name)
		}
		if err := yaml.UnmarshalStrict([]byte(text), &t); err != nil {
			return fmt.Errorf("type %s: %w", name, err)
		}
		c.types[name] = t
	}
	s.Types = append(s.Types, t)
	var err error
	namedTypes(t.Atom, func(next string) {
		if err == nil {
			err = c.reach(next, texts, done, s)
		}
	})
	return err
}

// namedTypes returns the types that an atom refers to.
func namedTypes(a smd.Atom, tell func(string)) {
	ref := func(r smd.TypeRef) {
		if r.NamedType != nil {
			tell(*r.NamedType)
			return
		}
		namedTypes(r.Inlined, tell)
	}
	if a.List != nil {
		ref(a.List.ElementType)
	}
	if a.Map != nil {
		ref(a.Map.ElementType)
		for _, f := range a.Map.Fields {
			ref(f.Type)
		}
	}
}

func unpackTypes() (map[string]string, error) {
	r, err := gzip.NewReader(bytes.NewReader(packedTypes))
	if err != nil {
		return nil, fmt.Errorf("unpack types: %w", err)
	}
	var texts map[string]string
	if err := json.NewDecoder(r).Decode(&texts); err != nil {
		return nil, fmt.Errorf("unpack types: %w", err)
	}
	return texts, nil
}

// hasNoTypes says that client-go has no types of a kind: of those that are never stored.
func hasNoTypes(gvk schema.GroupVersionKind) bool {
	return gvk.Group == "authentication.k8s.io" || gvk.Group == "authorization.k8s.io" || gvk.Group == "" && gvk.Kind == "Binding"
}
