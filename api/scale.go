package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/exeunt/exeunt/api/fieldowner"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
)

// scaleKind is the kind of /scale for every resource.
var scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// scaleWire returns the codecs for Scale objects. The apply schemas of the
// built-in kinds do not include Scale, so its field types are deduced.
func scaleWire() *kind.Wire {
	wire := *builtin.Wire()
	wire.TypeConverter = managedfields.NewDeducedTypeConverter()
	return &wire
}

func (a *API) addScale(e *endpoint, v *kind.Version) error {
	scope := a.baseScope(v, a.scale)
	scope.Subresource = "scale"
	scope.Kind = scaleKind
	scope.HubGroupVersion = scaleKind.GroupVersion()
	var err error
	if scope.FieldManager, err = fieldowner.NewManager(a.scale, scaleKind, "scale", nil); err != nil {
		return err
	}
	s := &scaled{main: e.main}
	scope.TableConvertor = builtin.ScaleTable()
	e.verbs["scale"] = a.readWriteVerbs(s, scope, &kind.Version{Wire: a.scale})
	return nil
}

// scaled is the /scale view of a resource.
type scaled struct{ main *resource }

func (s *scaled) New() runtime.Object { return &autoscalingv1.Scale{} }

func (s *scaled) Destroy() {}

func (s *scaled) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := s.main.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	if custom, ok := obj.(*unstructured.Unstructured); ok {
		path := s.main.v.Scale.SpecReplicasPath
		if _, found, err := unstructured.NestedFieldNoCopy(custom.Object, strings.Split(path, ".")...); !found || err != nil {
			// As in Kubernetes: a missing number is not zero replicas.
			return nil, apierrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist", "."+path))
		}
	}
	return s.show(obj)
}

// Update changes the number of replicas by an update of the object itself, so that
// all rules of an update apply.
func (s *scaled) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, validate rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	parent := *s.main
	parent.strategy = neverCreate{s.main.strategy}
	obj, _, err := parent.Update(ctx, name, &scaleInfo{s, info}, create, s.validateScale(validate), false, options)
	if err != nil {
		return nil, false, err
	}
	scale, err := s.show(obj)
	return scale, false, err
}

// validateScale lets admission judge the Scales of the new and the old object.
func (s *scaled) validateScale(validate rest.ValidateObjectUpdateFunc) rest.ValidateObjectUpdateFunc {
	if validate == nil {
		return nil
	}
	return func(ctx context.Context, obj, old runtime.Object) error {
		next, err := s.show(obj)
		if err != nil {
			return err
		}
		before, err := s.show(old)
		if err != nil {
			return err
		}
		return validate(ctx, next, before)
	}
}

// show builds the Scale of an object.
func (s *scaled) show(obj runtime.Object) (*autoscalingv1.Scale, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	paths := s.main.v.Scale
	scale := &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{Kind: scaleKind.Kind, APIVersion: scaleKind.GroupVersion().String()},
		ObjectMeta: metav1.ObjectMeta{
			Name: accessor.GetName(), Namespace: accessor.GetNamespace(), UID: accessor.GetUID(),
			ResourceVersion: accessor.GetResourceVersion(), CreationTimestamp: accessor.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: int32(gjson.GetBytes(body, paths.SpecReplicasPath).Int())},
		Status: autoscalingv1.ScaleStatus{Replicas: int32(gjson.GetBytes(body, paths.StatusReplicasPath).Int())},
	}
	if paths.LabelSelectorPath != "" {
		scale.Status.Selector, err = selectorText(gjson.GetBytes(body, paths.LabelSelectorPath), paths.SelectorIsObject)
	}
	return scale, err
}

func selectorText(value gjson.Result, isObject bool) (string, error) {
	if !value.Exists() || !isObject {
		return value.String(), nil
	}
	var selector metav1.LabelSelector
	if value.Get("matchLabels").Exists() || value.Get("matchExpressions").Exists() {
		if err := json.Unmarshal([]byte(value.Raw), &selector); err != nil {
			return "", err
		}
	} else if err := json.Unmarshal([]byte(value.Raw), &selector.MatchLabels); err != nil {
		return "", err
	}
	parsed, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return "", err
	}
	return parsed.String(), nil
}

// scaleInfo turns an update of the Scale into an update of the object.
type scaleInfo struct {
	s    *scaled
	info rest.UpdatedObjectInfo
}

func (i *scaleInfo) Preconditions() *metav1.Preconditions { return i.info.Preconditions() }

func (i *scaleInfo) UpdatedObject(ctx context.Context, existing runtime.Object) (runtime.Object, error) {
	obj := existing.DeepCopyObject()
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	old, err := i.s.show(obj)
	if err != nil {
		return nil, err
	}
	owners := managedfields.NewScaleHandler(accessor.GetManagedFields(), i.s.main.v.GVK.GroupVersion(), i.replicasPath())
	if old.ManagedFields, err = owners.ToSubresource(); err != nil {
		return nil, err
	}
	changed, err := i.info.UpdatedObject(ctx, old)
	if err != nil {
		return nil, err
	}
	scale, ok := changed.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest("expected a Scale of autoscaling/v1")
	}
	if err := validateScale(scale); err != nil {
		return nil, err
	}
	if scale.ResourceVersion != "" { // without a version the update is unconditional
		accessor.SetResourceVersion(scale.ResourceVersion)
	}
	entries, err := owners.ToParent(scale.ManagedFields)
	if err != nil {
		return nil, err
	}
	accessor.SetManagedFields(entries)
	return setReplicas(obj, i.s.main.v.Scale.SpecReplicasPath, int64(scale.Spec.Replicas))
}

func (i *scaleInfo) replicasPath() managedfields.ResourcePathMappings {
	path := fieldpath.Path{}
	for _, name := range strings.Split(i.s.main.v.Scale.SpecReplicasPath, ".") {
		path = append(path, fieldpath.PathElement{FieldName: &name})
	}
	return managedfields.ResourcePathMappings{i.s.main.v.GVK.GroupVersion().String(): path}
}

func validateScale(scale *autoscalingv1.Scale) error {
	if scale.Spec.Replicas >= 0 {
		return nil
	}
	return apierrors.NewInvalid(scaleKind.GroupKind(), scale.Name, field.ErrorList{
		field.Invalid(field.NewPath("spec", "replicas"), scale.Spec.Replicas, "must be greater than or equal to 0"),
	})
}

// setReplicas writes the number at its path, in a typed or unstructured object.
func setReplicas(obj runtime.Object, path string, replicas int64) (runtime.Object, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u, unstructured.SetNestedField(u.Object, replicas, strings.Split(path, ".")...)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	if err := unstructured.SetNestedField(content, replicas, strings.Split(path, ".")...); err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, obj); err != nil {
		return nil, errors.Join(errors.New("scale"), err)
	}
	return obj, nil
}
