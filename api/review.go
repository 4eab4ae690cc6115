package api

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/apiserver/pkg/warning"

	"github.com/exeunt/exeunt/kind"
)

// review answers the kinds that are questions ("who am I", "may I"). Nothing is
// stored. The answers come from the authorizer that the filters ask.
type review struct{ *resource }

// Create answers the question.
func (r *review) Create(ctx context.Context, obj runtime.Object, _ rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	client, ok := genericrequest.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("the request is not authenticated")
	}
	if answer := r.v.Kind.Answer; answer != nil {
		out, err := answer(ctx, obj, kind.Call{
			Client: r.api.client(ctx), DryRun: dryrun.IsDryRun(options.DryRun),
			Warn: func(text string) { warning.AddWarning(ctx, "", text) },
		})
		return out, r.statusError(err, r.key(ctx, ""))
	}
	if r.v.GVK.Group == authorizationv1.GroupName {
		if _, errs := r.v.Strategy.Create(ctx, obj); len(errs) > 0 {
			return nil, apierrors.NewInvalid(schema.GroupKind{Group: r.v.GVK.Group}, "", errs) // Kubernetes names no kind here
		}
	}
	var err error
	switch q := obj.(type) {
	case *authenticationv1.SelfSubjectReview:
		q.CreationTimestamp = metav1.Now()
		q.Status.UserInfo = kind.UserInfo(client)
	case *authenticationv1.TokenReview:
		q.Status, err = r.api.reviewToken(ctx, q.Spec)
	case *authorizationv1.SelfSubjectAccessReview:
		q.Status, err = r.api.reviewAccess(ctx, client, q.Spec.ResourceAttributes, q.Spec.NonResourceAttributes)
	case *authorizationv1.SubjectAccessReview:
		q.Status, err = r.api.reviewAccess(ctx, subject(q.Spec), q.Spec.ResourceAttributes, q.Spec.NonResourceAttributes)
	case *authorizationv1.LocalSubjectAccessReview:
		q.Status, err = r.api.reviewAccess(ctx, subject(q.Spec), q.Spec.ResourceAttributes, q.Spec.NonResourceAttributes)
	case *authorizationv1.SelfSubjectRulesReview:
		if q.Spec.Namespace == "" {
			return nil, apierrors.NewBadRequest("no namespace on request")
		}
		answer := &authorizationv1.SelfSubjectRulesReview{} // without the question, as in Kubernetes
		answer.Status, err = r.api.reviewRules(ctx, client, q.Spec.Namespace)
		return answer, err
	case *corev1.Binding:
		return r.bindPod(ctx, q, dryrun.IsDryRun(options.DryRun))
	default:
		err = r.internalError(fmt.Errorf("no answer for %T", obj))
	}
	return obj, err
}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate keeps the preconditions of a
// Binding. Questions have none of these fields.
func (r *review) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool {
	return r.v.GVK == bindingKind
}

// bindPod serves bindings, the older form of pods/binding.
func (r *review) bindPod(ctx context.Context, b *corev1.Binding, dryRun bool) (runtime.Object, error) {
	v, ok := r.api.kinds.Snapshot().Lookup(corev1.SchemeGroupVersion.WithResource("pods"))
	if !ok {
		return nil, r.internalError(fmt.Errorf("no kind Pod"))
	}
	return r.api.newResource(v, v.Strategy).bind(ctx, b, dryRun)
}

// reviewToken says whom a token identifies, for another server that received it. The
// audiences are those of the other server; none means this server.
func (a *API) reviewToken(ctx context.Context, spec authenticationv1.TokenReviewSpec) (status authenticationv1.TokenReviewStatus, err error) {
	if spec.Token == "" {
		return status, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	if len(spec.Audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, spec.Audiences)
	}
	response, ok, err := a.access.AuthenticateToken(ctx, spec.Token)
	if err != nil {
		status.Error = err.Error()
	}
	if !ok || err != nil {
		return status, nil
	}
	status.Authenticated, status.User, status.Audiences = true, kind.UserInfo(response.User), response.Audiences
	return status, nil
}

// reviewAccess reports whether the subject may. Exactly one of the attributes is set.
func (a *API) reviewAccess(ctx context.Context, subject user.Info, resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) (status authorizationv1.SubjectAccessReviewStatus, err error) {
	question := authorizer.AttributesRecord{User: subject}
	if path != nil {
		question.Verb, question.Path = path.Verb, path.Path
	} else {
		question.ResourceRequest = true
		question.Verb, question.Namespace, question.Name = resource.Verb, resource.Namespace, resource.Name
		question.APIGroup, question.APIVersion = resource.Group, resource.Version
		question.Resource, question.Subresource = resource.Resource, resource.Subresource
	}
	decision, reason, err := a.access.Authorizer().Authorize(ctx, question)
	status.Allowed, status.Denied, status.Reason = decision == authorizer.DecisionAllow, decision == authorizer.DecisionDeny, reason
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return status, nil
}

// reviewRules lists what the client may do in a namespace.
func (a *API) reviewRules(ctx context.Context, client user.Info, namespace string) (status authorizationv1.SubjectRulesReviewStatus, err error) {
	resources, paths, incomplete, err := a.access.Rules().RulesFor(ctx, client, namespace)
	status = authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}, Incomplete: incomplete,
	}
	if err != nil {
		status.EvaluationError = err.Error()
	}
	for _, r := range resources {
		status.ResourceRules = append(status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: r.GetVerbs(), APIGroups: r.GetAPIGroups(), Resources: r.GetResources(), ResourceNames: r.GetResourceNames(),
		})
	}
	for _, r := range paths {
		status.NonResourceRules = append(status.NonResourceRules, authorizationv1.NonResourceRule{Verbs: r.GetVerbs(), NonResourceURLs: r.GetNonResourceURLs()})
	}
	return status, nil
}

// subject returns the user that a review asks about.
func subject(spec authorizationv1.SubjectAccessReviewSpec) user.Info {
	return kind.UserOf(spec.User, spec.UID, spec.Groups, spec.Extra)
}
