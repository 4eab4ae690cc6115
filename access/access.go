// Package access identifies clients. A client is known by a client certificate
// that this server's own authority signed; there are no passwords and no tokens
// yet. Authorization happens elsewhere: today every known client is an
// administrator.
//
// The first start creates the authority, the serving certificate and the
// administrator's kubeconfig (identity.go) in the data directory.
package access

import (
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Authenticator identifies the client of a request.
type Authenticator struct{}

// User returns the client of the request. The TLS handshake has verified the
// certificate against our authority (see Identity.TLSConfig), once for the whole
// connection.
func (*Authenticator) User(req *http.Request) (user.Info, bool) {
	if req.TLS == nil || len(req.TLS.VerifiedChains) == 0 {
		return nil, false
	}
	subject := req.TLS.VerifiedChains[0][0].Subject
	if subject.CommonName == "" {
		return nil, false
	}
	return &user.DefaultInfo{
		Name:   subject.CommonName,
		Groups: append(append([]string{}, subject.Organization...), user.AllAuthenticated),
	}, true
}
