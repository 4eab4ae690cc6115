package access

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/internal/task"
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

// firstExpiry returns when the first of several certificates in PEM expires; nil if there is
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

// Files are certificates that an administrator provides. An empty name: none.
type Files struct {
	// Cert and Key are the serving certificate, with its chain, and its key. Clients that
	// ask for one of its names get it; others, and the server's own clients on loopback,
	// get the certificate of the authority in the data directory.
	Cert, Key string
	// ClientCA has further authorities whose clients are known by their certificate.
	ClientCA string
}

// reloadEvery is how often the files are read again.
const reloadEvery = 5 * time.Second

// provided is what the files hold.
type provided struct {
	files    Files
	contents [3][]byte // of the files, as they were last read; owned by Reload
	serving  atomic.Pointer[tls.Certificate]
	clients  atomic.Pointer[x509.CertPool]
	// expires is when the first authority of ClientCA expires; nil if there is none.
	expires atomic.Pointer[time.Time]
}

// UseFiles reads the files, before the identity is used.
func (id *Identity) UseFiles(f Files) error {
	if (f.Cert == "") != (f.Key == "") {
		return errors.New("--tls-cert-file and --tls-private-key-file belong together: set both or neither")
	}
	id.provided.files = f
	_, err := id.Reload()
	return err
}

// Reload reads the files again and reports whether they had changed. New handshakes use
// the new content; open connections stay. If one of the files cannot be used, everything
// stays as it was.
func (id *Identity) Reload() (changed bool, err error) {
	p := &id.provided
	var now [3][]byte
	for i, name := range []string{p.files.Cert, p.files.Key, p.files.ClientCA} {
		if name == "" {
			continue
		}
		if now[i], err = os.ReadFile(name); err != nil {
			return false, fmt.Errorf("read certificate file: %w", err)
		}
		changed = changed || !bytes.Equal(now[i], p.contents[i])
	}
	if !changed {
		return false, nil
	}
	var serving *tls.Certificate
	if p.files.Cert != "" {
		pair, err := tls.X509KeyPair(now[0], now[1])
		if err != nil {
			return false, fmt.Errorf("%s and %s: %w", p.files.Cert, p.files.Key, err)
		}
		serving = &pair
	}
	clients := x509.NewCertPool()
	id.addAuthorities(clients)
	if p.files.ClientCA != "" && !clients.AppendCertsFromPEM(now[2]) {
		return false, fmt.Errorf("%s: no certificate in PEM", p.files.ClientCA)
	}
	p.contents = now
	p.serving.Store(serving)
	p.clients.Store(clients)
	p.expires.Store(firstExpiry(now[2]))
	return true, nil
}

// WatchFiles reads the files again every five seconds until ctx ends. A file that cannot
// be used is logged once for each new fault.
func (id *Identity) WatchFiles(ctx context.Context, log *slog.Logger) error {
	last := ""
	for task.Sleep(ctx, reloadEvery) {
		changed, err := id.Reload()
		switch {
		case err != nil && err.Error() != last:
			last = err.Error()
			log.Error("new certificate files cannot be used; the server goes on with the old ones", "error", err)
		case err == nil:
			last = ""
		}
		if changed {
			log.Info("certificate files were read again")
		}
	}
	return nil
}

// certificateFor chooses the serving certificate by the name, or the address, that the
// client asks for.
func (id *Identity) certificateFor(hello *tls.ClientHelloInfo) *tls.Certificate {
	given := id.provided.serving.Load()
	if given == nil {
		return id.serving.Load()
	}
	name := hello.ServerName
	if name == "" && hello.Conn != nil { // clients that use an address send no name
		name, _, _ = net.SplitHostPort(hello.Conn.LocalAddr().String())
	}
	if given.Leaf.VerifyHostname(name) == nil {
		return given
	}
	return id.serving.Load()
}

// cipherSuites are those of TLS 1.2 that authenticate what they encrypt (AEAD) and have
// forward secrecy: no CBC. TLS 1.3 has no others.
var cipherSuites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// TLSConfig returns the configuration of the listener; it always uses the current
// certificates. A client certificate is optional, so that anonymous clients can read the
// health checks. A certificate that is sent must be signed by our authority, or by one of
// Files.ClientCA.
func (id *Identity) TLSConfig() *tls.Config {
	base := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		CipherSuites:   cipherSuites,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) { return id.certificateFor(hello), nil },
		ClientAuth:     tls.VerifyClientCertIfGiven,
		ClientCAs:      id.ClientAuthorities(),
		NextProtos:     []string{"h2", "http/1.1"},
	}
	if id.provided.files.ClientCA == "" {
		return base
	}
	// A resumed session must not outlive the authority that it was verified with, so each
	// set of authorities has its own configuration, and its own ticket keys.
	var current atomic.Pointer[tls.Config]
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool := id.provided.clients.Load()
		if c := current.Load(); c != nil && c.ClientCAs == pool {
			return c, nil
		}
		next := base.Clone()
		next.GetConfigForClient, next.ClientCAs = nil, pool
		current.Store(next)
		return next, nil
	}
	return base
}

// ClientAuthorities returns the authorities whose client certificates are accepted now.
func (id *Identity) ClientAuthorities() *x509.CertPool {
	if provided := id.provided.clients.Load(); provided != nil {
		return provided
	}
	own := x509.NewCertPool()
	id.addAuthorities(own)
	return own
}

// WriteKubeconfig writes a kubeconfig for the administrator, with mode 0600.
func (id *Identity) WriteKubeconfig(path, server string, now time.Time) error {
	admin, _, err := id.administrator(now)
	if err != nil {
		return err
	}
	return id.writeKubeconfig(path, server, admin)
}

// RenewKubeconfig replaces the administrator's certificate and the kubeconfig if the
// certificate expires soon, and reports whether it did. Otherwise it leaves the
// file, which its owner may have changed. After a crash between the two, the next
// start writes the kubeconfig.
func (id *Identity) RenewKubeconfig(path, server string, now time.Time) (renewed bool, err error) {
	admin, renewed, err := id.administrator(now)
	if err != nil || !renewed {
		return false, err
	}
	return true, id.writeKubeconfig(path, server, admin)
}

// BrokerFiles returns the paths of the certificate and key with which the broker acts in
// its own name, and issues them if they are missing or expire soon.
func (id *Identity) BrokerFiles(now time.Time) (cert, key string, err error) {
	_, _, err = id.readOrIssue("broker", &x509.Certificate{
		Subject:     pkix.Name{CommonName: brokerName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, nil, now)
	return filepath.Join(id.dir, "broker.crt"), filepath.Join(id.dir, "broker.key"), err
}

func (id *Identity) administrator(now time.Time) (admin pair, renewed bool, err error) {
	return id.readOrIssue("admin", &x509.Certificate{
		Subject:     pkix.Name{CommonName: "exeunt-admin", Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, nil, now)
}

func (id *Identity) writeKubeconfig(path, server string, admin pair) error {
	encode := base64.StdEncoding.EncodeToString
	return writePrivate(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: exeunt
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: exeunt-admin
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: exeunt
  context:
    cluster: exeunt
    user: exeunt-admin
current-context: exeunt
`, server, encode(id.AuthorityPEM()), encode(slices.Concat(admin.cert, id.rotation.crossPEM())), encode(admin.key)))
}

// brokerName is the user that the broker acts as.
const brokerName = "system:exeunt:broker"

// brokerRights lets the broker write what Blueprints ask for, which no role can name in
// advance: composite resources and ProviderConfigs, of custom kinds, and the Secrets of
// bootstrap tokens in the namespaces of projects. It excludes the groups of Kubernetes and
// of this server, so that a Blueprint cannot make the broker create a Pod, a role or a
// User, and the Secrets of the system's namespaces. What else the broker may do is in its
// ClusterRole of the same name.
func brokerRights(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser() == nil || a.GetUser().GetName() != brokerName || !a.IsResourceRequest() || a.GetSubresource() != "" {
		return authorizer.DecisionNoOpinion, "", nil
	}
	group, namespace := a.GetAPIGroup(), a.GetNamespace()
	var verbs []string
	switch {
	case strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") && !strings.HasSuffix(group, ".exeunt.dev"):
		verbs = []string{"create", "delete", "get", "list", "patch", "watch"}
	case group == "" && a.GetResource() == "secrets" && namespace != "" && !strings.HasPrefix(namespace, "kube-"):
		verbs = []string{"create", "delete", "get", "patch"}
	}
	if slices.Contains(verbs, a.GetVerb()) {
		return authorizer.DecisionAllow, "the broker writes what Blueprints ask for", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}
