package admission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	podsecurity "k8s.io/pod-security-admission/admission"
	podsecurityconfig "k8s.io/pod-security-admission/admission/api"
	podsecurityapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/metrics"
	"k8s.io/pod-security-admission/policy"

	"github.com/exeunt/exeunt/kind/builtin"
)

const podSecurityName = "PodSecurity"

// podSecurity runs the library's Pod Security checks: the labels of a Namespace say which
// level it enforces, audits and warns about. Without labels it is "privileged": nothing is
// checked. There are no exemptions.
type podSecurity struct {
	*admission.Handler
	client     kubernetes.Interface
	namespaces listers.NamespaceLister
	library    *podsecurity.Admission
}

var _ admission.ValidationInterface = (*podSecurity)(nil)
var _ initializer.WantsExternalKubeInformerFactory = (*podSecurity)(nil)
var _ initializer.WantsExternalKubeClientSet = (*podSecurity)(nil)

func registerPodSecurity(all *admission.Plugins) {
	all.Register(podSecurityName, func(io.Reader) (admission.Interface, error) {
		evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
		if err != nil {
			return nil, fmt.Errorf("pod security: %w", err)
		}
		privileged, latest := string(podsecurityapi.LevelPrivileged), podsecurityapi.VersionLatest
		return &podSecurity{
			Handler: admission.NewHandler(admission.Create, admission.Update),
			library: &podsecurity.Admission{
				Configuration: &podsecurityconfig.PodSecurityConfiguration{Defaults: podsecurityconfig.PodSecurityDefaults{
					Enforce: privileged, EnforceVersion: latest, Audit: privileged, AuditVersion: latest, Warn: privileged, WarnVersion: latest,
				}},
				Evaluator: evaluator, Metrics: noMetrics{}, PodSpecExtractor: podsecurity.DefaultPodSpecExtractor{},
			},
		}, nil
	})
}

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (p *podSecurity) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	informer := f.Core().V1().Namespaces()
	p.namespaces = informer.Lister()
	p.SetReadyFunc(informer.Informer().HasSynced)
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (p *podSecurity) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

// ValidateInitialization completes the library's part.
func (p *podSecurity) ValidateInitialization() error {
	if p.client == nil || p.namespaces == nil {
		return errors.New("pod security: needs a client and an informer of namespaces")
	}
	p.library.NamespaceGetter = podsecurity.NamespaceGetterFromListerAndClient(p.namespaces, p.client)
	p.library.PodLister = podsecurity.PodListerFromClient(p.client)
	if err := p.library.CompleteConfiguration(); err != nil {
		return fmt.Errorf("pod security: %w", err)
	}
	return p.library.ValidateConfiguration()
}

// Validate asks the library, and passes its warnings and audit annotations on.
func (p *podSecurity) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	resource := a.GetResource().GroupResource()
	if resource != namespaceResource && !p.library.PodSpecExtractor.HasPodSpec(resource) {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, fmt.Errorf("not yet ready to handle request"))
	}
	if resource != namespaceResource {
		if _, err := p.library.NamespaceGetter.GetNamespace(ctx, a.GetNamespace()); apierrors.IsNotFound(err) {
			return err // as the store would answer
		}
	}
	answer := p.library.Validate(ctx, podSecurityAttributes{a})
	for _, text := range answer.Warnings {
		warning.AddWarning(ctx, "", text)
	}
	for name, value := range answer.AuditAnnotations {
		audit.AddAuditAnnotation(ctx, podsecurityapi.AuditAnnotationPrefix+name, value)
	}
	if answer.Allowed {
		return nil
	}
	refused := admission.NewForbidden(a, errors.New("the pod is not allowed by PodSecurity"))
	var status *apierrors.StatusError
	if result := answer.Result; result != nil && errors.As(refused, &status) {
		if result.Message != "" {
			status.ErrStatus.Message = result.Message
		}
		if result.Reason != "" {
			status.ErrStatus.Reason = result.Reason
		}
		if result.Details != nil {
			status.ErrStatus.Details = result.Details
		}
		if result.Code != 0 {
			status.ErrStatus.Code = result.Code
		}
	}
	return refused
}

// podSecurityAttributes are the attributes of a request as the library wants them.
type podSecurityAttributes struct{ admission.Attributes }

func (a podSecurityAttributes) GetObject() (runtime.Object, error) {
	return a.Attributes.GetObject(), nil
}

func (a podSecurityAttributes) GetOldObject() (runtime.Object, error) {
	return a.Attributes.GetOldObject(), nil
}

func (a podSecurityAttributes) GetOperation() admissionv1.Operation {
	return admissionv1.Operation(a.Attributes.GetOperation())
}

func (a podSecurityAttributes) GetUserName() string { return a.GetUserInfo().GetName() }

// noMetrics records nothing: a request that is refused is in the metrics of requests.
type noMetrics struct{}

func (noMetrics) RecordEvaluation(metrics.Decision, podsecurityapi.LevelVersion, metrics.Mode, podsecurityapi.Attributes) {
}
func (noMetrics) RecordExemption(podsecurityapi.Attributes)           {}
func (noMetrics) RecordError(fatal bool, _ podsecurityapi.Attributes) {}

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
