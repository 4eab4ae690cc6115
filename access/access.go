// Package access says who a caller is. A caller is known by a client
// certificate that this server's own authority signed; there are no passwords
// and no tokens yet. What a caller may do is decided elsewhere: today every
// known caller is an administrator.
//
// The authority, the serving certificate and the administrator's kubeconfig
// are made on first start (identity.go) and kept in the data directory.
package access

import (
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Authenticator finds out who sent a request.
type Authenticator struct{}

// Caller returns who sent the request. The TLS handshake has verified the
// certificate against our authority (see Identity.TLSConfig), once for the
// whole connection.
func (*Authenticator) Caller(req *http.Request) (user.Info, bool) {
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
