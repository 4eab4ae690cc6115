package api

import (
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/apiserver/pkg/warning"

	"github.com/exeunt/exeunt/kind"
)

// review answers the kinds that are questions ("who am I", "may I"). Nothing is
// stored. The answers equal what the filters enforce: see decide.
type review struct{ *resource }

// Create answers the question.
func (r *review) Create(ctx context.Context, obj runtime.Object, _ rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	client, ok := genericrequest.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("the request is not authenticated")
	}
	if answer := r.v.Kind.Answer; answer != nil {
		out, err := answer(ctx, obj, kind.Call{
			Caller: client.GetName(), DryRun: dryrun.IsDryRun(options.DryRun),
			Warn: func(text string) { warning.AddWarning(ctx, "", text) },
		})
		return out, r.statusError(err, r.key(ctx, ""))
	}
	switch q := obj.(type) {
	case *authenticationv1.SelfSubjectReview:
		q.Status.UserInfo = userInfo(client)
	case *authenticationv1.TokenReview:
		if q.Spec.Token == "" {
			return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
		}
		q.Status = authenticationv1.TokenReviewStatus{Error: "this server issues no tokens; its clients use certificates"}
	case *authorizationv1.SelfSubjectAccessReview:
		if err := checkAttributes(q.Spec.ResourceAttributes != nil, q.Spec.NonResourceAttributes != nil); err != nil {
			return nil, err
		}
		q.Status = decide(client, client, q.Spec.ResourceAttributes, q.Spec.NonResourceAttributes)
	case *authorizationv1.SubjectAccessReview:
		if err := checkAttributes(q.Spec.ResourceAttributes != nil, q.Spec.NonResourceAttributes != nil); err != nil {
			return nil, err
		}
		q.Status = decide(client, subject(q.Spec), q.Spec.ResourceAttributes, q.Spec.NonResourceAttributes)
	case *authorizationv1.LocalSubjectAccessReview:
		if q.Spec.ResourceAttributes == nil || q.Spec.ResourceAttributes.Namespace != q.Namespace {
			return nil, apierrors.NewBadRequest("spec.resourceAttributes.namespace must match metadata.namespace")
		}
		q.Status = decide(client, subject(q.Spec), q.Spec.ResourceAttributes, q.Spec.NonResourceAttributes)
	case *authorizationv1.SelfSubjectRulesReview:
		q.Status = authorizationv1.SubjectRulesReviewStatus{
			ResourceRules:    []authorizationv1.ResourceRule{{Verbs: servedVerbs, APIGroups: []string{"*"}, Resources: []string{"*"}}},
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

// servedVerbs are the supported verbs. "*" would include impersonation.
var servedVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// decide says what the filters would do with a request of the subject. There is
// one role: a client with a certificate of this server's authority is an
// administrator. The subject is known to be one if it is the client itself or has
// the group of administrators. For other names the server does not know whether
// such a certificate exists and answers no: the program that asks has
// authenticated the subject by means that this server does not accept.
func decide(client, subject user.Info, resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	switch {
	case path != nil && isPublic(path.Path) && (path.Verb == "get" || path.Verb == "head"):
		return authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "this path is open to all clients"}
	case resource != nil && resource.Verb == "impersonate":
		return authorizationv1.SubjectAccessReviewStatus{Reason: noImpersonation}
	case sameUser(client, subject) || slices.Contains(subject.GetGroups(), user.SystemPrivilegedGroup):
		return authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "every holder of a certificate of this server's authority is an administrator"}
	}
	return authorizationv1.SubjectAccessReviewStatus{
		Reason: "this server gives rights to holders of a client certificate of its authority only, and does not know of one for this user; its administrators have the group " + user.SystemPrivilegedGroup,
	}
}

// subject returns the user that a review asks about.
func subject(spec authorizationv1.SubjectAccessReviewSpec) user.Info {
	return &user.DefaultInfo{Name: spec.User, Groups: spec.Groups}
}

func sameUser(a, b user.Info) bool {
	x, y := slices.Sorted(slices.Values(a.GetGroups())), slices.Sorted(slices.Values(b.GetGroups()))
	return a.GetName() == b.GetName() && slices.Equal(x, y)
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
