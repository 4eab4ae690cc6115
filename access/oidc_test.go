package access

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gopkg.in/go-jose/go-jose.v2"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// provider is an OpenID Connect provider: its discovery document and its keys.
type provider struct {
	*httptest.Server
	key *rsa.PrivateKey
}

func newProvider(t *testing.T) *provider {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q,"token_endpoint":%q}`, p.URL, p.URL+"/keys", p.URL+"/token")
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "1", Algorithm: "RS256", Use: "sig"}}})
	})
	p.Server = httptest.NewTLSServer(mux)
	t.Cleanup(p.Close)
	return p
}

// sign signs claims as the provider, unless a change says otherwise.
func sign(t *testing.T, key jose.SigningKey, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestOIDC: an ID token of the provider names its user and groups. One for another client,
// of another time, of another issuer or with another signature does not.
func TestOIDC(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := OpenTokens(t.Context(), TokenOptions{OIDC: OIDCOptions{
		Issuer: p.URL, ClientID: "exeunt", UsernameClaim: "email", UsernamePrefix: "-", GroupsClaim: "groups", GroupsPrefix: "sso:", CAFile: ca,
	}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	tokens := all[0]
	claims := func(change map[string]any) map[string]any {
		c := map[string]any{
			"iss": p.URL, "aud": "exeunt", "sub": "1", "email": "jane@example.com", "groups": []string{"ops"},
			"iat": time.Now().Add(-time.Minute).Unix(), "exp": time.Now().Add(time.Hour).Unix(),
		}
		for k, v := range change {
			c[k] = v
		}
		return c
	}
	ours := jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: p.key, KeyID: "1"}}
	good := sign(t, ours, claims(nil))
	response := awaitProvider(t, tokens, good)
	if name, groups := response.User.GetName(), strings.Join(response.User.GetGroups(), " "); name != "jane@example.com" || groups != "sso:ops" {
		t.Errorf("the token names %q in %q", name, groups)
	}
	own := sign(t, ours, claims(map[string]any{"groups": []string{"system:masters"}}))
	if groups := awaitProvider(t, tokens, own).User.GetGroups(); groups[0] != "sso:system:masters" {
		t.Errorf("a group of the provider became %q", groups)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	header, payload, _ := strings.Cut(good, ".")
	payload, _, _ = strings.Cut(payload, ".")
	for name, token := range map[string]string{
		"another audience":                  sign(t, ours, claims(map[string]any{"aud": "someone-else"})),
		"expired":                           sign(t, ours, claims(map[string]any{"exp": time.Now().Add(-time.Hour).Unix()})),
		"not valid yet":                     sign(t, ours, claims(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()})),
		"another issuer":                    sign(t, ours, claims(map[string]any{"iss": "https://evil.example.com"})),
		"email not verified":                sign(t, ours, claims(map[string]any{"email_verified": false})),
		"no name":                           sign(t, ours, claims(map[string]any{"email": ""})),
		"a name of the server's":            sign(t, ours, claims(map[string]any{"email": "system:admin"})),
		"another key":                       sign(t, jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: other, KeyID: "1"}}, claims(nil)),
		"the public key as a shared secret": sign(t, jose.SigningKey{Algorithm: jose.HS256, Key: p.key.N.Bytes()}, claims(nil)),
		"no signature":                      header + "." + payload + ".",
		"algorithm none":                    segment(`{"alg":"none","kid":"1"}`) + "." + payload + ".",
		"another payload":                   header + "." + segment(strings.Replace(unsegment(t, payload), "jane@", "root@", 1)) + good[strings.LastIndex(good, "."):],
		"its key in the header":             signWith(t, other, "2", &jose.SignerOptions{EmbedJWK: true}, claims(nil)),
		"its key at an address":             signWith(t, other, "2", (&jose.SignerOptions{}).WithHeader("jku", "https://evil.example.com/keys"), claims(nil)),
		"an unknown key id":                 signWith(t, p.key, "2", &jose.SignerOptions{}, claims(nil)),
		"a critical header":                 signWith(t, p.key, "1", (&jose.SignerOptions{}).WithCritical("exp"), claims(nil)),
		"no audience":                       sign(t, ours, without(claims(nil), "aud")),
		"several other audiences":           sign(t, ours, claims(map[string]any{"aud": []string{"a", "b", "exeunt2"}})),
		"no expiry":                         sign(t, ours, without(claims(nil), "exp")),
		"an expiry that is a text":          sign(t, ours, claims(map[string]any{"exp": "never"})),
		"no issuer":                         sign(t, ours, without(claims(nil), "iss")),
		"an issuer that begins as ours":     sign(t, ours, claims(map[string]any{"iss": p.URL + "/"})),
		"a name that is a list":             sign(t, ours, claims(map[string]any{"email": []string{"jane@example.com"}})),
		"groups that are objects":           sign(t, ours, claims(map[string]any{"groups": []any{map[string]any{"name": "ops"}}})),
		"two tokens in one":                 good + "." + good,
		"a general serialization":           `{"payload":"` + payload + `","signatures":[{"header":{"alg":"none"},"signature":""}]}`,
		"not a token":                       "a.b.c",
	} {
		if response, ok, _ := tokens.AuthenticateToken(t.Context(), token); ok {
			t.Errorf("%s: accepted as %s", name, response.User.GetName())
		}
	}
}

// TestOIDCWithoutPrefixes: without prefixes a provider still cannot give the names and
// groups of the server, which the default roles name.
func TestOIDCWithoutPrefixes(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(prefix string) []authenticator.Token {
		all, err := OpenTokens(t.Context(), TokenOptions{OIDC: OIDCOptions{
			Issuer: p.URL, ClientID: "exeunt", UsernamePrefix: prefix, GroupsClaim: "groups", GroupsPrefix: "-", CAFile: ca,
		}}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	all := open("-")
	token := func(name string, groups any) string {
		return sign(t, jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: p.key, KeyID: "1"}}, map[string]any{
			"iss": p.URL, "aud": "exeunt", "sub": name, "groups": groups, "exp": time.Now().Add(time.Hour).Unix(),
		})
	}
	if name := awaitProvider(t, open("")[0], token("jane", nil)).User.GetName(); name != p.URL+"#jane" {
		t.Errorf("by default, jane of the provider is %q", name)
	}
	if groups := awaitProvider(t, all[0], token("jane", []string{"ops"})).User.GetGroups(); !slices.Equal(groups, []string{"ops"}) {
		t.Errorf("the groups are %q", groups)
	}
	for _, name := range []string{"", "system:admin", "system:apiserver", "system:exeunt:broker", "system:serviceaccount:kube-system:default", "system:node:n"} {
		if response, ok, _ := all[0].AuthenticateToken(t.Context(), token(name, []string{})); ok {
			t.Errorf("the name %q: accepted as %v", name, response.User)
		}
	}
	for _, groups := range []any{"system:masters", []string{"ops", "system:masters"}, []string{"system:serviceaccounts"}, []string{"system:nodes"}, []string{"system:unauthenticated"}, []string{""}, []string{"ops", ""}} {
		if response, ok, _ := all[0].AuthenticateToken(t.Context(), token("jane", groups)); ok {
			t.Errorf("the groups %q: accepted as %v", groups, response.User)
		}
	}
}

func segment(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func unsegment(t *testing.T, text string) string {
	t.Helper()
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// signWith signs with a key that calls itself id, and with further headers.
func signWith(t *testing.T, key *rsa.PrivateKey, id string, o *jose.SignerOptions, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: id}}, o)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func without(claims map[string]any, name string) map[string]any {
	delete(claims, name)
	return claims
}

// awaitProvider returns the first answer: the library reads the provider's keys beside
// the first requests.
func awaitProvider(t *testing.T, tokens authenticator.Token, token string) *authenticator.Response {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		response, ok, err := tokens.AuthenticateToken(t.Context(), token)
		if ok {
			return response
		}
		if time.Now().After(end) {
			t.Fatalf("the token is not accepted: %v", err)
		}
	}
}

func TestOIDCNeedsAClient(t *testing.T) {
	t.Parallel()
	_, err := OpenTokens(t.Context(), TokenOptions{OIDC: OIDCOptions{Issuer: "https://example.com"}}, slog.Default())
	if err == nil || !strings.Contains(err.Error(), "--oidc-client-id") {
		t.Errorf("got %v", err)
	}
}

// TestHostileProvider: of a provider whose answers do not end the server reads a bounded part,
// and refuses tokens and browsers.
func TestHostileProvider(t *testing.T) {
	t.Parallel()
	const most = 64 << 20
	for _, endless := range []string{"/.well-known/openid-configuration", "/keys", "/token"} {
		t.Run(endless, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t)
			var sent, asked atomic.Int64
			honest := p.Config.Handler
			p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.URL.Path != endless {
					honest.ServeHTTP(w, req)
					return
				}
				asked.Add(1)
				part := []byte(strings.Repeat(" ", 1<<20))
				for sent.Load() < 8*most {
					n, err := w.Write(part)
					if sent.Add(int64(n)); err != nil {
						return
					}
				}
			})
			ca := filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}), 0o600); err != nil {
				t.Fatal(err)
			}
			options := OIDCOptions{Issuer: p.URL, ClientID: "exeunt", CAFile: ca}
			browsers, err := NewBrowserSignIn(options)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := browsers.Token(t.Context(), Attempt{Redirect: "https://here.example"}, "code"); err == nil {
				t.Error("a browser got a token")
			}
			all, err := OpenTokens(t.Context(), TokenOptions{OIDC: options}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			token := signWith(t, p.key, "1", nil, map[string]any{"iss": p.URL, "aud": "exeunt", "sub": "1", "exp": time.Now().Add(time.Hour).Unix()})
			for asked.Load() < 2 && endless != "/token" {
				if _, ok, err := all[0].AuthenticateToken(t.Context(), token); ok || err == nil {
					t.Fatalf("the token is accepted: %v, %v", ok, err)
				}
				time.Sleep(10 * time.Millisecond)
			}
			if sent.Load() > most {
				t.Errorf("%d bytes were sent in answer to %d questions, want %d at most", sent.Load(), asked.Load(), most)
			}
		})
	}
}
