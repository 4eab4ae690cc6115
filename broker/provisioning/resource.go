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

// resource is a stored ProvisionedResource: the fields that this package reads.
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

// request converts the declaration to the broker's type. Its id is the object's
// uid, which is never reused.
func (r *resource) request() broker.ProvisionRequest {
	return broker.ProvisionRequest{
		ID: broker.ProvisionedResourceID(r.Metadata.UID), Project: broker.ProjectID(r.Metadata.Namespace), Name: r.Metadata.Name,
		Blueprint: r.Spec.BlueprintRef, Credential: r.Spec.CredentialRef.Name, Parameters: r.Spec.Parameters,
	}
}

// resourceStrategy adds rules to those of the schema.
type resourceStrategy struct{ lifecycle.Strategy }

// Create adds the finalizer, so that a stored resource stays until its teardown is over.
func (s resourceStrategy) Create(ctx context.Context, obj runtime.Object) ([]string, field.ErrorList) {
	addFinalizer(obj, TeardownFinalizer)
	return s.Strategy.Create(ctx, obj)
}

// Update keeps the spec of a resource immutable.
func (s resourceStrategy) Update(ctx context.Context, obj, old runtime.Object) ([]string, field.ErrorList) {
	warnings, errs := s.Strategy.Update(ctx, obj, old)
	next, ok := obj.(*unstructured.Unstructured)
	was, okOld := old.(*unstructured.Unstructured)
	if ok && okOld && !equality.Semantic.DeepEqual(next.Object["spec"], was.Object["spec"]) {
		errs = append(errs, field.Forbidden(field.NewPath("spec"), "cannot be changed: declare another resource"))
	}
	return warnings, errs
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
		return // the name validation refuses it
	}
	if !slices.Contains(m.GetFinalizers(), name) {
		m.SetFinalizers(append(m.GetFinalizers(), name))
	}
}
