package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/access"
)

// shown is the user as the page gets it.
func shown(u user.Info) map[string]any {
	return map[string]any{"name": u.GetName(), "groups": u.GetGroups()}
}

// show answers with the session's user.
func (k *Console) show(w http.ResponseWriter, req *http.Request) {
	if u, ok := k.client(w, req); ok {
		answer(w, http.StatusOK, shown(u))
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
		answer(w, http.StatusOK, shown(u))
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
