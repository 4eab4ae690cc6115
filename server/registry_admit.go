package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/registrytoken"
	"github.com/exeunt/exeunt/internal/inflight"
	"github.com/exeunt/exeunt/registry"
)

const (
	errUnknownClient = "the server does not know these credentials; the password is a token (exeunt user add, kubectl create token)"
	errNoCredentials = "log in: any user name, and a token as the password (exeunt user add, kubectl create token; for a registry on loopback the file registry-token in the server's data directory)"
)

// registryAccess identifies clients of the registry.
type registryAccess struct {
	*access.Control
	tokens *registrytoken.Authority
	issuer string
	login  *localLogin // nil if there is none
	open   bool        // clients without credentials may do everything
	public func(ctx context.Context, path string) (bool, error)
}

func (d *registryAccess) client(ctx context.Context, u user.Info) *registryClient {
	return &registryClient{ctx: ctx, user: u, authz: d.Authorizer(), public: d.public}
}

var (
	anonymousUser = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	// openUser is the client without credentials of a registry that asks for none.
	openUser = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.SystemPrivilegedGroup}}
)

// admit identifies the client of a request, and keeps the request for Create.
func (d *registryAccess) admit(req *http.Request) (registry.Client, error) {
	client, err := d.identify(req)
	if err != nil {
		return nil, err
	}
	client.req = req
	return client, nil
}

// identify identifies the client of a request: a session of the console, a client
// certificate, a token of the registry (Bearer), or a token as the password of basic
// authentication. A client without credentials may pull what is public.
func (d *registryAccess) identify(req *http.Request) (*registryClient, error) {
	header := req.Header.Get("Authorization")
	if header == "" {
		_, session := access.ClientFrom(req.Context())
		if session || req.TLS != nil && len(req.TLS.VerifiedChains) > 0 {
			u, ok := d.Authenticate(req)
			if !ok {
				return nil, &registry.Error{Code: registry.Unauthorized, Message: errUnknownClient}
			}
			return d.client(req.Context(), u), nil
		}
		if d.open {
			return d.client(req.Context(), openUser), nil
		}
		return &registryClient{ctx: req.Context(), user: anonymousUser, anonymous: true, public: d.public}, nil
	}
	if wait := d.Throttle().Wait(req.RemoteAddr, header); wait > 0 {
		return nil, &registry.Error{Code: registry.TooManyRequests, Message: "too many wrong credentials from this address; try again later"}
	}
	req.Header.Del("Authorization")
	if token, ok := strings.CutPrefix(header, "Bearer "); ok {
		return d.bearer(req, header, token)
	}
	holder, err := d.basic(req, header)
	if err != nil {
		return nil, &registry.Error{Code: registry.Unauthorized, Message: errUnknownClient}
	}
	return d.client(req.Context(), userOf(holder)), nil
}

// bearer admits the holder of a token of the registry, if it still exists.
func (d *registryAccess) bearer(req *http.Request, header, token string) (*registryClient, error) {
	t, err := d.tokens.Verify(token)
	if errors.Is(err, registrytoken.ErrUnknown) {
		d.Throttle().Failed(req.RemoteAddr, header)
	}
	if err != nil {
		return nil, &registry.Error{Code: registry.Unauthorized, Reason: "invalid_token", Message: err.Error()}
	}
	u, ok := d.current(t.Holder)
	if !ok {
		return nil, &registry.Error{Code: registry.Unauthorized, Reason: "invalid_token", Message: "the token's user, or the password that it logged in with, is gone"}
	}
	d.Throttle().Succeeded(header)
	c := d.client(req.Context(), u)
	c.token, c.anonymous = t, t.Holder.Anonymous
	return c, nil
}

// basic identifies the client of basic authentication. Any user name will do.
func (d *registryAccess) basic(req *http.Request, header string) (registrytoken.Holder, error) {
	probe := http.Request{Header: http.Header{"Authorization": {header}}}
	_, password, _ := probe.BasicAuth() // a header that is none of ours has an empty password
	h, err := d.password(req.Context(), password)
	if err != nil {
		d.Throttle().Failed(req.RemoteAddr, header)
		return h, err
	}
	d.Throttle().Succeeded(header)
	inflight.Known(req.Context())
	return h, nil
}

// password identifies the client by a token: the local login, a User's, or any other that
// the API accepts or that is for the registry's audience.
func (d *registryAccess) password(ctx context.Context, password string) (registrytoken.Holder, error) {
	if h, ok := d.login.holder(password); ok {
		return h, nil
	}
	ctx = authenticator.WithAudiences(ctx, authenticator.Audiences{d.issuer, registrytoken.Service})
	response, ok, err := d.AuthenticateToken(ctx, password)
	if err != nil || !ok {
		return registrytoken.Holder{}, registrytoken.ErrLogin
	}
	h := holderOf(response.User)
	if h.Credential, h.Expires = d.Credential(password); h.Credential == "" {
		h.Expires = d.Expires(password)
	}
	return h, nil
}

// current returns the holder of a token as it is now, or false if it is gone. A User's
// token ends with the User and with the password, a ServiceAccount's with the
// ServiceAccount; of others the server knows what they logged in with.
func (d *registryAccess) current(h registrytoken.Holder) (user.Info, bool) {
	switch {
	case h.Anonymous:
		return anonymousUser, true
	case d.login.issued(h):
		return userOf(h), true
	case strings.HasPrefix(h.Credential, localPrefix):
		return nil, false
	case h.Credential != "":
		u, ok := d.UserByCredential(h.Credential)
		return u, ok && u.GetUID() == h.UID
	}
	return d.Current(userOf(h))
}

func holderOf(u user.Info) registrytoken.Holder {
	return registrytoken.Holder{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
}

func userOf(h registrytoken.Holder) user.Info {
	return &user.DefaultInfo{Name: h.Name, UID: h.UID, Groups: h.Groups}
}

// endpoint issues tokens.
func (d *registryAccess) endpoint(refuse func(*http.Request) string) http.Handler {
	e := &registrytoken.Endpoint{
		Authority: d.tokens, Login: d.loginByHeader, Password: d.loginByPassword, Refresh: d.loginByRefresh, Grant: d.grant,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if why := refuse(req); why != "" {
			registrytoken.Fail(w, &registrytoken.Refusal{Status: http.StatusForbidden, Code: "DENIED", Message: why})
			return
		}
		ctx, cancel := context.WithTimeout(req.Context(), time.Minute)
		defer cancel()
		e.ServeHTTP(w, req.WithContext(ctx))
	})
}

func slowed(wait time.Duration) error {
	return &registrytoken.Refusal{Status: http.StatusTooManyRequests, Code: "TOOMANYREQUESTS", Message: "too many wrong credentials from this address; try again later", RetryAfter: wait}
}

// loginByHeader identifies the client of a GET. A token of the registry is no login.
func (d *registryAccess) loginByHeader(req *http.Request) (registrytoken.Holder, error) {
	header := req.Header.Get("Authorization")
	if header != "" {
		if wait := d.Throttle().Wait(req.RemoteAddr, header); wait > 0 {
			return registrytoken.Holder{}, slowed(wait)
		}
		return d.basic(req, header)
	}
	if req.TLS != nil && len(req.TLS.VerifiedChains) > 0 {
		u, ok := d.Authenticate(req)
		if !ok {
			return registrytoken.Holder{}, registrytoken.ErrLogin
		}
		inflight.Known(req.Context())
		return holderOf(d.Remember(u)), nil
	}
	return registrytoken.Holder{Name: anonymousUser.Name, Groups: anonymousUser.Groups, Anonymous: true}, nil
}

// loginByPassword identifies the client of a POST. The throttle knows the password by the
// header that basic authentication would have.
func (d *registryAccess) loginByPassword(req *http.Request, password string) (registrytoken.Holder, error) {
	probe := http.Request{Header: http.Header{}}
	probe.SetBasicAuth("", password)
	header := probe.Header.Get("Authorization")
	if wait := d.Throttle().Wait(req.RemoteAddr, header); wait > 0 {
		return registrytoken.Holder{}, slowed(wait)
	}
	return d.basic(req, header)
}

// loginByRefresh identifies the client by a refresh token. A wrong one slows its address
// as a wrong password does.
func (d *registryAccess) loginByRefresh(req *http.Request, token string) (registrytoken.Holder, error) {
	if wait := d.Throttle().Wait(req.RemoteAddr, token); wait > 0 {
		return registrytoken.Holder{}, slowed(wait)
	}
	h, err := d.tokens.Refresh(token)
	if err == nil {
		if _, ok := d.current(h); ok {
			d.Throttle().Succeeded(token)
			inflight.Known(req.Context())
			return h, nil
		}
	}
	d.Throttle().Failed(req.RemoteAddr, token)
	return registrytoken.Holder{}, registrytoken.ErrLogin
}

// grant returns the actions of a scope that the holder may do now.
func (d *registryAccess) grant(ctx context.Context, h registrytoken.Holder, asked registrytoken.Access) []string {
	u, ok := d.current(h)
	if !ok {
		return nil
	}
	c := d.client(ctx, u)
	c.anonymous = h.Anonymous
	var granted []string
	for _, action := range asked.Actions {
		var may bool
		switch action {
		case registrytoken.Pull:
			may = c.May("get", asked.Name) == nil
		case registrytoken.Push:
			may = c.May("update", asked.Name) == nil || c.May("create", asked.Name) == nil
		case registrytoken.Delete:
			may = c.May("delete", asked.Name) == nil
		case registrytoken.Any: // of the catalog
			may = c.Known()
		}
		if may {
			granted = append(granted, action)
		}
	}
	return granted
}

// challenge tells a client where to get a token: at the name and scheme by which it has
// reached the registry. A name that is not loopback's reaches a plain listener through a
// proxy that does TLS.
func challenge(req *http.Request, scope, reason string) string {
	scheme := "https"
	if req.TLS == nil && loopbackName(req.Host) {
		scheme = "http"
	}
	return registrytoken.Challenge(scheme+"://"+req.Host, scope, reason)
}

func loopbackName(hostPort string) bool {
	host := hostPort
	if name, _, err := net.SplitHostPort(hostPort); err == nil {
		host = name
	}
	return loopback(strings.Trim(host, "[]"))
}
