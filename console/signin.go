package console

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/access"
)

// shown is the session as the page gets it.
func (k *Console) shown(u user.Info) map[string]any {
	return map[string]any{"name": u.GetName(), "groups": u.GetGroups(), "registry": k.RegistryAddress}
}

// show answers with the session's user.
func (k *Console) show(w http.ResponseWriter, req *http.Request) {
	if u, ok := k.client(w, req); ok {
		answer(w, http.StatusOK, k.shown(u))
	}
}

// signIn begins a session, by a token or by the code of a one-time link. A session that
// the browser had before ends: its secret is never reused (session fixation).
func (k *Console) signIn(w http.ResponseWriter, req *http.Request) {
	var body struct{ Token, Code string }
	if req.Header.Get(Header) == "" || req.Header.Get("Content-Type") != "application/json" {
		refuse(w, http.StatusForbidden, "signing in is for the console's page only")
		return
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, maxSignIn)).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, "the request cannot be read: want {\"token\": …} or {\"code\": …}")
		return
	}
	if wait := k.Throttle.Wait(req.RemoteAddr, body.Token+body.Code); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
		refuse(w, http.StatusTooManyRequests, "Too many wrong tokens came from your address. Try again in a moment.")
		return
	}
	secret, u, err := k.begin(req, body.Token, body.Code)
	switch {
	case errors.Is(err, ErrNoSession) && body.Code != "":
		refuse(w, http.StatusUnauthorized, "This link was used already, or is older than a minute. Run exeunt console again.")
		return
	case errors.Is(err, ErrNoSession):
		refuse(w, http.StatusUnauthorized, "The server does not know this token, or it has expired.")
		return
	case err != nil:
		k.fail(w, req, err)
		return
	}
	if k.replace(w, req, secret, u) {
		answer(w, http.StatusOK, k.shown(u))
	}
}

// replace gives the browser a new session instead of the one that it had, or answers 503.
func (k *Console) replace(w http.ResponseWriter, req *http.Request, secret string, u user.Info) bool {
	if old, err := req.Cookie(cookieName); err == nil {
		if err := k.Sessions.End(req.Context(), old.Value); err != nil {
			k.fail(w, req, err)
			return false
		}
	}
	http.SetCookie(w, cookie(secret, int(sessionFor/time.Second)))
	k.Logger.Info("console: signed in", "user", u.GetName())
	return true
}

// begin begins a session, and counts wrong tokens and codes.
func (k *Console) begin(req *http.Request, token, code string) (secret string, u user.Info, err error) {
	secret, u, err = k.exchange(req, token, code)
	switch {
	case err == nil:
		k.Throttle.Succeeded(token + code)
	case errors.Is(err, ErrNoSession):
		k.Throttle.Failed(req.RemoteAddr, token+code)
	}
	return secret, u, err
}

func (k *Console) exchange(req *http.Request, token, code string) (string, user.Info, error) {
	if code != "" {
		return k.Sessions.Begin(req.Context(), code)
	}
	return k.Sessions.New(req.Context(), access.Credential{Token: token})
}

func (k *Console) signOut(w http.ResponseWriter, req *http.Request) {
	if _, ok := k.client(w, req); !ok {
		return
	}
	if old, err := req.Cookie(cookieName); err == nil {
		if err := k.Sessions.End(req.Context(), old.Value); err != nil {
			k.fail(w, req, err)
			return
		}
	}
	http.SetCookie(w, cookie("", -1))
	answer(w, http.StatusOK, map[string]any{})
}

func cookie(value string, seconds int) *http.Cookie {
	return &http.Cookie{Name: cookieName, Value: value, Path: "/", MaxAge: seconds, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode}
}

type credentialKey struct{}

// WithCredential keeps the credential of a request for LinkHandler: the API removes it when
// it has authenticated the client.
func WithCredential(req *http.Request) *http.Request {
	c, ok := access.CredentialOf(req)
	if !ok {
		return req
	}
	return req.WithContext(context.WithValue(req.Context(), credentialKey{}, c))
}

// LinkHandler answers a POST to LinkPath with a one-time link for the client of the
// request, which the API has authenticated: {"path": "/console/#/signin/CODE"}. The code
// is behind the #, which browsers do not send, so no log of a server or proxy has it.
func (s *Sessions) LinkHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		u, ok := genericrequest.UserFrom(req.Context())
		if req.Method != http.MethodPost || !ok {
			w.Header().Set("Allow", http.MethodPost)
			refuse(w, http.StatusMethodNotAllowed, "use POST")
			return
		}
		c, _ := req.Context().Value(credentialKey{}).(access.Credential)
		code, err := s.Link(req.Context(), c, u.GetName())
		switch {
		case errors.Is(err, ErrNoSession):
			refuse(w, http.StatusForbidden, "a link signs in with your own credential: a session of the console gets none, nor does a client that acts as another user")
		case err != nil:
			s.log.Error("console: a one-time link could not be made", "error", err)
			refuse(w, http.StatusServiceUnavailable, "the server's database does not answer; please try again")
		default:
			answer(w, http.StatusOK, map[string]any{"path": Path + "#/signin/" + code})
		}
	})
}

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
