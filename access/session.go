package access

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	jwtaccount "github.com/exeunt/exeunt/access/serviceaccount"
	"github.com/exeunt/exeunt/access/v1"
)

type clientKey struct{}

// WithClient returns a context whose request is of a client that this process has
// identified by other means: a session of the console, or the client of a push.
func WithClient(ctx context.Context, client user.Info) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}

// ClientFrom returns the client of WithClient.
func ClientFrom(ctx context.Context) (user.Info, bool) {
	client, ok := ctx.Value(clientKey{}).(user.Info)
	return client, ok
}

// Credential is what a client authenticates with. A session keeps it and authenticates it
// again with every request, so it ends with the credential.
type Credential struct {
	Token string `json:"token,omitempty"` // a bearer token, or
	// Chain is the client's certificate and those that it was verified with, in DER.
	Chain [][]byte `json:"chain,omitempty"`
}

// CredentialOf returns the credential of a request. It returns false for a request that no
// session may begin with: without a credential, from another session, or as another user.
func CredentialOf(req *http.Request) (c Credential, ok bool) {
	_, session := ClientFrom(req.Context())
	if impersonates, _ := Impersonates(req.Header); impersonates || session {
		return c, false
	}
	if req.TLS != nil {
		for _, certificate := range slices.Concat(req.TLS.VerifiedChains...) {
			if !slices.ContainsFunc(c.Chain, func(known []byte) bool { return bytes.Equal(known, certificate.Raw) }) {
				c.Chain = append(c.Chain, certificate.Raw)
			}
		}
	}
	if parts := strings.Fields(req.Header.Get("Authorization")); len(c.Chain) == 0 && len(parts) == 2 && strings.EqualFold(parts[0], "bearer") {
		c.Token = parts[1]
	}
	return c, c.Token != "" || len(c.Chain) > 0
}

// Reauthenticate identifies the client of a credential as the first request with it did.
// It returns false if the credential is no longer valid.
func (c *Control) Reauthenticate(ctx context.Context, from Credential) (user.Info, bool) {
	var response *authenticator.Response
	var ok bool
	var err error
	if from.Token != "" {
		response, ok, err = c.tokens.AuthenticateToken(ctx, from.Token)
	} else {
		// Without ctx, which remembers the certificate of the browser's connection.
		response, ok, err = certificates{c.directory}.AuthenticateRequest(&http.Request{TLS: c.verify(from.Chain)})
	}
	if err != nil || !ok {
		return nil, false
	}
	return response.User, true
}

// verify verifies a certificate as the handshake of a new connection does. It returns nil
// if that would fail.
func (c *Control) verify(chain [][]byte) *tls.ConnectionState {
	all, err := x509.ParseCertificates(bytes.Join(chain, nil))
	if err != nil || len(all) == 0 || c.authorities == nil {
		return nil
	}
	others := x509.NewCertPool()
	for _, c := range all[1:] {
		others.AddCert(c)
	}
	chains, err := all[0].Verify(x509.VerifyOptions{Roots: c.authorities(), Intermediates: others, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return nil
	}
	return &tls.ConnectionState{VerifiedChains: chains}
}

// Remember returns a user as a token of the registry keeps it: a User of this server with a
// mark, so that Current finds it.
func (c *Control) Remember(u user.Info) user.Info {
	found := c.directory.User(u.GetName())
	if found == nil || string(found.UID) != u.GetUID() {
		return u
	}
	return &user.DefaultInfo{Name: u.GetName(), UID: UserUIDPrefix + u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}
}

// Current returns a remembered user, or false if it is a User or a ServiceAccount that was
// removed. Of others the server knows no more than what they logged in with.
func (c *Control) Current(u user.Info) (user.Info, bool) {
	if namespace, name, err := serviceaccount.SplitUsername(u.GetName()); err == nil {
		return u, string(c.directory.Account(namespace, name)) == u.GetUID() && u.GetUID() != ""
	}
	response, ok, err := certificates{c.directory}.current(&authenticator.Response{User: u})
	if err != nil || !ok {
		return nil, false
	}
	return response.User, true
}

// Expires returns when a token that was authenticated ends; zero means never, or not known. A
// token of the registry that it gives must not last longer.
func (c *Control) Expires(token string) time.Time {
	if found, expires := c.directory.UserByToken(v1.Hash(token)); found != nil {
		return expires
	}
	return jwtaccount.Expires(token)
}

// sessions authenticates by WithClient. A request from outside cannot have it.
type sessions struct{}

func (sessions) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	client, ok := ClientFrom(req.Context())
	if !ok {
		return nil, false, nil
	}
	return &authenticator.Response{User: client}, true, nil
}

// FromPage returns why a request is refused that a web page of another origin made
// a browser send, or "" for any other request. This server has nothing for such
// pages, but the browser has what the page lacks: access to this machine's
// loopback, and client certificates.
//
// Browsers set Sec-Fetch-Site, and pages cannot change it: if present, it decides.
// Older browsers send Origin with every request that is not a plain read. Other
// programs send neither.
func FromPage(req *http.Request) string {
	switch site := req.Header.Get("Sec-Fetch-Site"); site {
	case "same-origin", "none": // a page of ours, or the address bar
		return ""
	case "":
	default:
		return "requests from web pages of other origins are refused (Sec-Fetch-Site: " + printable(site) + ")"
	}
	origin := req.Header.Get("Origin")
	if origin == "" {
		return ""
	}
	if u, err := url.Parse(origin); err == nil && u.Host != "" && strings.EqualFold(u.Host, req.Host) {
		return ""
	}
	return "requests from web pages of other origins are refused (Origin: " + printable(origin) + ")"
}

// Hosts are the host names of a listener on loopback.
type Hosts []string

// Foreign returns "" if the Host header of a request is one of the names, else the
// reason to refuse it. A listener that trusts all clients on loopback needs this check: a web
// page can make its own name resolve to 127.0.0.1 (DNS rebinding), and the browser
// then treats page and listener as one origin. Only the Host header shows it. The
// loopback addresses are always allowed: a page is never loaded from them.
func (names Hosts) Foreign(req *http.Request) string {
	host := req.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsLoopback() || strings.EqualFold(host, "localhost") {
		return ""
	}
	for _, name := range names {
		if strings.EqualFold(host, name) {
			return ""
		}
	}
	return "this listener is not called " + printable(host)
}

// printable replaces characters that are not printable ASCII and cuts the text to
// 100 bytes.
func printable(text string) string {
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, text)
	return text[:min(len(text), 100)]
}
