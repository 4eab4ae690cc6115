package console

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"html"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// provider is an OpenID Connect provider with one user, who signs in by a click. Its page
// is at localhost, for browsers another site than 127.0.0.1.
type provider struct {
	*httptest.Server
	key              *rsa.PrivateKey
	nonce, challenge string // of the browser that is here
}

func newProvider(t *testing.T) *provider {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		page := strings.Replace(p.URL, "127.0.0.1", "localhost", 1)
		fmt.Fprintf(w, `{"issuer":%q,"authorization_endpoint":%q,"token_endpoint":%q,"jwks_uri":%q}`, p.URL, page+"/auth", p.URL+"/token", p.URL+"/keys")
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"keys":[{"kty":"RSA","use":"sig","alg":"RS256","kid":"1","n":%q,"e":%q}]}`,
			encode(key.N.Bytes()), encode(big.NewInt(int64(key.E)).Bytes()))
	})
	mux.HandleFunc("/auth", p.ask)
	mux.HandleFunc("/token", p.token)
	p.Server = httptest.NewTLSServer(mux)
	t.Cleanup(p.Close)
	return p
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// ask shows the page on which the user agrees.
func (p *provider) ask(w http.ResponseWriter, req *http.Request) {
	query := req.URL.Query()
	p.nonce, p.challenge = query.Get("nonce"), query.Get("code_challenge")
	back := query.Get("redirect_uri") + "?" + url.Values{"code": {"once"}, "state": {query.Get("state")}}.Encode()
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprintf(w, `<!doctype html><link rel="icon" href="data:,"><a href="%s">I am Jane</a>`, html.EscapeString(back))
}

// token exchanges the code for an ID token.
func (p *provider) token(w http.ResponseWriter, req *http.Request) {
	sum := sha256.Sum256([]byte(req.FormValue("code_verifier")))
	if req.FormValue("code") != "once" || encode(sum[:]) != p.challenge {
		http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
		return
	}
	claims, err := json.Marshal(map[string]any{
		"iss": p.URL, "aud": "console", "sub": "1", "email": "jane@example.com", "nonce": p.nonce, "groups": []string{"ops"},
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	})
	if err != nil {
		panic(err)
	}
	text := encode([]byte(`{"alg":"RS256","kid":"1"}`)) + "." + encode(claims)
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, p.key, crypto.SHA256, digest[:])
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"access_token":"a","token_type":"Bearer","id_token":%q}`, text+"."+encode(signature))
}

// flags make a server trust the provider.
func (p *provider) flags(t *testing.T) []string {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--oidc-issuer-url", p.URL, "--oidc-client-id", "console", "--oidc-ca-file", ca,
		"--oidc-username-claim", "email", "--oidc-username-prefix", "-", "--oidc-groups-claim", "groups", "--oidc-groups-prefix", "sso:"}
}
