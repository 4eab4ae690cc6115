package api

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/exeunt/exeunt/kind"
)

// review answers the kinds that are questions: who am I, may I. Nothing is
// stored. Every caller that is known here is an administrator, so that is what
// the answers say.
type review struct{ *resource }

// Create answers the question.
func (r *review) Create(ctx context.Context, obj runtime.Object, _ rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	caller, ok := genericrequest.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("no caller is known for this request")
	}
	if answer := r.v.Kind.Answer; answer != nil {
		out, err := answer(ctx, obj, kind.Call{Caller: caller.GetName(), DryRun: dryrun.IsDryRun(options.DryRun)})
		return out, r.statusError(err, r.key(ctx, ""))
	}
	const reason = "every authenticated caller is an administrator"
	allowed := authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: reason}
	switch q := obj.(type) {
	case *authenticationv1.SelfSubjectReview:
		q.Status.UserInfo = userInfo(caller)
	case *authenticationv1.TokenReview:
		if q.Spec.Token == "" {
			return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
		}
		q.Status = authenticationv1.TokenReviewStatus{Error: "this server issues no tokens; its callers have certificates"}
	case *authorizationv1.SelfSubjectAccessReview:
		if err := checkAttributes(q.Spec.ResourceAttributes != nil, q.Spec.NonResourceAttributes != nil); err != nil {
			return nil, err
		}
		q.Status = allowed
	case *authorizationv1.SubjectAccessReview:
		if err := checkAttributes(q.Spec.ResourceAttributes != nil, q.Spec.NonResourceAttributes != nil); err != nil {
			return nil, err
		}
		q.Status = subjectStatus(q.Spec.User, allowed)
	case *authorizationv1.LocalSubjectAccessReview:
		if q.Spec.ResourceAttributes == nil || q.Spec.ResourceAttributes.Namespace != q.Namespace {
			return nil, apierrors.NewBadRequest("spec.resourceAttributes.namespace must match metadata.namespace")
		}
		q.Status = subjectStatus(q.Spec.User, allowed)
	case *authorizationv1.SelfSubjectRulesReview:
		q.Status = authorizationv1.SubjectRulesReviewStatus{
			ResourceRules:    []authorizationv1.ResourceRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}},
			NonResourceRules: []authorizationv1.NonResourceRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}},
		}
	default:
		return nil, r.internalError(fmt.Errorf("no answer for %T", obj))
	}
	return obj, nil
}

func checkAttributes(resource, other bool) error {
	if resource != other {
		return nil
	}
	return apierrors.NewBadRequest("exactly one of spec.resourceAttributes and spec.nonResourceAttributes must be set")
}

func subjectStatus(name string, allowed authorizationv1.SubjectAccessReviewStatus) authorizationv1.SubjectAccessReviewStatus {
	if name == "" || name == user.Anonymous {
		return authorizationv1.SubjectAccessReviewStatus{Reason: "anonymous callers may read /version and the health checks only"}
	}
	return allowed
}

func userInfo(u user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for k, v := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[k] = v
	}
	return info
}
