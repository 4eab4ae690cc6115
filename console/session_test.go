package console

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestMain(m *testing.M) { dbtest.MainBoth(m) }

var alice = &user.DefaultInfo{Name: "alice", UID: "1", Groups: []string{"shop"}, Extra: map[string][]string{"from": {"test"}}}

// right is alice's credential.
var right = access.Credential{Token: "right"}

// credentials has a user for each valid token.
type credentials map[string]user.Info

func (c credentials) authenticate(_ context.Context, by access.Credential) (user.Info, bool) {
	u, ok := c[by.Token]
	return u, ok
}

// newSessions returns sessions whose time and valid credentials the test sets.
func newSessions(db *sqldb.DB) (*Sessions, credentials) {
	valid := credentials{"right": alice, "bob's": &user.DefaultInfo{Name: "bob"}}
	return NewSessions(db, valid.authenticate, slog.New(slog.DiscardHandler)), valid
}

// TestLinkIsUsedOnce: of many browsers with one code, one gets a session.
func TestLinkIsUsedOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		s, _ := newSessions(db)
		ctx := t.Context()
		if _, err := s.Link(ctx, right, "bob"); !errors.Is(err, ErrNoSession) {
			t.Errorf("a link for another user than the credential's: %v", err)
		}
		if _, err := s.Link(ctx, access.Credential{}, "alice"); !errors.Is(err, ErrNoSession) {
			t.Errorf("a link without a credential: %v", err)
		}
		code, err := s.Link(ctx, right, "alice")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.User(ctx, code); !errors.Is(err, ErrNoSession) {
			t.Errorf("a link is a session: %v", err)
		}
		var mu sync.Mutex
		var begun []string
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				secret, u, err := s.Begin(ctx, code)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && u.GetName() == "alice":
					begun = append(begun, secret)
				case !errors.Is(err, ErrNoSession):
					t.Errorf("begin: %v, %v", u, err)
				}
			})
		}
		all.Wait()
		if len(begun) != 1 {
			t.Fatalf("%d sessions of one link", len(begun))
		}
		u, err := s.User(ctx, begun[0])
		if err != nil || fmt.Sprint(u) != fmt.Sprint(alice) {
			t.Errorf("the session's user is %v (%v), want %v", u, err, alice)
		}
	})
}

func TestSessionsEnd(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		s, valid := newSessions(db)
		ctx, now := t.Context(), time.Now()
		s.now = func() time.Time { return now }
		begin := func() string {
			t.Helper()
			secret, _, err := s.New(ctx, right)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.User(ctx, secret); err != nil {
				t.Fatalf("a new session: %v", err)
			}
			return secret
		}
		gone := func(what, secret string) {
			t.Helper()
			if u, err := s.User(ctx, secret); !errors.Is(err, ErrNoSession) {
				t.Errorf("%s: %v, %v", what, u, err)
			}
		}
		one := begin()
		if err := s.End(ctx, one); err != nil {
			t.Fatal(err)
		}
		gone("after the sign-out", one)

		two := begin()
		valid["right"] = &user.DefaultInfo{Name: "alice", Groups: []string{"other"}}
		if u, err := s.User(ctx, two); err != nil || fmt.Sprint(u.GetGroups()) != "[other]" {
			t.Errorf("after the groups changed: %v, %v", u, err)
		}
		link, err := s.Link(ctx, right, "alice")
		if err != nil {
			t.Fatal(err)
		}
		delete(valid, "right")
		gone("after the credential ended", two)
		if _, _, err := s.New(ctx, right); !errors.Is(err, ErrNoSession) {
			t.Errorf("a session of a credential that is not valid: %v", err)
		}
		if _, _, err := s.Begin(ctx, link); !errors.Is(err, ErrNoSession) {
			t.Errorf("a link of a credential that has ended: %v", err)
		}
		valid["right"] = alice

		three := begin()
		code, err := s.Link(ctx, right, "alice")
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(linkFor)
		if _, _, err := s.Begin(ctx, code); !errors.Is(err, ErrNoSession) {
			t.Errorf("a link of a minute ago: %v", err)
		}
		now = now.Add(sessionFor)
		gone("after its time", three)
		if _, err := s.User(ctx, "made up"); !errors.Is(err, ErrNoSession) {
			t.Errorf("a made-up session: %v", err)
		}
	})
}

// TestSessionsAreBounded: the oldest session of a user ends when there are too many, and
// the sweep removes those that have ended.
func TestSessionsAreBounded(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		s, _ := newSessions(db)
		ctx, now := t.Context(), time.Now()
		s.now = func() time.Time { now = now.Add(time.Millisecond); return now }
		first, _, err := s.New(ctx, right)
		if err != nil {
			t.Fatal(err)
		}
		other, _, err := s.New(ctx, access.Credential{Token: "bob's"})
		if err != nil {
			t.Fatal(err)
		}
		for range mostSessions {
			if _, _, err := s.New(ctx, right); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.User(ctx, first); !errors.Is(err, ErrNoSession) {
			t.Errorf("the oldest session: %v", err)
		}
		if _, err := s.User(ctx, other); err != nil {
			t.Errorf("the session of another user: %v", err)
		}
		now = now.Add(2 * sessionFor)
		stopped, stop := context.WithCancel(ctx)
		done := make(chan error)
		go func() { done <- s.Run(stopped) }()
		dbtest.Await(t, "no session is left after the sweep", func() bool { return dbtest.NewSQL(t, db).Count(`SELECT count(*) FROM console_sessions`) == 0 })
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// world is a console over handlers that say who asked for what.
type world struct {
	*Console
	t *testing.T
}

func newWorld(t *testing.T, db *sqldb.DB) world {
	says := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			who := "-"
			if client, ok := access.ClientFrom(req.Context()); ok {
				who = client.GetName()
			}
			fmt.Fprintf(w, "%s %s %s as %s cookie=%q authorization=%q", name, req.Method, req.URL.EscapedPath(), who, req.Header.Get("Cookie"), req.Header.Get("Authorization"))
		})
	}
	anything := func(_ context.Context, c access.Credential) (user.Info, bool) {
		return alice, c.Token == "right" || strings.HasPrefix(c.Token, "right.")
	}
	log := slog.New(slog.DiscardHandler)
	return world{New(Config{
		API: says("api"), Registry: says("registry"), Sessions: NewSessions(db, anything, log), Throttle: access.NewThrottle(time.Now), Logger: log,
	}), t}
}

// ask sends a request as the page does; headers change or, if empty, remove its own.
func (w world) ask(method, path, body, cookie string, header ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Header.Set(Header, "1")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	req.Header.Set("Content-Type", "application/json")
	if cookie != "" {
		req.AddCookie(&http.Cookie{Name: cookieName, Value: cookie})
	}
	for i := 0; i < len(header); i += 2 {
		if header[i+1] == "" {
			req.Header.Del(header[i])
		} else {
			req.Header.Set(header[i], header[i+1])
		}
	}
	out := httptest.NewRecorder()
	w.ServeHTTP(out, req)
	return out
}

// signIn signs in with a token and returns the cookie.
func (w world) signIn(cookie string) string {
	w.t.Helper()
	answer := w.ask("POST", "/console/session", `{"token":"right"}`, cookie)
	cookies := answer.Result().Cookies()
	if answer.Code != http.StatusOK || len(cookies) != 1 {
		w.t.Fatalf("sign in: %d %s", answer.Code, answer.Body)
	}
	c := cookies[0]
	if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" {
		w.t.Errorf("the cookie is %+v", c)
	}
	return c.Value
}

func TestProxyActsAsTheSessionsUser(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite))
	cookie := w.signIn("")
	for path, want := range map[string]string{
		"/console/api/api/v1/pods":               `api GET /api/v1/pods as alice cookie="" authorization=""`,
		"/console/api/v2/shop/web/tags/list":     `registry GET /v2/shop/web/tags/list as alice cookie="" authorization=""`,
		"/console/api/v2x":                       `api GET /v2x as alice cookie="" authorization=""`,
		"/console/api/api/v1/configmaps/a%2Fb":   `api GET /api/v1/configmaps/a%2Fb as alice cookie="" authorization=""`,
		"/console/api/api//v1/../v1/namespaces/": `api GET /api//v1/../v1/namespaces/ as alice cookie="" authorization=""`,
	} {
		answer := w.ask("GET", path, "", cookie, "Authorization", "Bearer other")
		if answer.Code != http.StatusOK || answer.Body.String() != want {
			t.Errorf("%s: %d %q, want %q", path, answer.Code, answer.Body, want)
		}
	}
}

// TestRefusals: without a session, without the page's header, or from another page,
// nothing is reached.
func TestRefusals(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite))
	cookie := w.signIn("")
	for name, c := range map[string]struct {
		method, path, cookie string
		header               []string
		code                 int
	}{
		"no cookie":                    {"GET", "/console/api/api", "", nil, 401},
		"a made-up cookie":             {"GET", "/console/api/api", "x", nil, 401},
		"no header, as a form":         {"POST", "/console/api/api/v1/namespaces", cookie, []string{Header, ""}, 403},
		"no header, as a link":         {"GET", "/console/api/api/v1/secrets", cookie, []string{Header, ""}, 403},
		"from another site":            {"GET", "/console/api/api", cookie, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"from another origin":          {"DELETE", "/console/session", cookie, []string{"Sec-Fetch-Site", "", "Origin", "https://evil.example"}, 403},
		"sign in from another site":    {"POST", "/console/session", "", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"sign in as a form":            {"POST", "/console/session", "", []string{"Content-Type", "text/plain"}, 403},
		"sign in without the header":   {"POST", "/console/session", "", []string{Header, ""}, 403},
		"sign in with nothing":         {"POST", "/console/session", "", nil, 400},
		"session without a cookie":     {"GET", "/console/session", "", nil, 401},
		"sign out without a cookie":    {"DELETE", "/console/session", "", nil, 401},
		"a method that is not served":  {"PUT", "/console/session", cookie, nil, 405},
		"the page itself as a POST":    {"POST", "/console/", cookie, nil, 405},
		"a script from another origin": {"GET", "/console/app.js", "", []string{"Sec-Fetch-Site", "cross-site"}, 403},
	} {
		if answer := w.ask(c.method, c.path, "", c.cookie, c.header...); answer.Code != c.code {
			t.Errorf("%s: %d %s, want %d", name, answer.Code, answer.Body, c.code)
		}
	}
	if answer := w.ask("POST", "/console/session", `{"token":"wrong"}`, ""); answer.Code != http.StatusUnauthorized || len(answer.Result().Cookies()) > 0 {
		t.Errorf("a wrong token: %d %v", answer.Code, answer.Header())
	}
	if answer := w.ask("POST", "/console/session", `{"token":"`+strings.Repeat("x", maxSignIn)+`"}`, ""); answer.Code != http.StatusBadRequest {
		t.Errorf("a long token: %d", answer.Code)
	}
}

// TestSessionFixation: a session that the browser had before the sign-in ends, and its
// secret is not used again.
func TestSessionFixation(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite))
	before := w.signIn("")
	after := w.signIn(before)
	if after == before {
		t.Fatal("the secret was used again")
	}
	if answer := w.ask("GET", "/console/session", "", before); answer.Code != http.StatusUnauthorized {
		t.Errorf("the session from before: %d", answer.Code)
	}
	planted := "chosen-by-an-attacker"
	if fresh := w.signIn(planted); fresh == planted {
		t.Error("a secret that the client chose became a session")
	}
	if answer := w.ask("DELETE", "/console/session", "", after); answer.Code != http.StatusOK || answer.Result().Cookies()[0].MaxAge >= 0 {
		t.Errorf("sign out: %d %v", answer.Code, answer.Header())
	}
	if answer := w.ask("GET", "/console/session", "", after); answer.Code != http.StatusUnauthorized {
		t.Errorf("after the sign-out: %d", answer.Code)
	}
}

func TestLinkHandler(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite))
	// send asks for a link as the user that the API has authenticated.
	send := func(method string, u user.Info, change func(*http.Request) *http.Request) *httptest.ResponseRecorder {
		req := httptest.NewRequest(method, LinkPath, nil)
		req.Header.Set("Authorization", "Bearer right")
		req = change(req)
		out := httptest.NewRecorder()
		w.Sessions.LinkHandler().ServeHTTP(out, req.WithContext(genericrequest.WithUser(req.Context(), u)))
		return out
	}
	var link struct{ Path string }
	if err := json.Unmarshal(send("POST", alice, WithCredential).Body.Bytes(), &link); err != nil {
		t.Fatal(err)
	}
	code, ok := strings.CutPrefix(link.Path, "/console/#/signin/")
	if !ok {
		t.Fatalf("the link is %q", link.Path)
	}
	if answer := w.ask("POST", "/console/session", `{"code":"`+code+`"}`, ""); answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), "alice") {
		t.Errorf("sign in with the link: %d %s", answer.Code, answer.Body)
	}
	if answer := w.ask("POST", "/console/session", `{"code":"`+code+`"}`, ""); answer.Code != http.StatusUnauthorized {
		t.Errorf("the link again: %d", answer.Code)
	}
	for name, c := range map[string]struct {
		method string
		user   user.Info
		change func(*http.Request) *http.Request
		code   int
	}{
		"GET":                    {"GET", alice, WithCredential, 405},
		"without the credential": {"POST", alice, func(req *http.Request) *http.Request { return req }, 403},
		"as another user":        {"POST", &user.DefaultInfo{Name: "bob"}, WithCredential, 403},
		"from a session": {"POST", alice, func(req *http.Request) *http.Request {
			return WithCredential(req.WithContext(access.WithClient(req.Context(), alice)))
		}, 403},
		"with headers of an impersonation": {"POST", alice, func(req *http.Request) *http.Request {
			req.Header.Set("Impersonate-User", "alice")
			return WithCredential(req)
		}, 403},
	} {
		if out := send(c.method, c.user, c.change); out.Code != c.code || strings.Contains(out.Body.String(), "signin") {
			t.Errorf("%s: %d %s, want %d", name, out.Code, out.Body, c.code)
		}
	}
}

// TestRowsAreNoUse: what the database has of a session gives neither its secret nor its
// credential, and a row that is changed or older than this version is no session.
func TestRowsAreNoUse(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		s, _ := newSessions(db)
		secret, _, err := s.New(t.Context(), right)
		if err != nil {
			t.Fatal(err)
		}
		var id, sealed string
		if _, err := db.Row(t.Context(), `SELECT id, client FROM console_sessions`, nil, &id, &sealed); err != nil {
			t.Fatal(err)
		}
		for _, known := range []string{id, sealed, hash(sealed)} {
			if c, err := unseal(known, sealed); err == nil {
				t.Errorf("the row opens with %.10s…: %v", known, c)
			}
		}
		if c, err := unseal(secret, sealed); err != nil || c.Token != "right" {
			t.Errorf("the secret opens its row: %v, %v", c, err)
		}
		for _, changed := range []string{`{"name":"alice","uid":"1","groups":["system:masters"]}`, sealed[:len(sealed)-8] + "AAAAAAA=", ""} {
			err := db.Write(t.Context(), func(tx *sql.Tx) error {
				_, err := tx.Exec(`UPDATE console_sessions SET client = $1`, changed)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if u, err := s.User(t.Context(), secret); !errors.Is(err, ErrNoSession) {
				t.Errorf("the row %q: %v, %v", changed, u, err)
			}
		}
	})
}

// TestGuessesAreSlowed: an address that signs in with many wrong tokens must wait, and a
// person behind it who signed in before need not.
func TestGuessesAreSlowed(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite))
	w.signIn("")
	var last *httptest.ResponseRecorder
	for i := 0; i < 1000 && (last == nil || last.Code == http.StatusUnauthorized); i++ {
		last = w.ask("POST", "/console/session", fmt.Sprintf(`{"token":"guess %d"}`, i), "")
	}
	if last.Code != http.StatusTooManyRequests || last.Header().Get("Retry-After") != "1" {
		t.Errorf("after many guesses: %d %v %s", last.Code, last.Header(), last.Body)
	}
	w.signIn("")
}
