package access

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"crypto/x509"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
)

// certificates authenticates by the client certificate. The TLS handshake verified it
// against our authority, once for the connection (Identity.TLSConfig); the library's
// authenticator would verify the chain with every request. The expiry is checked with
// every request, because a connection may stay open for longer.
type certificates struct{}

var errExpired = errors.New("the client certificate has expired")

func (certificates) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS == nil || len(req.TLS.VerifiedChains) == 0 {
		return nil, false, nil
	}
	chain := req.TLS.VerifiedChains[0]
	if time.Now().After(chain[0].NotAfter) {
		return nil, false, errExpired
	}
	known, _ := req.Context().Value(connectionKey{}).(*connection)
	if known != nil {
		if response := known.response.Load(); response != nil {
			return response, true, nil
		}
	}
	response, ok, err := identify(chain)
	if known != nil && ok && err == nil {
		known.response.Store(response)
	}
	return response, ok, err
}

// identify reads name, groups and uid from a certificate's subject.
func identify(chain []*x509.Certificate) (*authenticator.Response, bool, error) {
	response, ok, err := requestx509.CommonNameUserConversion.User(chain)
	if err != nil || !ok {
		return nil, false, err
	}
	u := response.User
	response.User = &user.DefaultInfo{
		Name: u.GetName(), UID: u.GetUID(), Extra: u.GetExtra(),
		Groups: append(append([]string{}, u.GetGroups()...), user.AllAuthenticated),
	}
	return response, true, nil
}

type connectionKey struct{}

// connection remembers who the certificate of a TLS connection identifies: it is the
// same for all requests.
type connection struct {
	response atomic.Pointer[authenticator.Response]
}

// ConnContext prepares a connection of a listener, as http.Server.ConnContext.
func ConnContext(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{})
}
