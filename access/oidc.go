package access

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc"
	"golang.org/x/oauth2"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	apioidc "k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"

	"github.com/exeunt/exeunt/internal/inflight"
)

// TokenOptions are the sources of tokens that an administrator configures by flags.
type TokenOptions struct {
	File string // of hashed tokens; empty if there is none
	OIDC OIDCOptions
	// Config is the file of an AuthenticationConfiguration, instead of OIDC; empty if there is none.
	Config string
	// Own is the issuer of this server's own tokens: no other may have its name.
	Own string
}

// OIDCOptions name an OpenID Connect provider whose ID tokens are accepted.
type OIDCOptions struct {
	Issuer   string // URL; empty if there is none
	ClientID string // the audience of the tokens
	// UsernameClaim is the claim with the user's name (default sub), and GroupsClaim the
	// one with the groups (default none). The prefixes keep them apart from other users:
	// by default the name has the issuer before it.
	UsernameClaim, UsernamePrefix string
	GroupsClaim, GroupsPrefix     string
	CAFile                        string // of the provider; empty means the system's
	// ClientSecretFile and Scopes are for BrowserSignIn. A public client has no secret.
	ClientSecretFile string
	Scopes           []string // beside openid, for instance email and groups
}

// noPrefix as a prefix means none.
const noPrefix = "-"

// OpenTokens returns the authenticators of the options. They end with the context.
func OpenTokens(ctx context.Context, o TokenOptions, log *slog.Logger) (all []authenticator.Token, err error) {
	if o.File != "" {
		f, err := openTokenFile(o.File, log)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	if o.Config != "" {
		if o.OIDC.Issuer != "" {
			return nil, fmt.Errorf("--authentication-config: it takes the place of --oidc-issuer-url: use one of them")
		}
		issuers, err := configured(ctx, o.Config, o.Own)
		if err != nil {
			return nil, fmt.Errorf("--authentication-config %s: %w", o.Config, err)
		}
		return append(all, issuers...), nil
	}
	if o.OIDC.Issuer == "" {
		return all, nil
	}
	provider, err := openOIDC(ctx, o.OIDC)
	if err != nil {
		return nil, fmt.Errorf("--oidc-issuer-url: %w", err)
	}
	return append(all, provider), nil
}

func openOIDC(ctx context.Context, o OIDCOptions) (authenticator.Token, error) {
	if o.ClientID == "" {
		return nil, fmt.Errorf("--oidc-client-id is missing: it is the audience of the tokens")
	}
	prefix := o.UsernamePrefix
	prefix = cmp.Or(prefix, o.Issuer+"#")
	o.UsernameClaim = cmp.Or(o.UsernameClaim, "sub")
	mappings := apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: o.UsernameClaim, Prefix: prefixOf(prefix)}}
	if o.GroupsClaim != "" {
		mappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: o.GroupsClaim, Prefix: prefixOf(o.GroupsPrefix)}
	}
	client, err := o.client()
	if err != nil {
		return nil, err
	}
	return newIssuer(ctx, apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{URL: o.Issuer, Audiences: []string{o.ClientID}}, ClaimMappings: mappings,
	}, client)
}

// newIssuer returns the library's authenticator for the tokens of a provider.
func newIssuer(ctx context.Context, jwt apiserver.JWTAuthenticator, client *http.Client) (authenticator.Token, error) {
	tokens, err := apioidc.New(ctx, apioidc.Options{
		JWTAuthenticator: jwt, Client: client,
		SupportedSigningAlgs: []string{"RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"},
	})
	return outsiders{tokens}, err
}

// outsiders refuses what a provider must not decide: a user without a name, and names
// and groups of this server's own ("system:masters" may do everything).
type outsiders struct{ authenticator.Token }

func (o outsiders) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	response, ok, err := o.Token.AuthenticateToken(ctx, token)
	if err != nil || !ok {
		return nil, false, err
	}
	for _, name := range append([]string{response.User.GetName()}, response.User.GetGroups()...) {
		if name == "" || strings.HasPrefix(name, "system:") {
			return nil, false, fmt.Errorf("the provider's token names %q: a name must not be empty or begin with %q", name, "system:")
		}
	}
	return response, true, nil
}

func prefixOf(text string) *string {
	if text == noPrefix {
		text = ""
	}
	return &text
}

const (
	// providerWait bounds one question to the provider.
	providerWait = 10 * time.Second
	// providerAnswer bounds its answers, in bytes. Keys with certificates are the largest.
	providerAnswer = 1 << 20
	// providerQuestions bounds how many questions are open at the same time: clients that
	// are not signed in cause them.
	providerQuestions = 8
)

// BrowserSignIn signs browsers in at an OpenID Connect provider, by the authorization code
// flow with PKCE. It gets ID tokens; who they name is for an authenticator to say.
type BrowserSignIn struct {
	options OIDCOptions
	secret  string
	client  *http.Client
	slots   chan struct{}

	mu       sync.Mutex
	endpoint *oauth2.Endpoint // guarded by mu; nil if the provider was not asked yet
}

// NewBrowserSignIn reads the files of the options. It does not ask the provider, which may
// be started later than this server.
func NewBrowserSignIn(o OIDCOptions) (*BrowserSignIn, error) {
	client, err := o.client()
	if err != nil {
		return nil, fmt.Errorf("--oidc-ca-file: %w", err)
	}
	s := &BrowserSignIn{options: o, client: client, slots: make(chan struct{}, providerQuestions)}
	if o.ClientSecretFile != "" {
		secret, err := os.ReadFile(o.ClientSecretFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-client-secret-file: %w", err)
		}
		s.secret = strings.TrimSpace(string(secret))
	}
	return s, nil
}

// client returns a client that asks the provider, and reads a bounded part of its answers.
func (o OIDCOptions) client() (*http.Client, error) {
	if o.CAFile == "" {
		return providerClient(nil)
	}
	pem, err := os.ReadFile(o.CAFile)
	if err != nil {
		return nil, err
	}
	client, err := providerClient(pem)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.CAFile, err)
	}
	return client, nil
}

// providerClient trusts the given authorities, or without any those of the system.
func providerClient(authorities []byte) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if len(authorities) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(authorities) {
			return nil, errors.New("no certificate in it")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Timeout: providerWait, Transport: inflight.Answers{RoundTripper: transport, Most: providerAnswer}}, nil
}

// Attempt is what a browser keeps while its user is at the provider.
type Attempt struct {
	Redirect string // where the provider sends the browser back to
	State    string // the provider returns it
	Nonce    string // the ID token has it
	Verifier string // proves to the provider that both requests came from this server
}

// URL returns where the browser goes to sign in.
func (s *BrowserSignIn) URL(ctx context.Context, a Attempt) (string, error) {
	config, err := s.config(ctx, a.Redirect)
	if err != nil {
		return "", err
	}
	return config.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), nil
}

// Token exchanges the code that the browser brought back for an ID token.
func (s *BrowserSignIn) Token(ctx context.Context, a Attempt, code string) (string, error) {
	config, err := s.config(ctx, a.Redirect)
	if err != nil {
		return "", err
	}
	if err := s.enter(ctx); err != nil {
		return "", err
	}
	defer s.leave()
	token, err := config.Exchange(context.WithValue(ctx, oauth2.HTTPClient, s.client), code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return "", fmt.Errorf("the provider does not accept the code: %w", err)
	}
	id, ok := token.Extra("id_token").(string)
	if !ok {
		return "", errors.New("the provider's answer has no id_token: the client must have the scope openid")
	}
	return id, nil
}

// config asks the provider for its addresses, until it has answered once.
func (s *BrowserSignIn) config(ctx context.Context, redirect string) (*oauth2.Config, error) {
	s.mu.Lock()
	endpoint := s.endpoint
	s.mu.Unlock()
	if endpoint == nil {
		if err := s.enter(ctx); err != nil {
			return nil, err
		}
		defer s.leave()
		provider, err := oidc.NewProvider(oidc.ClientContext(ctx, s.client), s.options.Issuer)
		if err != nil {
			return nil, fmt.Errorf("ask the provider %s for its addresses: %w", s.options.Issuer, err)
		}
		found := provider.Endpoint()
		endpoint = &found
		s.mu.Lock()
		s.endpoint = endpoint
		s.mu.Unlock()
	}
	return &oauth2.Config{
		ClientID: s.options.ClientID, ClientSecret: s.secret, Endpoint: *endpoint, RedirectURL: redirect,
		Scopes: append([]string{oidc.ScopeOpenID}, s.options.Scopes...),
	}, nil
}

func (s *BrowserSignIn) enter(ctx context.Context) error {
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(providerWait):
		return errors.New("too many browsers sign in at the same time")
	}
}

func (s *BrowserSignIn) leave() { <-s.slots }
