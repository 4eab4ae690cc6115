package admission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

const (
	limitRangerName = "LimitRanger"
	// limitRangerNote is the annotation that says which defaults a pod got.
	limitRangerNote = "kubernetes.io/limit-ranger"
)

// limitRanger gives containers the defaults of the LimitRanges of their namespace, and
// refuses pods and claims outside of them. The texts are those of Kubernetes.
type limitRanger struct {
	*admission.Handler
	ranges listers.LimitRangeLister
}

var _ admission.MutationInterface = (*limitRanger)(nil)
var _ admission.ValidationInterface = (*limitRanger)(nil)
var _ initializer.WantsExternalKubeInformerFactory = (*limitRanger)(nil)

func registerLimitRanger(all *admission.Plugins) {
	all.Register(limitRangerName, func(io.Reader) (admission.Interface, error) {
		return &limitRanger{Handler: admission.NewHandler(admission.Create, admission.Update)}, nil
	})
}

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (l *limitRanger) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	informer := f.Core().V1().LimitRanges()
	l.ranges = informer.Lister()
	l.SetReadyFunc(informer.Informer().HasSynced)
}

// ValidateInitialization implements admission.InitializationValidator.
func (l *limitRanger) ValidateInitialization() error {
	if l.ranges == nil {
		return errors.New("limit ranger: needs an informer of LimitRanges")
	}
	return nil
}

// Admit sets the defaults of a new pod, and of one that is resized.
func (l *limitRanger) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return l.each(a, func(r *corev1.LimitRange, obj runtime.Object) error {
		if pod, ok := obj.(*corev1.Pod); ok {
			setDefaults(pod, r)
		}
		return nil
	})
}

// Validate compares with the minima, maxima and ratios.
func (l *limitRanger) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return l.each(a, func(r *corev1.LimitRange, obj runtime.Object) error {
		var errs []error
		for i := range r.Spec.Limits {
			errs = append(errs, check(&r.Spec.Limits[i], obj)...)
		}
		return utilerrors.NewAggregate(errs)
	})
}

func (l *limitRanger) each(a admission.Attributes, do func(*corev1.LimitRange, runtime.Object) error) error {
	if !limited(a) {
		return nil
	}
	if !l.WaitForReady() {
		return admission.NewForbidden(a, fmt.Errorf("not yet ready to handle request"))
	}
	found, err := l.ranges.LimitRanges(a.GetNamespace()).List(labels.Everything())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	slices.SortFunc(found, func(x, y *corev1.LimitRange) int { return strings.Compare(x.Name, y.Name) })
	for _, r := range found {
		if err := do(r, a.GetObject()); err != nil {
			return admission.NewForbidden(a, err)
		}
	}
	return nil
}

// limited says whether LimitRanges apply to a request. The resources of a pod change only by
// its subresource resize, and objects that are being deleted are left alone.
func limited(a admission.Attributes) bool {
	if old := a.GetOldObject(); old != nil {
		if m, err := meta.Accessor(old); err != nil || m.GetDeletionTimestamp() != nil {
			return false
		}
	}
	create := a.GetOperation() == admission.Create
	switch a.GetResource().GroupResource() {
	case podResource:
		return create && a.GetSubresource() == "" || !create && a.GetSubresource() == "resize"
	case claimResource:
		return a.GetSubresource() == ""
	}
	return false
}

func setDefaults(pod *corev1.Pod, r *corev1.LimitRange) {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for _, limit := range r.Spec.Limits {
		if limit.Type == corev1.LimitTypeContainer {
			maps.Copy(requests, limit.DefaultRequest)
			maps.Copy(limits, limit.Default)
		}
	}
	var notes []string
	fill := func(kind string, containers []corev1.Container) {
		for i := range containers {
			c := &containers[i]
			if set := merge(&c.Resources.Requests, requests); set != "" {
				notes = append(notes, set+" request for "+kind+" "+c.Name)
			}
			if set := merge(&c.Resources.Limits, limits); set != "" {
				notes = append(notes, set+" limit for "+kind+" "+c.Name)
			}
		}
	}
	fill("container", pod.Spec.Containers)
	fill("init container", pod.Spec.InitContainers)
	if len(notes) == 0 {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[limitRangerNote] = "LimitRanger plugin set: " + strings.Join(notes, "; ")
}

// merge adds what a list lacks, and returns the names.
func merge(list *corev1.ResourceList, defaults corev1.ResourceList) string {
	var set []string
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		if _, ok := (*list)[name]; ok {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = defaults[name].DeepCopy()
		set = append(set, string(name))
	}
	return strings.Join(set, ", ")
}

// check returns what of an object is outside of a limit.
func check(limit *corev1.LimitRangeItem, obj runtime.Object) (errs []error) {
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		if limit.Type == corev1.LimitTypePersistentVolumeClaim {
			return checkClaim(limit, o)
		}
	case *corev1.Pod:
		if limit.Type == corev1.LimitTypeContainer {
			for _, c := range slices.Concat(o.Spec.Containers, o.Spec.InitContainers) {
				errs = append(errs, checkLists(limit, c.Resources.Requests, c.Resources.Limits)...)
			}
		}
		if limit.Type == corev1.LimitTypePod {
			options := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
			return checkLists(limit, resourcehelper.PodRequests(o, options), resourcehelper.PodLimits(o, options))
		}
	}
	return errs
}

func checkClaim(limit *corev1.LimitRangeItem, pvc *corev1.PersistentVolumeClaim) (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(limit.Min)) {
		errs = add(errs, minimum(limit.Type, name, limit.Min[name], pvc.Spec.Resources.Requests, nil))
	}
	for _, name := range slices.Sorted(maps.Keys(limit.Max)) {
		most := limit.Max[name]
		asked, ok := pvc.Spec.Resources.Requests[name]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("maximum %s usage per %s is %s.  No request is specified", name, limit.Type, most.String()))
		case asked.Cmp(most) > 0:
			errs = append(errs, fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, limit.Type, most.String(), asked.String()))
		}
	}
	return errs
}

func checkLists(limit *corev1.LimitRangeItem, requests, limits corev1.ResourceList) (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(limit.Min)) {
		errs = add(errs, minimum(limit.Type, name, limit.Min[name], requests, limits))
	}
	for _, name := range slices.Sorted(maps.Keys(limit.Max)) {
		errs = add(errs, maximum(limit.Type, name, limit.Max[name], requests, limits))
	}
	for _, name := range slices.Sorted(maps.Keys(limit.MaxLimitRequestRatio)) {
		errs = add(errs, ratio(limit.Type, name, limit.MaxLimitRequestRatio[name], requests, limits))
	}
	return errs
}

func add(errs []error, err error) []error {
	if err == nil {
		return errs
	}
	return append(errs, err)
}

func minimum(of corev1.LimitType, name corev1.ResourceName, least resource.Quantity, requests, limits corev1.ResourceList) error {
	asked, ok := requests[name]
	limit, has := limits[name]
	switch {
	case !ok:
		return fmt.Errorf("minimum %s usage per %s is %s.  No request is specified", name, of, least.String())
	case asked.Cmp(least) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but request is %s", name, of, least.String(), asked.String())
	case has && limit.Cmp(least) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but limit is %s", name, of, least.String(), limit.String())
	}
	return nil
}

func maximum(of corev1.LimitType, name corev1.ResourceName, most resource.Quantity, requests, limits corev1.ResourceList) error {
	asked, ok := requests[name]
	limit, has := limits[name]
	switch {
	case !has:
		return fmt.Errorf("maximum %s usage per %s is %s.  No limit is specified", name, of, most.String())
	case limit.Cmp(most) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but limit is %s", name, of, most.String(), limit.String())
	case ok && asked.Cmp(most) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, of, most.String(), asked.String())
	}
	return nil
}

func ratio(of corev1.LimitType, name corev1.ResourceName, most resource.Quantity, requests, limits corev1.ResourceList) error {
	asked, ok := requests[name]
	limit, has := limits[name]
	if !ok || asked.IsZero() {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no request is specified or request is 0", name, of, most.String())
	}
	if !has || limit.IsZero() {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no limit is specified or limit is 0", name, of, most.String())
	}
	if observed := limit.AsApproximateFloat64() / asked.AsApproximateFloat64(); observed > most.AsApproximateFloat64() {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but provided ratio is %f", name, of, most.String(), observed)
	}
	return nil
}
