package registrytoken

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	jose "gopkg.in/go-jose/go-jose.v2"
	"gopkg.in/go-jose/go-jose.v2/jwt"
)

// secret signs with a shared secret: what signatures are worth is tested with the keys.
type secret struct {
	key     string
	revoked bool
}

func (s *secret) Sign(claims ...any) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: []byte(s.key)}, nil)
	if err != nil {
		return "", err
	}
	b := jwt.Signed(signer)
	for _, c := range claims {
		b = b.Claims(c)
	}
	return b.CompactSerialize()
}

func (s *secret) Verify(token string, claims ...any) (string, bool) {
	parsed, err := jwt.ParseSigned(token)
	return "k", err == nil && !s.revoked && parsed.Claims([]byte(s.key), claims...) == nil
}

func (s *secret) Known(string) bool { return !s.revoked }

// world is an endpoint with two clients: jane may pull from shop/web, and ended has gone.
type world struct {
	*testing.T
	*Endpoint
	keys *secret
	now  time.Time
	gone bool
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, keys: &secret{key: strings.Repeat("k", 32)}, now: time.Unix(1_700_000_000, 0)}
	password := func(_ *http.Request, p string) (Holder, error) {
		if p != "right" {
			return Holder{}, ErrLogin
		}
		return Holder{Name: "jane", UID: "1", Credential: "c"}, nil
	}
	w.Endpoint = &Endpoint{
		Authority: New(w.keys, "https://issuer", func() time.Time { return w.now }),
		Login: func(req *http.Request) (Holder, error) {
			if _, p, ok := req.BasicAuth(); ok {
				return password(req, p)
			}
			return Holder{Name: "anonymous", Anonymous: true}, nil
		},
		Password: password,
		Refresh: func(_ *http.Request, token string) (Holder, error) {
			h, err := w.Authority.Refresh(token)
			if err != nil || h.Credential != "c" || w.gone {
				return Holder{}, ErrLogin
			}
			return h, nil
		},
		Grant: func(_ context.Context, h Holder, asked Access) []string {
			if h.Anonymous || asked.Name != "shop/web" || !slices.Contains(asked.Actions, Pull) {
				return nil
			}
			return []string{Pull}
		},
	}
	return w
}

// ask returns the status and the answer; form is nil for a GET.
func (w *world) ask(query, password string, form url.Values) (int, answer, http.Header) {
	w.Helper()
	req := httptest.NewRequest("GET", Path+"?"+query, nil)
	if form != nil {
		req = httptest.NewRequest("POST", Path, strings.NewReader(form.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if password != "" {
		req.SetBasicAuth("any", password)
	}
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, req)
	var a answer
	if rec.Code == 200 {
		if err := json.Unmarshal(rec.Body.Bytes(), &a); err != nil {
			w.Fatal(err)
		}
	}
	return rec.Code, a, rec.Header()
}

// TestPartialGrants: a token carries those of several scopes that its holder may use, by
// GET and by POST.
func TestPartialGrants(t *testing.T) {
	w := newWorld(t)
	form := url.Values{"grant_type": {"password"}, "username": {"x"}, "password": {"right"}, "scope": {"repository:shop/web:pull,push repository:other:pull"}, "service": {Service}}
	for _, get := range []bool{true, false} {
		code, a, header := w.ask("service="+Service+"&scope=repository:shop/web:pull,push&scope=repository:other:pull", "right", nil)
		if !get {
			code, a, header = w.ask("", "", form)
		}
		if code != 200 || a.Token != a.AccessToken || a.ExpiresIn != 300 || a.Scope != "repository:shop/web:pull" || a.RefreshToken != "" ||
			header.Get("Content-Type") != "application/json" || header.Get("Cache-Control") != "no-store" || header.Get("X-Content-Type-Options") != "nosniff" || a.IssuedAt != w.now.UTC().Format(time.RFC3339) {
			t.Fatalf("%d %+v", code, a)
		}
		token, err := w.Authority.Verify(a.Token)
		if err != nil || token.Holder.Name != "jane" || !token.Allows("repository", "shop/web", Pull) {
			t.Fatalf("%+v, %v", token, err)
		}
		for _, beyond := range [][3]string{{"repository", "shop/web", Push}, {"repository", "other", Pull}, {"repository", "shop/webs", Pull}, {"registry", "catalog", Any}, {"registry", "shop/web", Pull}} {
			if token.Allows(beyond[0], beyond[1], beyond[2]) {
				t.Errorf("the token carries %v", beyond)
			}
		}
	}
}

// TestEndpointRefuses what it cannot answer.
func TestEndpointRefuses(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		want     int
		query    string
		password string
		form     url.Values
	}{
		"a wrong password":          {401, "", "wrong", nil},
		"a wrong password by POST":  {401, "", "", url.Values{"grant_type": {"password"}, "password": {"wrong"}}},
		"another service":           {400, "service=other", "right", nil},
		"a malformed scope":         {400, "scope=repository:a/../b:pull", "right", nil},
		"a malformed query":         {400, "scope=%zz", "right", nil},
		"another grant":             {400, "", "", url.Values{"grant_type": {"client_credentials"}}},
		"no grant":                  {400, "", "", url.Values{"x": {"y"}}},
		"a refresh token of others": {401, "", "", url.Values{"grant_type": {"refresh_token"}, "refresh_token": {"x"}}},
		"a huge form":               {400, "", "", url.Values{"grant_type": {"password"}, "password": {strings.Repeat("x", maxForm)}}},
	} {
		code, _, header := w.ask(c.query, c.password, c.form)
		if code != c.want || code == 401 && !strings.HasPrefix(header.Get("WWW-Authenticate"), "Basic ") {
			t.Errorf("%s: %d %v, want %d", name, code, header, c.want)
		}
	}
	for method, want := range map[string]int{"DELETE": 405, "POST": 415} { // the POST has no type
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, httptest.NewRequest(method, Path, strings.NewReader("grant_type=password&password=right")))
		if rec.Code != want || (rec.Header().Get("Allow") != "") != (want == 405) {
			t.Errorf("%s: %d %v", method, rec.Code, rec.Header())
		}
	}
	for err, want := range map[error]string{
		errors.New("secret"): `500 "" {"errors":[{"code":"UNKNOWN","message":"internal error"}]}`,
		&Refusal{Status: 429, Code: "TOOMANYREQUESTS", Message: "wait", RetryAfter: 1500 * time.Millisecond}: `429 "2" {"errors":[{"code":"TOOMANYREQUESTS","message":"wait"}]}`,
	} {
		rec := httptest.NewRecorder()
		Fail(rec, err)
		if got := fmt.Sprintf("%d %q %s", rec.Code, rec.Header().Get("Retry-After"), strings.TrimSpace(rec.Body.String())); got != want {
			t.Errorf("%v: %s", err, got)
		}
	}
	if got := Challenge("https://r", "repository:a:pull", "insufficient_scope"); got != `Bearer realm="https://r/token",service="exeunt-registry",scope="repository:a:pull",error="insufficient_scope"` {
		t.Error(got)
	}
	if got := Challenge("https://r", "", ""); got != `Bearer realm="https://r/token",service="exeunt-registry"` {
		t.Error(got)
	}
}

// TestOffline: a client gets a refresh token if it asks for one, in docker's words or in those of OAuth 2.0, and else not.
func TestOffline(t *testing.T) {
	w := newWorld(t)
	for asks, want := range map[string]bool{
		"": false, "offline_token=true": true, "access_type=offline": true, "offline_token=false": false, "access_type=online": false, "offline_token=offline&access_type=true": false,
	} {
		values, err := url.ParseQuery(asks)
		if err != nil {
			t.Fatal(err)
		}
		_, a, _ := w.ask(asks, "right", nil)
		values.Set("grant_type", "password")
		values.Set("password", "right")
		code, b, _ := w.ask("", "", values)
		if got := a.RefreshToken != ""; code != 200 || got != want || (b.RefreshToken != "") != want {
			t.Errorf("%q: a refresh token: %v, by POST %v; want %v", asks, got, b.RefreshToken != "", want)
		}
	}
}

// TestClaims: what other programs read in a token. No two tokens are the same.
func TestClaims(t *testing.T) {
	w := newWorld(t)
	seen := map[string]bool{}
	for range 2 {
		token, expires, err := w.Authority.Issue(Holder{Name: "jane"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := jwt.ParseSigned(token)
		if err != nil {
			t.Fatal(err)
		}
		var got jwt.Claims
		if err := parsed.UnsafeClaimsWithoutVerification(&got); err != nil {
			t.Fatal(err)
		}
		if got.ID == "" || seen[got.ID] {
			t.Errorf("the token is called %q", got.ID)
		}
		seen[got.ID], got.ID = true, ""
		now := jwt.NewNumericDate(w.now)
		want := jwt.Claims{Issuer: "https://issuer", Subject: "jane", Audience: jwt.Audience{Service}, IssuedAt: now, NotBefore: now, Expiry: jwt.NewNumericDate(expires)}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the claims are %+v, want %+v", got, want)
		}
	}
}

// TestRefresh: a refresh token gets access tokens until its user or its password ends. It
// is no access token, and no access token refreshes.
func TestRefresh(t *testing.T) {
	w := newWorld(t)
	_, first, _ := w.ask("offline_token=true&scope=repository:shop/web:pull", "right", nil)
	if first.RefreshToken == "" {
		t.Fatal("no refresh token")
	}
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {first.RefreshToken}, "scope": {"repository:shop/web:pull"}, "access_type": {"offline"}}
	w.now = w.now.Add(24 * time.Hour)
	for range 2 { // docker uses the one that it stored
		code, a, _ := w.ask("", "", form)
		if token, err := w.Authority.Verify(a.Token); code != 200 || err != nil || !token.Allows("repository", "shop/web", Pull) || a.RefreshToken != first.RefreshToken {
			t.Fatalf("refresh: %d %+v %v", code, a, err)
		}
	}
	if _, err := w.Authority.Verify(first.RefreshToken); !errors.Is(err, ErrUnknown) {
		t.Errorf("a refresh token as an access token: %v", err)
	}
	form.Set("refresh_token", first.Token)
	if code, _, _ := w.ask("", "", form); code != 401 {
		t.Errorf("an access token as a refresh token: %d", code)
	}
	form.Set("refresh_token", first.RefreshToken)
	w.gone = true
	if code, _, _ := w.ask("", "", form); code != 401 {
		t.Errorf("a replayed refresh token of a removed user: %d", code)
	}
	w.gone, w.now = false, w.now.Add(refreshLife-24*time.Hour-time.Minute)
	if code, a, _ := w.ask("", "", form); code != 200 || a.ExpiresIn != 60 {
		t.Errorf("a minute before the refresh token ends: %d, a token for %d s", code, a.ExpiresIn)
	}
	w.now = w.now.Add(time.Minute)
	if code, _, _ := w.ask("", "", form); code != 401 {
		t.Errorf("an expired refresh token: %d", code)
	}
	if _, a, _ := w.ask("offline_token=true", "", nil); a.RefreshToken != "" {
		t.Error("an anonymous client has a refresh token")
	}
}

// TestVerify: tokens of another audience, issuer or use, expired ones, and those whose key
// is gone are refused, also if they were verified before.
func TestVerify(t *testing.T) {
	w := newWorld(t)
	good := private{Use: forAccess, Holder: Holder{Name: "jane"}}
	claims := func(change func(*jwt.Claims)) jwt.Claims {
		c := jwt.Claims{Issuer: "https://issuer", Audience: jwt.Audience{Service}, Expiry: jwt.NewNumericDate(w.now.Add(time.Minute))}
		change(&c)
		return c
	}
	for name, c := range map[string]struct {
		public  jwt.Claims
		private any
	}{
		"the API's audience":     {claims(func(c *jwt.Claims) { c.Audience = jwt.Audience{"https://issuer"} }), good},
		"two audiences":          {claims(func(c *jwt.Claims) { c.Audience = append(c.Audience, "https://issuer") }), good},
		"no audience":            {claims(func(c *jwt.Claims) { c.Audience = nil }), good},
		"another issuer":         {claims(func(c *jwt.Claims) { c.Issuer = "x" }), good},
		"no expiry":              {claims(func(c *jwt.Claims) { c.Expiry = nil }), good},
		"a ServiceAccount's":     {claims(func(*jwt.Claims) {}), map[string]any{"kubernetes.io": map[string]string{"namespace": "shop"}}},
		"no use, with an access": {claims(func(*jwt.Claims) {}), map[string]any{"access": []Access{{"repository", "shop/web", []string{Pull}}}}},
	} {
		token, err := w.keys.Sign(c.public, c.private)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := w.Authority.Verify(token); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	token, _, err := w.Authority.Issue(Holder{Name: "jane"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // verified, and remembered
		if _, err := w.Authority.Verify(token); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Authority.Verify(token + "x"); !errors.Is(err, ErrUnknown) {
		t.Errorf("a changed signature: %v", err)
	}
	large, _, err := w.Authority.Issue(Holder{Name: strings.Repeat("x", maxToken)}, nil)
	if _, got := w.Authority.Verify(large); err != nil || !errors.Is(got, ErrUnknown) {
		t.Errorf("a token that is too large: %v, %v", got, err)
	}
	w.keys.revoked = true
	if _, err := w.Authority.Verify(token); !errors.Is(err, ErrUnknown) {
		t.Errorf("a key that is gone: %v", err)
	}
	w.keys.revoked, w.now = false, w.now.Add(accessLife)
	if _, err := w.Authority.Verify(token); !errors.Is(err, ErrExpired) {
		t.Errorf("after its life: %v", err)
	}
	for password, life := range map[time.Duration]time.Duration{time.Minute: time.Minute, time.Hour: accessLife} {
		if _, ends, err := w.Authority.Issue(Holder{Name: "jane", Expires: w.now.Add(password)}, nil); err != nil || !ends.Equal(w.now.Add(life)) {
			t.Errorf("of a password that lives %v the token lives %v, %v", password, ends.Sub(w.now), err)
		}
	}
}
