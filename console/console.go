// Package console serves the web page at /console/: static files, sessions, and the
// Kubernetes API for a signed-in browser.
//
// The page has no privileged backend. A browser signs in with a token, with a one-time
// link (session.go) or at an OpenID Connect provider (signin.go), and gets a cookie. Below /console/api/ the request is
// handed to the API, or to the registry, with the session's user as its client; they
// authorize it as any other. The cookie opens nothing else.
//
// What keeps another web page from using the cookie: it is SameSite=Strict, the
// listener refuses requests from pages of other origins (access.FromPage), and every
// request must carry the header of Header, which a form or a link cannot send.
package console

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/exeunt/exeunt/access"
)

const (
	// Path is the prefix of everything that a Console serves.
	Path = "/console/"
	// LinkPath is where a client of the API asks for a one-time link (Sessions.LinkHandler).
	LinkPath = "/exeunt/console/links"
	// Header must be in every request of the page but those for its files.
	Header = "X-Exeunt-Console"
	// cookieName has the prefix that makes browsers insist on Secure, on the path /
	// and on no other host.
	cookieName = "__Host-exeunt-console"

	apiPrefix      = Path + "api"
	registryPrefix = "/v2"
	// maxSignIn bounds the body of a sign-in, in bytes.
	maxSignIn = 64 << 10
)

// Config holds the dependencies of a Console.
type Config struct {
	API      http.Handler // serves the Kubernetes API to the user in the context
	Registry http.Handler // serves the registry likewise; nil means that there is none
	// RegistryAddress is where clients pull from, HOST:PORT; an unspecified host is that of the page.
	RegistryAddress string
	// Limited serves requests of clients that are not known within the limit of requests
	// in flight. Nil means that there is none.
	Limited  func(http.Handler) http.Handler
	Sessions *Sessions
	// OIDC signs browsers in at a provider; nil means that there is none.
	OIDC *access.BrowserSignIn
	// Throttle slows clients that sign in with wrong tokens or codes.
	Throttle *access.Throttle
	Logger   *slog.Logger
}

// Console serves the page. It is safe for concurrent use.
type Console struct {
	Config
	files *files
	mux   *http.ServeMux
}

// New makes a Console. It does no I/O.
func New(c Config) *Console {
	if c.Limited == nil {
		c.Limited = func(next http.Handler) http.Handler { return next }
	}
	k := &Console{Config: c, files: newFiles(), mux: http.NewServeMux()}
	k.mux.Handle("GET /console/", k.files)
	k.mux.Handle("GET /console", http.RedirectHandler(Path, http.StatusPermanentRedirect))
	k.mux.HandleFunc("GET /console/session", k.show)
	k.mux.HandleFunc("POST /console/session", k.signIn)
	k.mux.HandleFunc("DELETE /console/session", k.signOut)
	k.mux.HandleFunc("GET /console/signin", k.methods)
	k.mux.HandleFunc("GET "+oidcPath, k.startOIDC)
	k.mux.HandleFunc("GET "+callbackPath, k.endOIDC)
	return k
}

// ServeHTTP answers one request.
func (k *Console) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	header.Set("X-Frame-Options", "DENY")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	if why := access.FromPage(req); why != "" && req.URL.Path != "/console" && req.URL.Path != Path && req.URL.Path != callbackPath {
		refuse(w, http.StatusForbidden, why)
		return
	}
	if strings.HasPrefix(req.URL.Path, apiPrefix+"/") {
		k.proxy(w, req) // without the mux, which would rewrite the API's paths
		return
	}
	k.Limited(k.mux).ServeHTTP(w, req)
}

// proxy hands a request to the API or the registry as the session's user.
func (k *Console) proxy(w http.ResponseWriter, req *http.Request) {
	var client user.Info
	k.Limited(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { client, _ = k.client(w, req) })).ServeHTTP(w, req)
	if client == nil {
		return
	}
	out := req.Clone(access.WithClient(req.Context(), client))
	out.Header.Del("Cookie")
	out.Header.Del("Authorization")
	out.URL.Path = strings.TrimPrefix(req.URL.Path, apiPrefix)
	out.URL.RawPath = strings.TrimPrefix(req.URL.RawPath, apiPrefix)
	out.RequestURI = out.URL.RequestURI()
	if rest, found := strings.CutPrefix(out.URL.Path, registryPrefix); found && (rest == "" || rest[0] == '/') {
		if k.Registry == nil {
			refuse(w, http.StatusNotFound, "this server has no registry")
			return
		}
		k.Registry.ServeHTTP(w, out)
		return
	}
	k.API.ServeHTTP(w, out)
}

// client returns the user of the session, or answers 401 or 403.
func (k *Console) client(w http.ResponseWriter, req *http.Request) (user.Info, bool) {
	if req.Header.Get(Header) == "" {
		refuse(w, http.StatusForbidden, "this path is for the console's page only: use the API at /api and /apis")
		return nil, false
	}
	cookie, err := req.Cookie(cookieName)
	if err != nil {
		refuse(w, http.StatusUnauthorized, "you are not signed in")
		return nil, false
	}
	client, err := k.Sessions.User(req.Context(), cookie.Value)
	switch {
	case errors.Is(err, ErrNoSession):
		refuse(w, http.StatusUnauthorized, "your session has ended: sign in again")
		return nil, false
	case err != nil:
		k.fail(w, req, err)
		return nil, false
	}
	return client, true
}

func (k *Console) fail(w http.ResponseWriter, req *http.Request, err error) {
	if req.Context().Err() == nil {
		k.Logger.Error("console: request failed", "path", req.URL.Path, "error", err)
	}
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusServiceUnavailable, "the server's database does not answer; please try again")
}

// refuse answers with a Status, as the API does.
func refuse(w http.ResponseWriter, code int, message string) {
	answer(w, code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code})
}

func answer(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value) // an error means that the client disconnected
}
