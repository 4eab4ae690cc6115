package console

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/exeunt/exeunt/access"
)

const (
	oidcPath     = Path + "oidc"
	callbackPath = oidcPath + "/callback"
	// attemptCookie keeps an access.Attempt in the browser. It is SameSite=Lax: the
	// provider's page sends the browser back with it.
	attemptCookie = "__Host-exeunt-oidc"
	attemptFor    = 10 * time.Minute
)

// The page shows a text for each reason why a sign-in at the provider failed
// (app.js, signInFailures).
const (
	failedExpired  = "expired"  // the browser brought no attempt, or another one
	failedDenied   = "denied"   // by the provider or its user
	failedProvider = "provider" // it does not answer, or not as expected
	failedUser     = "user"     // this server does not accept the token
	failedBusy     = "busy"
)

// methods answers with how users can sign in.
func (k *Console) methods(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"oidc": k.OIDC != nil})
}

// startOIDC sends the browser to the provider.
func (k *Console) startOIDC(w http.ResponseWriter, req *http.Request) {
	if k.OIDC == nil {
		refuse(w, http.StatusNotFound, "this server has no OpenID Connect provider: set --oidc-issuer-url")
		return
	}
	a := access.Attempt{Redirect: "https://" + req.Host + callbackPath, State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	to, err := k.OIDC.URL(req.Context(), a)
	if err != nil {
		k.Logger.Warn("console: the OpenID Connect provider does not answer", "error", err)
		k.failOIDC(w, req, failedProvider)
		return
	}
	c := cookie(strings.Join([]string{a.State, a.Nonce, a.Verifier}, "."), int(attemptFor/time.Second))
	c.Name, c.SameSite = attemptCookie, http.SameSiteLaxMode
	http.SetCookie(w, c)
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, req, to, http.StatusSeeOther)
}

// endOIDC begins the session of a browser that comes back from the provider. The attempt in
// its cookie shows that this browser began here, so no other page can sign it in as another
// user. The session's cookie is SameSite=Strict: the browser sends it with the requests of
// the page, not with this redirect.
func (k *Console) endOIDC(w http.ResponseWriter, req *http.Request) {
	query := req.URL.Query()
	a, ok := attempt(req)
	gone := cookie("", -1)
	gone.Name, gone.SameSite = attemptCookie, http.SameSiteLaxMode
	http.SetCookie(w, gone) // an attempt is used once
	switch {
	case k.OIDC == nil || !ok || subtle.ConstantTimeCompare([]byte(a.State), []byte(query.Get("state"))) != 1:
		k.failOIDC(w, req, failedExpired)
		return
	case query.Get("code") == "":
		k.Logger.Info("console: the OpenID Connect provider refused a sign-in", "error", query.Get("error"))
		k.failOIDC(w, req, failedDenied)
		return
	case k.Throttle.Wait(req.RemoteAddr, query.Get("code")) > 0:
		k.failOIDC(w, req, failedBusy)
		return
	}
	token, err := k.OIDC.Token(req.Context(), a, query.Get("code"))
	if err == nil && nonceOf(token) != a.Nonce {
		err = errors.New("the ID token is for another attempt")
	}
	if err != nil {
		k.Throttle.Failed(req.RemoteAddr, query.Get("code"))
		k.Logger.Warn("console: sign-in at the OpenID Connect provider failed", "error", err)
		k.failOIDC(w, req, failedProvider)
		return
	}
	secret, u, err := k.begin(req, token, "")
	switch {
	case errors.Is(err, ErrNoSession):
		k.failOIDC(w, req, failedUser)
		return
	case err != nil:
		k.fail(w, req, err)
		return
	}
	if k.replace(w, req, secret, u) {
		http.Redirect(w, req, Path, http.StatusSeeOther)
	}
}

// attempt reads the browser's attempt.
func attempt(req *http.Request) (access.Attempt, bool) {
	c, err := req.Cookie(attemptCookie)
	if err != nil {
		return access.Attempt{}, false
	}
	parts := strings.Split(c.Value, ".")
	if len(parts) != 3 || parts[0] == "" {
		return access.Attempt{}, false
	}
	return access.Attempt{Redirect: "https://" + req.Host + callbackPath, State: parts[0], Nonce: parts[1], Verifier: parts[2]}, true
}

// nonceOf reads a claim before the token is verified: the caller accepts the token only if
// both agree.
func nonceOf(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	var claims struct{ Nonce string }
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Nonce
}

// failOIDC sends the browser to the page, which says what happened.
func (k *Console) failOIDC(w http.ResponseWriter, req *http.Request, reason string) {
	http.Redirect(w, req, Path+"#/signin-failed/"+reason, http.StatusSeeOther)
}
