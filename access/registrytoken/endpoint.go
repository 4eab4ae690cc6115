package registrytoken

import (
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Path is the path of the endpoint, beside /v2/.
const Path = "/token"

// maxForm bounds the body of a POST.
const maxForm = 64 << 10

// Endpoint answers requests for tokens: GET with the client's credentials in a header,
// and POST as OAuth 2.0 has it, with grant_type password or refresh_token. All fields are
// required.
type Endpoint struct {
	Authority *Authority
	// Login identifies the client by the request's header or certificate. Without either
	// the holder is anonymous.
	Login func(*http.Request) (Holder, error)
	// Password identifies the client by a password in the body.
	Password func(req *http.Request, password string) (Holder, error)
	// Refresh identifies the client by a refresh token in the body, if its holder still
	// exists, and the holder's credential too.
	Refresh func(req *http.Request, token string) (Holder, error)
	// Grant returns which actions of a scope the holder may do.
	Grant func(ctx context.Context, h Holder, asked Access) []string
}

// Refusal is an error for the client, in the form of the registry's errors.
type Refusal struct {
	Status     int
	Code       string
	Message    string
	RetryAfter time.Duration // with 429
}

func (r *Refusal) Error() string { return r.Message }

func invalid(message string) *Refusal {
	return &Refusal{Status: 400, Code: "UNSUPPORTED", Message: message}
}

// ErrLogin: the credentials are wrong.
var ErrLogin = &Refusal{Status: 401, Code: "UNAUTHORIZED", Message: "the server does not know these credentials; the password is a token (exeunt user add, kubectl create token)"}

// answer has the names of docker's specification, and those of OAuth 2.0.
type answer struct {
	Token        string `json:"token"`
	AccessToken  string `json:"access_token"`
	RefreshToken string `json:"refresh_token,omitempty"`
	TokenType    string `json:"token_type"`
	Scope        string `json:"scope,omitempty"`
	ExpiresIn    int64  `json:"expires_in"`
	IssuedAt     string `json:"issued_at"`
}

// ServeHTTP answers one request.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	a, err := e.answer(w, req)
	if err != nil {
		Fail(w, err)
		return
	}
	_ = json.NewEncoder(w).Encode(a) // the client may have disconnected
}

func (e *Endpoint) answer(w http.ResponseWriter, req *http.Request) (*answer, error) {
	var values url.Values
	var login func() (holder Holder, refresh string, err error)
	switch req.Method {
	case http.MethodGet:
		var err error
		if values, err = url.ParseQuery(req.URL.RawQuery); err != nil {
			return nil, invalid("the query cannot be read")
		}
		login = func() (Holder, string, error) {
			h, err := e.Login(req)
			return h, "", err
		}
	case http.MethodPost:
		if kind, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type")); kind != "application/x-www-form-urlencoded" {
			return nil, &Refusal{Status: 415, Code: "UNSUPPORTED", Message: "want Content-Type: application/x-www-form-urlencoded"}
		}
		req.Body = http.MaxBytesReader(w, req.Body, maxForm)
		if err := req.ParseForm(); err != nil {
			return nil, invalid("the form cannot be read")
		}
		values = req.PostForm
		login = func() (Holder, string, error) { return e.loginByForm(req) }
	default:
		return nil, &Refusal{Status: 405, Code: "UNSUPPORTED", Message: "use GET or POST"}
	}
	if service := values.Get("service"); service != "" && service != Service {
		return nil, invalid("this is the service " + Service)
	}
	asked, err := ParseScopes(values["scope"])
	if err != nil {
		return nil, invalid(err.Error())
	}
	holder, refresh, err := login()
	if err != nil {
		return nil, err
	}
	a, err := e.issue(req.Context(), holder, asked)
	if err != nil {
		return nil, err
	}
	if offline := values.Get("offline_token") == "true" || values.Get("access_type") == "offline"; offline && refresh == "" && holder.Credential != "" {
		refresh, err = e.Authority.IssueRefresh(holder)
	}
	a.RefreshToken = refresh
	return a, err
}

// loginByForm returns also the refresh token that the client sent.
func (e *Endpoint) loginByForm(req *http.Request) (h Holder, refresh string, err error) {
	switch req.PostForm.Get("grant_type") {
	case "password":
		h, err = e.Password(req, req.PostForm.Get("password"))
		return h, "", err
	case "refresh_token":
		refresh = req.PostForm.Get("refresh_token")
		h, err = e.Refresh(req, refresh)
		return h, refresh, err
	}
	return Holder{}, "", invalid("grant_type: want password or refresh_token")
}

// issue signs a token for those of the scopes that the holder may use.
func (e *Endpoint) issue(ctx context.Context, h Holder, asked []Access) (*answer, error) {
	var granted []Access
	var scopes []string
	for _, one := range asked {
		if one.Actions = e.Grant(ctx, h, one); len(one.Actions) > 0 {
			granted = append(granted, one)
			scopes = append(scopes, one.String())
		}
	}
	token, expires, err := e.Authority.Issue(h, granted)
	if err != nil {
		return nil, err
	}
	now := e.Authority.now()
	return &answer{
		Token: token, AccessToken: token, TokenType: "Bearer", Scope: strings.Join(scopes, " "),
		ExpiresIn: int64(expires.Sub(now).Seconds()), IssuedAt: now.UTC().Format(time.RFC3339),
	}, nil
}

// Fail answers with an error in the form of the registry's.
func Fail(w http.ResponseWriter, err error) {
	var r *Refusal
	if !errors.As(err, &r) {
		r = &Refusal{Status: 500, Code: "UNKNOWN", Message: "internal error"}
	}
	switch r.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Basic realm="exeunt", charset="UTF-8"`)
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", strconv.Itoa(int(r.RetryAfter.Seconds())+1))
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", "GET, POST")
	}
	w.WriteHeader(r.Status)
	type entry struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	_ = json.NewEncoder(w).Encode(map[string][]entry{"errors": {{r.Code, r.Message}}})
}

// Challenge is the header WWW-Authenticate that leads clients here. Reason is an error of
// RFC 6750, or empty.
func Challenge(base, scope, reason string) string {
	text := `Bearer realm="` + base + Path + `",service="` + Service + `"`
	if scope != "" {
		text += `,scope="` + scope + `"`
	}
	if reason != "" {
		text += `,error="` + reason + `"`
	}
	return text
}
