package access

import (
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// impersonation is the prefix of the impersonation headers.
const impersonation = "Impersonate-"

// Impersonation returns the first permission that Kubernetes would check for a
// request that acts as another user. ok is false for a request without
// impersonation headers. Headers that Kubernetes does not know, or ignores because
// they are empty, count too: a client that sends them does not want to act as
// itself.
func Impersonation(h http.Header, client user.Info) (needed *authorizer.AttributesRecord, ok bool) {
	for name := range h {
		ok = ok || strings.HasPrefix(name, impersonation)
	}
	if !ok {
		return nil, false
	}
	needed = &authorizer.AttributesRecord{User: client, Verb: "impersonate", APIVersion: "v1", ResourceRequest: true}
	if _, sent := h[authenticationv1.ImpersonateUserHeader]; sent || len(h[authenticationv1.ImpersonateGroupHeader]) == 0 {
		needed.Resource, needed.Name = "users", h.Get(authenticationv1.ImpersonateUserHeader)
		if namespace, name, err := serviceaccount.SplitUsername(needed.Name); err == nil {
			needed.Resource, needed.Namespace, needed.Name = "serviceaccounts", namespace, name
		}
		return needed, true
	}
	needed.Resource, needed.Name = "groups", h.Get(authenticationv1.ImpersonateGroupHeader)
	return needed, true
}
