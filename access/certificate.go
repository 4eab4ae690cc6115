package access

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/exeunt/exeunt/access/directory"
)

// certificates authenticates by the client certificate. The TLS handshake verified it
// against our authority, once for the connection (Identity.TLSConfig); the library's
// authenticator would verify the chain with every request. The expiry is checked with
// every request, because a connection may stay open for longer.
type certificates struct{ directory *directory.Directory }

var errExpired = errors.New("the client certificate has expired")

func (c certificates) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
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
			return c.current(response)
		}
	}
	response, ok, err := identify(chain)
	if err != nil || !ok {
		return nil, false, err
	}
	if known != nil {
		known.response.Store(response)
	}
	return c.current(response)
}

// current checks a certificate that was issued to a User: it carries the User's uid, and
// is valid while that User exists. Its groups are those of its subject, which the approver
// read, and never the User's. Other certificates have no uid, or one that is not ours.
func (c certificates) current(response *authenticator.Response) (*authenticator.Response, bool, error) {
	uid, ours := strings.CutPrefix(response.User.GetUID(), UserUIDPrefix)
	if !ours {
		return response, true, nil
	}
	u := response.User
	if found := c.directory.User(u.GetName()); found == nil || string(found.UID) != uid {
		return nil, false, errRevoked
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: u.GetName(), UID: uid, Groups: u.GetGroups(), Extra: u.GetExtra()}}, true, nil
}

// UserUIDPrefix begins the uid in the certificate of a User.
const UserUIDPrefix = "access.exeunt.dev/"

var errRevoked = errors.New("the certificate's user was removed")

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

// Expiries returns when the certificates in use expire: of the authority, of the API's
// listener, of the previous authority during a rotation, and of the first authority in the
// file of client authorities. Those that an administrator provides by file count too.
func (id *Identity) Expiries() map[string]time.Time {
	serving := id.provided.serving.Load()
	if serving == nil {
		serving = id.serving.Load()
	}
	expiries := map[string]time.Time{"authority": id.Authority.NotAfter}
	if serving != nil && serving.Leaf != nil {
		expiries["serving"] = serving.Leaf.NotAfter
	}
	for _, previous := range id.rotation.previous {
		expiries["previous-authority"] = previous.NotAfter
	}
	if first := id.provided.expires.Load(); first != nil {
		expiries["client-authority"] = *first
	}
	return expiries
}

// firstExpiry returns when the first of several certificates in PEM expires; nil: there is
// none.
func firstExpiry(content []byte) (first *time.Time) {
	for {
		var block *pem.Block
		if block, content = pem.Decode(content); block == nil {
			return first
		}
		// The pool of authorities skips what it cannot parse, too.
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err == nil && (first == nil || certificate.NotAfter.Before(*first)) {
			first = &certificate.NotAfter
		}
	}
}
