package admission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"

	"github.com/exeunt/exeunt/kind/builtin"
)

const limitRangerName = "LimitRanger"

// limitRanger gives containers the defaults of the LimitRanges of their namespace, and
// refuses pods and claims outside of them, by the rules of Kubernetes. The plugin of Kubernetes
// would read from the store in namespaces that have none.
type limitRanger struct {
	*admission.Handler
	rules  limitranger.DefaultLimitRangerActions
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
	return l.each(a, l.rules.MutateLimit)
}

// Validate compares with the minima, maxima and ratios.
func (l *limitRanger) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return l.each(a, l.rules.ValidateLimit)
}

func (l *limitRanger) each(a admission.Attributes, do func(r *corev1.LimitRange, resource string, in runtime.Object) error) error {
	if old := a.GetOldObject(); old != nil {
		if m, err := meta.Accessor(old); err != nil || m.GetDeletionTimestamp() != nil {
			return nil // objects that are being deleted are left alone
		}
	}
	if !l.rules.SupportsAttributes(a) {
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
	builtin.Change(a.GetObject(), func(in runtime.Object) {
		for _, r := range found {
			if err = do(r, a.GetResource().Resource, in); err != nil {
				err = admission.NewForbidden(a, err)
				return
			}
		}
	})
	return err
}
