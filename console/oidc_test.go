package console

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// provider is an OpenID Connect provider. Its tokens are not signed: the world's Token
// decides who they name.
type provider struct {
	*httptest.Server
	challenge, nonce string // of the browser that is here
	answer           string // of the token endpoint, instead of a token
}

func newProvider(t *testing.T) *provider {
	p := &provider{}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"authorization_endpoint":%q,"token_endpoint":%q,"jwks_uri":%q}`, p.URL, p.URL+"/auth", p.URL+"/token", p.URL+"/keys")
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, req *http.Request) {
		sum := sha256.Sum256([]byte(req.FormValue("code_verifier")))
		_, secret, _ := req.BasicAuth()
		w.Header().Set("Content-Type", "application/json")
		if req.FormValue("code") != "right" || base64.RawURLEncoding.EncodeToString(sum[:]) != p.challenge || secret != "hush" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":"invalid_grant"}`)
			return
		}
		if p.answer != "" {
			fmt.Fprint(w, p.answer)
			return
		}
		claims, _ := json.Marshal(map[string]string{"nonce": p.nonce})
		_ = json.NewEncoder(w).Encode(map[string]string{"access_token": "a", "token_type": "Bearer", "id_token": "right." + base64.RawURLEncoding.EncodeToString(claims) + ".signature"})
	})
	p.Server = httptest.NewTLSServer(mux)
	t.Cleanup(p.Close)
	return p
}

// newOIDCWorld is a world whose users sign in at a provider.
func newOIDCWorld(t *testing.T) (world, *provider) {
	p := newProvider(t)
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite))
	ca, secret := filepath.Join(t.TempDir(), "ca.pem"), filepath.Join(t.TempDir(), "secret")
	for file, content := range map[string][]byte{ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}), secret: []byte("hush\n")} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if w.OIDC, err = access.NewBrowserSignIn(access.OIDCOptions{Issuer: p.URL, ClientID: "exeunt", CAFile: ca, ClientSecretFile: secret}); err != nil {
		t.Fatal(err)
	}
	return w, p
}

// start goes to the provider, and returns the state and the attempt's cookie.
func (p *provider) start(w world) (state string, attempt *http.Cookie) {
	w.t.Helper()
	answer := w.ask("GET", "/console/oidc", "", "")
	to, err := url.Parse(answer.Header().Get("Location"))
	cookies := answer.Result().Cookies()
	if err != nil || answer.Code != http.StatusSeeOther || !strings.HasPrefix(to.String(), p.URL+"/auth?") || len(cookies) != 1 {
		w.t.Fatalf("start: %d %v %s", answer.Code, answer.Header(), answer.Body)
	}
	if c := cookies[0]; !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode {
		w.t.Errorf("the attempt's cookie is %+v", c)
	}
	query := to.Query()
	p.challenge, p.nonce = query.Get("code_challenge"), query.Get("nonce")
	if query.Get("redirect_uri") != "https://example.com/console/oidc/callback" || query.Get("code_challenge_method") != "S256" {
		w.t.Errorf("the provider is asked %v", query)
	}
	return query.Get("state"), cookies[0]
}

// callback comes back from the provider's page.
func (w world) callback(query string, attempt *http.Cookie) *httptest.ResponseRecorder {
	req := httptest.NewRequest("GET", "/console/oidc/callback?"+query, nil)
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	if attempt != nil {
		req.AddCookie(attempt)
	}
	out := httptest.NewRecorder()
	w.ServeHTTP(out, req)
	return out
}

// TestOIDC: a browser that comes back from the provider has a session, and its attempt is
// used up.
func TestOIDC(t *testing.T) {
	w, p := newOIDCWorld(t)
	if answer := w.ask("GET", "/console/signin", "", ""); !strings.Contains(answer.Body.String(), `"oidc":true`) {
		t.Errorf("the page learns %s", answer.Body)
	}
	state, attempt := p.start(w)
	answer := w.callback("code=right&state="+state, attempt)
	session := ""
	for _, c := range answer.Result().Cookies() {
		switch {
		case c.Name == attemptCookie && c.MaxAge >= 0:
			t.Errorf("the attempt stays: %+v", c)
		case c.Name == cookieName && c.SameSite == http.SameSiteStrictMode && c.HttpOnly:
			session = c.Value
		}
	}
	if answer.Code != http.StatusSeeOther || answer.Header().Get("Location") != Path {
		t.Errorf("callback: %d %v", answer.Code, answer.Header())
	}
	if answer := w.ask("GET", "/console/session", "", session); !strings.Contains(answer.Body.String(), "alice") {
		t.Errorf("the session is %s", answer.Body)
	}
}

// TestOIDCRefusals: no session begins for another browser's attempt, for a code that the
// provider does not know, or for a token of another attempt.
func TestOIDCRefusals(t *testing.T) {
	w, p := newOIDCWorld(t)
	_, foreign := p.start(w)
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"nonce":"another"}`))
	for name, c := range map[string]struct {
		query   func(state string) string
		attempt *http.Cookie // nil means the browser's own
		answer  string       // of the provider
		reason  string
	}{
		"another browser's attempt": {func(state string) string { return "code=right&state=" + state }, foreign, "", failedExpired},
		"no attempt":                {func(state string) string { return "code=right&state=" + state }, &http.Cookie{Name: "x"}, "", failedExpired},
		"no attempt and no state":   {func(string) string { return "code=right&state=" }, &http.Cookie{Name: "x"}, "", failedExpired},
		"an empty state":            {func(string) string { return "code=right&state=" }, &http.Cookie{Name: attemptCookie, Value: "..x"}, "", failedExpired},
		"refused by the provider":   {func(state string) string { return "error=access_denied&state=" + state }, nil, "", failedDenied},
		"an unknown code":           {func(state string) string { return "code=wrong&state=" + state }, nil, "", failedProvider},
		"no ID token":               {func(state string) string { return "code=right&state=" + state }, nil, `{"access_token":"a"}`, failedProvider},
		"a token of another attempt": {func(state string) string { return "code=right&state=" + state }, nil,
			`{"access_token":"a","id_token":"right.` + claims + `.s"}`, failedProvider},
	} {
		state, attempt := p.start(w)
		if c.attempt != nil {
			attempt = c.attempt
		}
		p.answer = c.answer
		answer := w.callback(c.query(state), attempt)
		p.answer = ""
		if got := answer.Header().Get("Location"); got != Path+"#/signin-failed/"+c.reason {
			t.Errorf("%s: sent to %q, want the reason %q", name, got, c.reason)
		}
		for _, cookie := range answer.Result().Cookies() {
			if cookie.Name == cookieName {
				t.Errorf("%s: got a session", name)
			}
		}
	}
	if answer := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite)).ask("GET", "/console/oidc", "", ""); answer.Code != http.StatusNotFound {
		t.Errorf("without a provider: %d", answer.Code)
	}
}
