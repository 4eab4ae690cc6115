package access

import (
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// impersonation is the prefix of the impersonation headers.
const impersonation = "Impersonate-"

// Impersonates reports whether a request acts as another user. Unknown is the name of a
// header that Kubernetes ignores, because it does not know it or because it is empty:
// a client that sends one does not want to act as itself, so the request must be
// refused.
func Impersonates(h http.Header) (impersonates bool, unknown string) {
	for name, values := range h {
		if !strings.HasPrefix(name, impersonation) {
			continue
		}
		impersonates = true
		switch {
		case len(values) == 0 || values[0] == "":
			unknown = name
		case name == authenticationv1.ImpersonateUserHeader, name == authenticationv1.ImpersonateGroupHeader, name == authenticationv1.ImpersonateUIDHeader:
		case strings.HasPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix):
		default:
			unknown = name
		}
	}
	return impersonates, unknown
}
