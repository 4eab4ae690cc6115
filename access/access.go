// Package access authenticates clients and authorizes requests: a request goes in, and the client and a decision
// come out. Every listener asks it who the client is (Control.Authenticate) and whether
// the client may (Control.Authorize).
//
// Authenticators and authorizers are those of k8s.io/apiserver. Roles come from
// access/directory, which follows the store in memory. A denial is never an error: it
// says what is missing, in Kubernetes' words.
//
// The first start creates the authority, the serving certificate and the
// administrator's kubeconfig (identity.go) in the data directory.
package access

import (
	"context"
	"crypto/x509"
	"hash/maphash"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authorizerunion "k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/utils/lru"

	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/access/rbac"
	"github.com/exeunt/exeunt/access/serviceaccount"
	"github.com/exeunt/exeunt/internal/inflight"
)

// Control authenticates and authorizes. It is safe for concurrent use.
type Control struct {
	directory   *directory.Directory
	accounts    *serviceaccount.Authority // nil if this server issues no tokens
	authorities func() *x509.CertPool     // nil if no certificates are accepted
	requests    authenticator.Request
	tokens      authenticator.Token
	authz       authorizer.Authorizer
	throttle    *Throttle
}

// Config has the settings of a Control. The zero value is certificates and the tokens of
// Users.
type Config struct {
	// ServiceAccounts issues and verifies their tokens. Nil if there are none.
	ServiceAccounts *serviceaccount.Authority
	// Tokens are further authenticators.
	Tokens []authenticator.Token
	// Authorizers decide, after what may do everything. Nil means RBAC alone.
	Authorizers *Authorizers
	// Authorities are those of client certificates, for Reauthenticate. Nil if there are none.
	Authorities func() *x509.CertPool
}

// NewControl returns the access control of a server. It does no I/O.
func NewControl(d *directory.Directory, c Config) *Control {
	control := &Control{directory: d, authorities: c.Authorities, throttle: NewThrottle(time.Now)}
	// The first that knows a token decides; an error of one is reported only if no other
	// knows it.
	var audiences authenticator.Audiences
	var known []authenticator.Token
	if c.ServiceAccounts != nil {
		control.accounts, audiences = c.ServiceAccounts, authenticator.Audiences{c.ServiceAccounts.Issuer}
		// A signature costs 0.1 ms, and a bound object a query: what they say is good for a second.
		known = append(known, cache.New(c.ServiceAccounts, false, time.Second, 0))
	}
	for _, t := range append([]authenticator.Token{userTokens{d}}, c.Tokens...) {
		known = append(known, authenticator.WrapAudienceAgnosticToken(audiences, t))
	}
	control.tokens = group.NewTokenGroupAdder(tokenunion.New(known...), []string{user.AllAuthenticated})
	control.requests = union.NewFailOnError(sessions{}, certificates{d}, bearertoken.New(control.tokens), anonymous{})
	roles := func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		return d.Roles().Authorize(ctx, a)
	}
	if c.Authorizers == nil {
		c.Authorizers, _ = OpenAuthorizers("") // reads no file
	}
	var err error
	control.authz, err = authorizerunion.New(append([]authorizerunion.NamedAuthorizer{
		{AuthorizerName: "exeunt-privileged", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		{AuthorizerName: "exeunt-broker", Authorizer: authorizer.AuthorizerFunc(brokerRights)},
	}, c.Authorizers.with(authorizer.AuthorizerFunc(roles))...)...)
	if err != nil {
		panic(err) // the configuration was checked: its names differ
	}
	return control
}

// Authenticate identifies the client of a request, and removes the credentials from
// it. It returns false for a client without valid credentials; on the public paths
// that is the anonymous user, unless it sent invalid ones. It counts failures; a listener
// asks Slow first.
func (c *Control) Authenticate(req *http.Request) (user.Info, bool) {
	if req.Context().Value(serverKey{}) != nil {
		return serverUser, true
	}
	credential := secretOf(req)
	response, ok, err := c.requests.AuthenticateRequest(req)
	if err != nil || !ok {
		c.throttle.Failed(req.RemoteAddr, credential)
		return nil, false
	}
	c.throttle.Succeeded(credential)
	req.Header.Del("Authorization")
	return response.User, true
}

// AuthenticateToken identifies the owner of a bearer token, for the audiences in the
// context, or for this server.
func (c *Control) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	return c.tokens.AuthenticateToken(ctx, token)
}

// ServiceAccounts returns the authority of their tokens, or nil.
func (c *Control) ServiceAccounts() *serviceaccount.Authority { return c.accounts }

// Authorizer decides on behalf of the libraries.
func (c *Control) Authorizer() authorizer.Authorizer { return c.authz }

// Rules lists what a user may do in a namespace.
func (c *Control) Rules() authorizer.RuleResolver { return c.directory.Roles() }

// Roles returns the roles and bindings as of now.
func (c *Control) Roles() *rbac.Index { return c.directory.Roles() }

// Authorize reports whether the client of the request in ctx may do what the request
// asks: its user and parsed RequestInfo are in the context. A denial comes with its
// attributes. The reason is Kubernetes', for a denial and for an allowance.
func (c *Control) Authorize(ctx context.Context) (denied authorizer.Attributes, reason string, err error) {
	attributes, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return nil, "", err
	}
	decision, reason, err := c.authz.Authorize(ctx, attributes)
	if decision == authorizer.DecisionAllow {
		return nil, reason, nil
	}
	return attributes, reason, err
}

// CheckGrant refuses a write of a role or binding that gives rights which the client
// does not hold. Old is nil on create.
func (c *Control) CheckGrant(ctx context.Context, client user.Info, obj, old runtime.Object) error {
	return c.directory.Roles().CheckGrant(ctx, c.authz, client, obj, old)
}

// anonymous admits clients without credentials to the public paths, for reading.
// Roles decide what they may read there (system:public-info-viewer).
type anonymous struct{}

func (anonymous) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if !isPublic(req.URL.Path) || req.Method != http.MethodGet && req.Method != http.MethodHead || req.Header.Get("Authorization") != "" {
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}}, true, nil
}

// probes are open to anonymous clients, with everything below them.
var probes = []string{"/healthz", "/livez", "/readyz"}

func isPublic(path string) bool {
	if path == "/version" {
		return true
	}
	return slices.ContainsFunc(probes, func(probe string) bool { return path == probe || strings.HasPrefix(path, probe+"/") })
}

const (
	// An address may present failureBurst wrong credentials at once, and failureRate more
	// each second. So may one wrong credential that a program repeats.
	failureBurst = 50
	failureRate  = 5.0
	// maxRemembered bounds the failures and the good credentials that a Throttle remembers:
	// a few megabytes each.
	maxRemembered = 20000
)

// Throttle slows clients that present wrong credentials, per address: 429 with
// Retry-After, before the credential is checked. Share one between all listeners of a
// process (Control.Throttle).
//
// A credential that was good before is always checked, and good ones cost nothing, so
// clients behind one address (NAT) do not suffer from a guest among them who guesses.
// A credential that is new to the process is delayed like a failed attempt, by a fifth of a
// second at least. A program that repeats one wrong credential, such as an expired token, is
// slowed by itself and does not use up its address's allowance.
//
// Memory is bounded: an attacker with more addresses than are remembered is not slowed
// per address by anything. It is safe for concurrent use.
type Throttle struct {
	now  func() time.Time
	seed maphash.Seed

	attempts [3]atomic.Int64 // by Success, Failure and Throttled

	mu    sync.Mutex // held while a failure is recorded
	good  *lru.Cache // the good credentials
	wrong *lru.Cache // of *rate.Limiter, by address, and by address and credential
}

// NewThrottle makes a throttle. Now is time.Now outside of tests.
func NewThrottle(now func() time.Time) *Throttle {
	return &Throttle{now: now, seed: maphash.MakeSeed(), good: lru.New(maxRemembered), wrong: lru.New(maxRemembered)}
}

// Result is that of an authentication. The first two are Kubernetes' words.
type Result int

const (
	Success Result = iota
	Failure
	Throttled // not tried, because of failures before
)

func (a Result) String() string { return [...]string{"success", "failure", "throttled"}[a] }

// Attempts is how many authentications had a result, on all listeners.
func (t *Throttle) Attempts(a Result) int64 { return t.attempts[a].Load() }

// Wait returns how long the client must wait before this credential is checked; zero if it
// is checked now. An empty credential never waits.
func (t *Throttle) Wait(address, credential string) time.Duration {
	if credential == "" || t.wrong.Len() == 0 {
		return 0
	}
	now, from := t.now(), inflight.Network(address)
	wait := t.wait(t.hash(from, credential), now)
	if _, known := t.good.Get(t.hash("", credential)); !known {
		wait = max(wait, t.wait(t.hash(from, ""), now))
	}
	if wait > 0 {
		t.attempts[Throttled].Add(1)
	}
	return wait
}

func (t *Throttle) wait(key uint64, now time.Time) time.Duration {
	failures, ok := t.failures(key)
	if !ok {
		return 0
	}
	return max(0, time.Duration((1-failures.TokensAt(now))/failureRate*float64(time.Second)))
}

// failures returns the limiter of an address or of its credential.
func (t *Throttle) failures(key uint64) (*rate.Limiter, bool) {
	value, ok := t.wrong.Get(key)
	if !ok {
		return nil, false
	}
	return value.(*rate.Limiter), true
}

// fail counts a failure in a new limiter if there is none.
func (t *Throttle) fail(key uint64, now time.Time) {
	failures, ok := t.failures(key)
	if !ok {
		failures = rate.NewLimiter(failureRate, failureBurst)
		t.wrong.Add(key, failures)
	}
	failures.AllowN(now, 1)
}

// Succeeded records that a credential was good. An empty one, of a client with a
// certificate or a session, is counted only.
func (t *Throttle) Succeeded(credential string) {
	if t.attempts[Success].Add(1); credential == "" {
		return
	}
	t.good.Add(t.hash("", credential), nil)
}

// Failed records that a credential was wrong, or counts that there was none.
func (t *Throttle) Failed(address, credential string) {
	if t.attempts[Failure].Add(1); credential == "" {
		return
	}
	from, now := inflight.Network(address), t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.good.Remove(t.hash("", credential))
	repeated := t.hash(from, credential)
	if failures, ok := t.failures(repeated); !ok || failures.TokensAt(now) >= failureBurst {
		t.fail(t.hash(from, ""), now)
	}
	t.fail(repeated, now)
}

func (t *Throttle) hash(from, credential string) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	_, _ = h.WriteString(from) // never fails
	_ = h.WriteByte(0)
	_, _ = h.WriteString(credential)
	return h.Sum64()
}

// Throttle returns the throttle of failed logins, for listeners that check credentials
// themselves.
func (c *Control) Throttle() *Throttle { return c.throttle }

// Slow returns how long the client must wait before Authenticate checks the credential of
// the request, because of failures before; zero if it need not. A listener answers 429.
func (c *Control) Slow(req *http.Request) time.Duration {
	return c.throttle.Wait(req.RemoteAddr, secretOf(req))
}

// secretOf returns the credential that Authenticate will check and that can be guessed. A
// certificate, or a session, comes first and cannot.
func secretOf(req *http.Request) string {
	if _, session := ClientFrom(req.Context()); session || req.TLS != nil && len(req.TLS.VerifiedChains) > 0 {
		return ""
	}
	return req.Header.Get("Authorization")
}
