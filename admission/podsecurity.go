package admission

import (
	"context"
	"errors"
	"fmt"
	"io"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	podsecurity "k8s.io/pod-security-admission/admission"
	podsecurityconfig "k8s.io/pod-security-admission/admission/api"
	podsecurityapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/metrics"
	"k8s.io/pod-security-admission/policy"
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
