package provisioning

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/lifecycle"
)

// resource is a stored ProvisionedResource, as far as it is read.
type resource struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		BlueprintRef  broker.BlueprintVersionRef `json:"blueprintRef"`
		CredentialRef struct {
			Name broker.CloudCredentialRef `json:"name"`
		} `json:"credentialRef"`
		Parameters map[string]any `json:"parameters"`
	} `json:"spec"`
}

// request is the declaration as the broker knows it. Its id is the object's uid,
// which no two objects share in all time.
func (r *resource) request() broker.ProvisionRequest {
	return broker.ProvisionRequest{
		ID: broker.ProvisionedResourceID(r.Metadata.UID), Project: broker.ProjectID(r.Metadata.Namespace), Name: r.Metadata.Name,
		Blueprint: r.Spec.BlueprintRef, Credential: r.Spec.CredentialRef.Name, Parameters: r.Spec.Parameters,
	}
}

// resourceStrategy adds to what the schema says.
type resourceStrategy struct{ lifecycle.Strategy }

// PrepareForCreate puts the finalizer on: from the moment that it is stored, a
// resource does not leave before its teardown.
func (s resourceStrategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	s.Strategy.PrepareForCreate(ctx, obj)
	addFinalizer(obj, TeardownFinalizer)
}

// ValidateUpdate holds that what is built does not change.
func (s resourceStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	errs := s.Strategy.ValidateUpdate(ctx, obj, old)
	next, ok := obj.(*unstructured.Unstructured)
	was, okOld := old.(*unstructured.Unstructured)
	if ok && okOld && !equality.Semantic.DeepEqual(next.Object["spec"], was.Object["spec"]) {
		errs = append(errs, field.Forbidden(field.NewPath("spec"), "cannot be changed: declare another resource"))
	}
	return errs
}

// decode reads an object of one of this package's kinds.
func decode[T any](obj runtime.Object) (*T, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a %T is not of this package's kinds", obj)
	}
	body, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	out := new(T)
	return out, json.Unmarshal(body, out)
}

func addFinalizer(obj runtime.Object, name string) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return // refused by whoever looks at its name
	}
	if !slices.Contains(m.GetFinalizers(), name) {
		m.SetFinalizers(append(m.GetFinalizers(), name))
	}
}
