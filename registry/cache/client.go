package cache

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exeunt/exeunt/registry"
)

const (
	// mostFetches bounds the requests to one upstream that a replica has under way.
	mostFetches = 16
	// progress is how many bytes of a body have to come within Options.Patience.
	progress = 64 << 10
	// mostAnswer bounds what is read of an answer that is no content.
	mostAnswer = 64 << 10
	// mostTokens bounds the tokens in memory. Then all are forgotten.
	mostTokens = 1000
	// restAfterFailure is how long the upstream is not asked for what is here, after it failed; mostRest bounds what
	// it asks for itself, with Retry-After.
	restAfterFailure, mostRest = 10 * time.Second, 5 * time.Minute
)

// upstream is the client of an upstream registry. It is safe for concurrent use.
type upstream struct {
	spec
	opts    *Options
	counted *prometheus.CounterVec
	http    *http.Client
	slots   chan struct{}

	mu     sync.Mutex
	tokens map[string]token // headers Authorization by scope; guarded by mu
	rest   time.Time        // until when it counts as down; guarded by mu
	report                  // guarded by mu
}

type token struct {
	header string
	until  time.Time
}

func newUpstream(s spec, o *Options, counted *prometheus.CounterVec) *upstream {
	u := &upstream{spec: s, opts: o, counted: counted, slots: make(chan struct{}, mostFetches), tokens: map[string]token{}}
	proxy, _ := http.ProxyFromEnvironment(&http.Request{URL: s.base})
	near := loopback(s.base.Hostname()) || proxy != nil
	// What the upstream redirects to must not be a service that only this machine reaches.
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		ip := to.Addr().Unmap()
		if err != nil || ip.IsLinkLocalUnicast() || (ip.IsLoopback() || ip.IsUnspecified()) && !near {
			return fmt.Errorf("%s is not an address of an upstream", address)
		}
		return nil
	}}
	u.http = &http.Client{CheckRedirect: checkRedirect, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: mostAnswer, DisableCompression: true, ForceAttemptHTTP2: true,
	}}
	return u
}

// checkRedirect follows redirects to http and https, not from https to http, and sends no credentials to another host.
func checkRedirect(next *http.Request, via []*http.Request) error {
	first := via[0].URL
	if len(via) > 5 || next.URL.Scheme != "https" && (next.URL.Scheme != "http" || first.Scheme == "https") {
		return errors.New("the redirect is not followed")
	}
	if next.URL.Host != first.Host {
		next.Header.Del("Authorization")
	}
	return nil
}

// String is part of registry.Upstream.
func (u *upstream) String() string { return u.base.String() }

// Shadowed is part of registry.Upstream.
func (u *upstream) Shadowed() bool { return u.shadowed }

// Fresh is part of registry.Upstream.
func (u *upstream) Fresh() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.opts.Now().Before(u.rest) {
		return math.MaxInt64
	}
	return u.fresh
}

// Ask is part of registry.Upstream.
func (u *upstream) Ask(ctx context.Context, method string, to registry.Request) (*http.Response, error) {
	_, inside, _ := strings.Cut(to.Repository, "/")
	to.Repository = strings.TrimPrefix(u.base.Path+"/"+inside, "/")
	answer, err := u.send(ctx, method, to)
	if err != nil {
		return nil, err
	}
	unknown := registry.ManifestUnknown
	if to.Kind == registry.BlobGet || to.Kind == registry.BlobHead {
		unknown = registry.BlobUnknown
	}
	switch code := answer.StatusCode; {
	case code == http.StatusOK:
		return answer, nil
	case code == http.StatusNotFound:
		err = &registry.Error{Code: unknown, Message: fmt.Sprintf("the upstream %s has no such content", u), Final: true}
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		err = &registry.Error{Code: registry.Denied, Message: fmt.Sprintf("the upstream %s denies it (status %d)", u, code), Final: true}
	case code == http.StatusTooManyRequests:
		err = &registry.Error{Code: registry.TooManyRequests, Message: fmt.Sprintf("the upstream %s answers 429; try again later", u)}
	default:
		err = &registry.Error{Code: registry.Unavailable, Message: fmt.Sprintf("the upstream %s answers %d; try again later", u, code)}
	}
	answer.Body.Close()
	return nil, err
}

// slot waits for a free slot and takes it.
func (u *upstream) slot(ctx context.Context, abandoned <-chan struct{}) error {
	select {
	case u.slots <- struct{}{}: // also for a fetch that has had one before and goes on alone
		return nil
	default:
	}
	select {
	case u.slots <- struct{}{}:
		return nil
	case <-abandoned:
		return registry.ErrAbandoned
	case <-ctx.Done():
		return &registry.Error{Code: registry.TooManyRequests, Message: fmt.Sprintf("as many fetches from %s are under way as may be; try again later", u)}
	}
}

// send sends a request, within the limits of the upstream, and logs in if the upstream asks for it.
func (u *upstream) send(ctx context.Context, method string, to registry.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(ctx)
	body := &patientBody{u: u, cancel: cancel, timer: time.AfterFunc(u.opts.Patience, cancel)}
	if err := u.slot(ctx, to.Abandoned); err != nil {
		cancel()
		return nil, err
	}
	scope := "repository:" + to.Repository + ":pull"
	for try := 1; ; try++ {
		answer, err := u.once(ctx, method, to, scope)
		if err == nil && answer.StatusCode == http.StatusUnauthorized && try == 1 {
			answer.Body.Close()
			if err = u.login(ctx, answer.Header.Values("WWW-Authenticate"), scope); err == nil {
				continue
			}
		}
		u.note(answer, err)
		if err != nil {
			_ = body.Close() // there is no answer to close
			var refused *registry.Error
			if !errors.As(err, &refused) {
				refused = &registry.Error{Code: registry.Unavailable, Message: fmt.Sprintf("the upstream %s does not answer; try again later", u)}
				u.opts.Logger.Warn("registry cache: no answer", "cache", u.name, "error", err)
			}
			return nil, refused
		}
		body.timer.Reset(u.opts.Patience)
		body.ReadCloser, answer.Body = answer.Body, body
		return answer, nil
	}
}

func (u *upstream) once(ctx context.Context, method string, to registry.Request, scope string) (*http.Response, error) {
	at := *u.base
	at.Path = to.Path()
	req, err := http.NewRequestWithContext(ctx, method, at.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "exeunt-cache")
	if to.Kind == registry.ManifestGet || to.Kind == registry.ManifestHead {
		req.Header.Set("Accept", strings.Join(registry.ManifestTypes, ", "))
	}
	u.mu.Lock()
	known := u.tokens[scope]
	u.mu.Unlock()
	if u.opts.Now().Before(known.until) {
		req.Header.Set("Authorization", known.header)
	}
	return u.do(req)
}

// do sends a request. Its errors have no URL: that may be signed.
func (u *upstream) do(req *http.Request) (*http.Response, error) {
	answer, err := u.http.Do(req)
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return answer, err
}

// note remembers whether the upstream answers.
func (u *upstream) note(answer *http.Response, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.opts.Now()
	var refused *registry.Error
	switch {
	case errors.As(err, &refused):
		u.reach("")
	case err != nil:
		u.rest = now.Add(restAfterFailure)
		u.reach(err.Error())
	case answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode >= 500:
		wait, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		u.rest = now.Add(min(max(restAfterFailure, time.Duration(wait)*time.Second), mostRest))
		u.reach("status " + strconv.Itoa(answer.StatusCode))
	default:
		u.rest = time.Time{}
		u.reach("")
	}
}

// parameters matches those of a challenge.
var parameters = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)

// login gets the header Authorization for a scope, by the challenges of the upstream: Basic, or Bearer with the
// token service of distribution-spec.
func (u *upstream) login(ctx context.Context, challenges []string, scope string) error {
	refuse := func(why string) error {
		return &registry.Error{Code: registry.Denied, Message: fmt.Sprintf("no login to the upstream %s: %s", u, why)}
	}
	user, password, err := u.credentials(ctx)
	if err != nil {
		return refuse(err.Error())
	}
	for _, challenge := range challenges {
		scheme, rest, _ := strings.Cut(challenge, " ")
		switch strings.ToLower(scheme) {
		case "basic":
			if user == "" {
				return refuse("its RegistryCache has no credentials")
			}
			u.remember(scope, "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":"+password)), 5*time.Minute)
			return nil
		case "bearer":
			given := map[string]string{}
			for _, p := range parameters.FindAllStringSubmatch(rest, -1) {
				given[p[1]] = p[2]
			}
			realm, err := url.Parse(given["realm"])
			if err != nil || realm.Host == "" || realm.Scheme != "https" && realm.Scheme != u.base.Scheme {
				return refuse("its token service has no URL that may be asked")
			}
			query := realm.Query()
			query.Set("service", given["service"])
			query.Set("scope", scope)
			realm.RawQuery = query.Encode()
			return u.fetchToken(ctx, realm.String(), user, password, scope, refuse)
		}
	}
	return refuse("it asks for a login that is neither Basic nor Bearer")
}

func (u *upstream) fetchToken(ctx context.Context, realm, user, password, scope string, refuse func(string) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, realm, nil)
	if err != nil {
		return err
	}
	if user != "" {
		req.SetBasicAuth(user, password)
	}
	answer, err := u.do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode >= 500:
		return fmt.Errorf("its token service answers %d", answer.StatusCode)
	case answer.StatusCode != http.StatusOK:
		return refuse("its token service answers " + strconv.Itoa(answer.StatusCode))
	}
	var got struct {
		Token   string `json:"token"`
		Access  string `json:"access_token"`
		Expires int64  `json:"expires_in"`
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, mostAnswer)).Decode(&got); err != nil || got.Token+got.Access == "" {
		return refuse("its token service sends no token")
	}
	lasts := min(max(time.Duration(got.Expires)*time.Second, time.Minute), time.Hour)
	u.remember(scope, "Bearer "+cmp.Or(got.Token, got.Access), lasts-10*time.Second)
	return nil
}

func (u *upstream) remember(scope, header string, lasts time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.tokens) >= mostTokens {
		clear(u.tokens)
	}
	u.tokens[scope] = token{header, u.opts.Now().Add(lasts)}
}

// credentials reads what the Secret has for the host of the upstream, and for no other: so no RegistryCache can send
// a password to a host that the Secret does not name.
func (u *upstream) credentials(ctx context.Context) (user, password string, err error) {
	if u.secret.Name == "" {
		return "", "", nil
	}
	data, err := u.opts.Secret(ctx, u.secret.Namespace, u.secret.Name)
	if err != nil {
		return "", "", fmt.Errorf("read Secret %s/%s: %w", u.secret.Namespace, u.secret.Name, err)
	}
	var config struct {
		Auths map[string]struct{ Username, Password, Auth string }
	}
	if err := json.Unmarshal(data[".dockerconfigjson"], &config); err != nil {
		return "", "", fmt.Errorf("read Secret %s/%s: .dockerconfigjson cannot be parsed", u.secret.Namespace, u.secret.Name)
	}
	for name, entry := range config.Auths {
		_, host, found := strings.Cut(name, "://")
		if !found {
			host = name
		}
		host, _, _ = strings.Cut(host, "/")
		if host == "index.docker.io" || host == "docker.io" {
			host = "registry-1.docker.io" // as the tools of Docker Hub name it
		}
		if host != u.base.Host {
			continue
		}
		if text, err := base64.StdEncoding.DecodeString(entry.Auth); err == nil && entry.Username == "" {
			entry.Username, entry.Password, _ = strings.Cut(string(text), ":")
		}
		return entry.Username, entry.Password, nil
	}
	return "", "", fmt.Errorf("Secret %s/%s has no entry for %s", u.secret.Namespace, u.secret.Name, u.base.Host)
}

// patientBody is the body of an answer. It ends if progress bytes take longer than Options.Patience.
type patientBody struct {
	io.ReadCloser // nil: there was no answer
	u             *upstream
	cancel        context.CancelFunc
	timer         *time.Timer
	n             int
	once          sync.Once
}

// Read is part of io.Reader.
func (b *patientBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.n += n; b.n >= progress {
		b.n = 0
		b.timer.Reset(b.u.opts.Patience)
	}
	return n, err
}

// Close gives the slot back.
func (b *patientBody) Close() (err error) {
	b.once.Do(func() {
		b.timer.Stop()
		if b.ReadCloser != nil {
			err = b.ReadCloser.Close()
		}
		b.cancel()
		<-b.u.slots
	})
	return err
}
