package api

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/exeunt/exeunt/api/fieldowner"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
)

var (
	bindingKind  = corev1.SchemeGroupVersion.WithKind("Binding")
	evictionKind = policyv1.SchemeGroupVersion.WithKind("Eviction")
)

func isPod(v *kind.Version) bool { return v.Kind.Group == "" && v.Kind.Name == "Pod" }

// addPodParts serves the subresources of pods besides their status.
func (a *API) addPodParts(e *endpoint, v *kind.Version) error {
	reset := map[fieldpath.APIVersion]*fieldpath.Set{"v1": fieldpath.NewSet(fieldpath.MakePathOrDie("status"))}
	if err := a.addSubresource(e, v, "ephemeralcontainers", builtin.PodEphemeralStrategy(), reset); err != nil {
		return err
	}
	if err := a.addSubresource(e, v, "resize", builtin.PodResizeStrategy(), reset); err != nil {
		return err
	}
	if err := a.addNamedCreate(e, v, "binding", bindingKind, &bindings{e.main}); err != nil {
		return err
	}
	return a.addNamedCreate(e, v, "eviction", evictionKind, &evictions{e.main})
}

// addNamedCreate serves a subresource that a client creates for an existing object.
func (a *API) addNamedCreate(e *endpoint, v *kind.Version, name string, gvk schema.GroupVersionKind, r rest.NamedCreater) error {
	scope := a.baseScope(v, a.scale)
	scope.Subresource, scope.Kind, scope.HubGroupVersion = name, gvk, gvk.GroupVersion()
	var err error
	if scope.FieldManager, err = fieldowner.NewManager(a.scale, gvk, name, nil); err != nil {
		return err
	}
	scope.TableConvertor = rest.NewDefaultTableConvertor(schema.GroupResource{Group: gvk.Group, Resource: name})
	e.verbs[name] = map[string]http.HandlerFunc{
		"create": perRequest(func() http.HandlerFunc { return handlers.CreateNamedResource(r, scope, a.Admission) }),
	}
	return nil
}

// admitted asks webhooks and policies about the object of a subresource.
func admitted(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc) error {
	if validate == nil {
		return nil
	}
	return validate(ctx, obj)
}

// bindings serves pods/binding, with which the scheduler gives a pod its node.
type bindings struct{ pods *resource }

func (b *bindings) New() runtime.Object { return &corev1.Binding{} }

func (b *bindings) Destroy() {}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate keeps the uid and the
// resourceVersion of a Binding: they are preconditions.
func (b *bindings) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

func (b *bindings) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if err := admitted(ctx, obj, validate); err != nil {
		return nil, err
	}
	binding, ok := obj.(*corev1.Binding)
	if !ok {
		return nil, b.pods.internalError(fmt.Errorf("got a %T", obj))
	}
	if binding.Name != name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	return b.pods.bind(ctx, binding, dryrun.IsDryRun(options.DryRun))
}

// bind gives a pod its node, once. Two bindings of one pod cannot both succeed: the
// second one computes its change from the pod that the first one wrote.
func (r *resource) bind(ctx context.Context, b *corev1.Binding, dryRun bool) (runtime.Object, error) {
	if errs := validateBinding(b); len(errs) > 0 {
		return nil, apierrors.NewInvalid(bindingKind.GroupKind(), b.Name, errs)
	}
	pods := *r
	pods.strategy = builtin.PodBindingStrategy()
	info := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, live runtime.Object) (runtime.Object, error) {
		pod := live.(*corev1.Pod).DeepCopy()
		if err := assign(pod, b); err != nil {
			return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, b.Name, err)
		}
		podutil.UpdatePodCondition(&pod.Status, &corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
		return pod, nil
	})
	if _, _, err := pods.update(genericrequest.WithNamespace(ctx, b.Namespace), pods.key(ctx, b.Name), updating{UpdatedObjectInfo: info, dryRun: dryRun}); err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

func validateBinding(b *corev1.Binding) field.ErrorList {
	target := field.NewPath("target")
	var errs field.ErrorList
	if b.Target.Kind != "" && b.Target.Kind != "Node" {
		errs = append(errs, field.NotSupported(target.Child("kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	}
	if b.Target.Name == "" {
		return append(errs, field.Required(target.Child("name"), ""))
	}
	for _, problem := range validation.IsDNS1123Subdomain(b.Target.Name) {
		errs = append(errs, field.Invalid(target.Child("name"), b.Target.Name, problem))
	}
	return errs
}

// assign writes the binding into a pod, or says why the pod cannot get a node.
func assign(pod *corev1.Pod, b *corev1.Binding) error {
	switch {
	case b.UID != "" && b.UID != pod.UID:
		return fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s)", b.UID, pod.UID)
	case b.ResourceVersion != "" && b.ResourceVersion != pod.ResourceVersion:
		return fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s)", b.ResourceVersion, pod.ResourceVersion)
	case pod.DeletionTimestamp != nil:
		return fmt.Errorf("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return fmt.Errorf("pod %v is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		return fmt.Errorf("pod %v has non-empty .spec.schedulingGates", pod.Name)
	}
	pod.Spec.NodeName, pod.Status.NominatedNodeName = b.Target.Name, ""
	for key, value := range b.Annotations {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
	}
	for key, value := range b.Labels {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, key, value)
	}
	return nil
}
