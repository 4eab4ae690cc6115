package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kubernetes/pkg/registry/authentication/selfsubjectreview"
	"k8s.io/kubernetes/pkg/registry/authentication/tokenreview"
	"k8s.io/kubernetes/pkg/registry/authorization/localsubjectaccessreview"
	"k8s.io/kubernetes/pkg/registry/authorization/selfsubjectaccessreview"
	"k8s.io/kubernetes/pkg/registry/authorization/selfsubjectrulesreview"
	"k8s.io/kubernetes/pkg/registry/authorization/subjectaccessreview"

	"github.com/exeunt/exeunt/access/serviceaccount"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/object"
)

// review answers the kinds that are questions ("who am I", "may I"). Nothing is
// stored. The answers come from the authorizer that the filters ask.
type review struct{ *resource }

// Create answers the question.
func (r *review) Create(ctx context.Context, obj runtime.Object, _ rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if _, ok := genericrequest.UserFrom(ctx); !ok {
		return nil, apierrors.NewUnauthorized("the request is not authenticated")
	}
	if answer := r.v.Kind.Answer; answer != nil {
		if r.v.Kind.Source != nil && r.api.isFull() { // a restore
			return nil, errFull
		}
		out, err := answer(ctx, obj, kind.Call{
			Client: r.api.client(ctx), DryRun: dryrun.IsDryRun(options.DryRun),
			Warn: func(text string) { warning.AddWarning(ctx, "", text) },
		})
		return out, r.statusError(err, r.key(ctx, ""))
	}
	if binding, ok := obj.(*corev1.Binding); ok {
		return r.bindPod(ctx, binding, dryrun.IsDryRun(options.DryRun))
	}
	library, ok := r.api.reviews()[r.v.GVK.Kind]
	if !ok {
		return nil, r.internalError(fmt.Errorf("no answer for %T", obj))
	}
	return obj, builtin.Answer(obj, func(in runtime.Object) (runtime.Object, error) { return library.Create(ctx, in, nil, options) })
}

// reviews are Kubernetes' own answers, by kind, with the roles as of now. They take internal types.
func (a *API) reviews() map[string]rest.Creater {
	tokens := bearertoken.New(authenticator.TokenFunc(a.Access.AuthenticateToken))
	authz, scheme := a.Access.Authorizer(), builtin.Scheme()
	return map[string]rest.Creater{
		"SelfSubjectReview": selfsubjectreview.NewREST(), "TokenReview": tokenreview.NewREST(tokens, nil),
		"SubjectAccessReview": subjectaccessreview.NewREST(authz, scheme), "LocalSubjectAccessReview": localsubjectaccessreview.NewREST(authz, scheme),
		"SelfSubjectAccessReview": selfsubjectaccessreview.NewREST(authz, scheme), "SelfSubjectRulesReview": selfsubjectrulesreview.NewREST(a.Access.Rules()),
	}
}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate keeps the preconditions of a
// Binding. Questions have none of these fields.
func (r *review) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool {
	return r.v.GVK == bindingKind
}

// bindPod serves bindings, the older form of pods/binding.
func (r *review) bindPod(ctx context.Context, b *corev1.Binding, dryRun bool) (runtime.Object, error) {
	v, ok := r.api.Kinds.Snapshot().Lookup(corev1.SchemeGroupVersion.WithResource("pods"))
	if !ok {
		return nil, r.internalError(fmt.Errorf("no kind Pod"))
	}
	return r.api.newResource(v, v.Strategy).bind(ctx, b, dryRun)
}

var tokenKind = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

func isServiceAccount(v *kind.Version) bool {
	return v.Kind.Group == "" && v.Kind.Name == "ServiceAccount"
}

func isSigningRequest(v *kind.Version) bool { return v.Kind.Storage == builtin.SigningRequests }

// addToken serves serviceaccounts/token: kubectl create token.
func (a *API) addToken(e *endpoint, v *kind.Version) error {
	return a.addNamedCreate(e, v, "token", tokenKind, &tokens{e.main})
}

// tokens issues tokens of ServiceAccounts. Nothing is stored.
type tokens struct{ main *resource }

var _ rest.NamedCreater = (*tokens)(nil)

func (t *tokens) New() runtime.Object { return &authenticationv1.TokenRequest{} }

func (t *tokens) Destroy() {}

// Create answers with a token for the ServiceAccount of this name.
func (t *tokens) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if err := admitted(ctx, obj, validate); err != nil {
		return nil, err
	}
	q, ok := obj.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, t.main.internalError(fmt.Errorf("got a %T", obj))
	}
	account, err := t.main.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	sa := account.(*corev1.ServiceAccount)
	if err := checkTokenRequest(q, sa.Name); err != nil {
		return nil, err
	}
	life := serviceaccount.DefaultLife
	if q.Spec.ExpirationSeconds != nil && *q.Spec.ExpirationSeconds != 0 {
		life = time.Duration(*q.Spec.ExpirationSeconds) * time.Second
	}
	if life > serviceaccount.MaxLife {
		warning.AddWarning(ctx, "", fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", life/time.Second, serviceaccount.MaxLife/time.Second))
		life = serviceaccount.MaxLife
	}
	authority := t.main.api.Access.ServiceAccounts()
	if authority == nil {
		return nil, apierrors.NewServiceUnavailable("this server issues no tokens")
	}
	if len(q.Spec.Audiences) == 0 {
		q.Spec.Audiences = []string{authority.Issuer}
	}
	bound, err := t.bound(ctx, sa, q.Spec.BoundObjectRef)
	if err != nil {
		return nil, err
	}
	token, expires, err := authority.Issue(sa.Namespace, serviceaccount.Bound{Name: sa.Name, UID: sa.UID}, q.Spec.Audiences, life, bound)
	if err != nil {
		return nil, t.main.internalError(err)
	}
	if dryrun.IsDryRun(options.DryRun) {
		token = ""
	}
	seconds := int64(life / time.Second)
	q.Name, q.Namespace, q.CreationTimestamp = sa.Name, sa.Namespace, metav1.NewTime(t.main.api.Now())
	q.UID = object.NewUID()
	q.Spec.ExpirationSeconds = &seconds
	q.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(expires)}
	return q, nil
}

func checkTokenRequest(q *authenticationv1.TokenRequest, name string) error {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if s := q.Spec.ExpirationSeconds; s != nil && *s != 0 && time.Duration(*s)*time.Second < serviceaccount.MinLife {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), *s, "may not specify a duration less than 10 minutes"))
	} else if s != nil && *s > 1<<32 {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), *s, "may not specify a duration larger than 2^32 seconds"))
	}
	for i, audience := range q.Spec.Audiences {
		if audience == "" {
			errs = append(errs, field.Required(spec.Child("audiences").Index(i), ""))
		}
	}
	if q.Name != "" && q.Name != name {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), q.Name, "must be the name of the ServiceAccount"))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(tokenKind.GroupKind(), q.Name, errs)
	}
	return nil
}

// bound finds the object that the token shall die with. It must exist, with the uid that
// the request names.
func (t *tokens) bound(ctx context.Context, sa *corev1.ServiceAccount, to *authenticationv1.BoundObjectReference) (*serviceaccount.Bound, error) {
	if to == nil {
		return nil, nil
	}
	key := object.Key{Namespace: sa.Namespace, Name: to.Name}
	switch gvk := schema.FromAPIVersionAndKind(to.APIVersion, to.Kind); gvk {
	case corev1.SchemeGroupVersion.WithKind("Pod"):
		key.Kind = object.Pods
	case corev1.SchemeGroupVersion.WithKind("Secret"):
		key.Kind = object.Secrets
	case corev1.SchemeGroupVersion.WithKind("Node"):
		key.Kind, key.Namespace = "nodes", ""
	default:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to object of type %s", sa.Name, gvk))
	}
	gr := schema.GroupResource{Resource: key.Kind}
	o, err := t.main.api.Store.Get(ctx, key)
	if object.Is(err, object.NotFound) {
		return nil, apierrors.NewNotFound(gr, to.Name)
	}
	if err != nil {
		return nil, t.main.internalError(err)
	}
	if to.UID != "" && to.UID != o.UID {
		return nil, apierrors.NewConflict(gr, to.Name, fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", to.UID))
	}
	if key.Kind == object.Pods {
		pod := &corev1.Pod{}
		if err := object.DecodeInto(o.Body, o.ResourceVersion(), corev1.SchemeGroupVersion.WithKind("Pod"), pod); err != nil {
			return nil, t.main.internalError(err)
		}
		if pod.Spec.ServiceAccountName != sa.Name {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", sa.Name))
		}
	}
	return &serviceaccount.Bound{Kind: to.Kind, Name: to.Name, UID: o.UID}, nil
}

// serveIssuer serves what other servers need to verify tokens.
func (a *API) serveIssuer(w http.ResponseWriter, req *http.Request) {
	if authority := a.Access.ServiceAccounts(); authority != nil {
		authority.ServeHTTP(w, req)
		return
	}
	http.Error(w, "this server issues no tokens", http.StatusNotFound)
}
