package registry

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// grants is a client that may do what it lists: "get shop/web".
type grants map[string]bool

func (g grants) May(verb, repository string) error {
	if g[verb+" "+repository] {
		return nil
	}
	return errors.New("cannot " + verb + " " + repository)
}

func (g grants) Known() bool { return !g["anonymous"] }

func (g grants) Sees(repository string) bool { return g["get "+repository] }

// TestEveryKindNeedsARight: no kind of request but Ping is open to a client without
// rights, and Ping needs a login.
func TestEveryKindNeedsARight(t *testing.T) {
	for k := range kinds {
		if _, err := permit(grants{"anonymous": true}, httptest.NewRequest("GET", "/v2/", nil), Request{Kind: k, Repository: "shop/web"}); err == nil {
			t.Errorf("kind %d is open to every client", k)
		}
		_, err := permit(grants{"": true, " shop/web": true}, httptest.NewRequest("GET", "/v2/", nil), Request{Kind: k, Repository: "shop/web"})
		if (err == nil) != (k == Ping) {
			t.Errorf("kind %d without rights: %v", k, err)
		}
		if _, err := permit(nil, httptest.NewRequest("GET", "/v2/", nil), Request{Kind: k, Repository: "shop/web"}); err == nil {
			t.Errorf("kind %d is open to no client", k)
		}
	}
}

// TestEveryRouteNeedsALogin: every method of every path that Parse knows answers a client
// without credentials with 401 and a challenge, also if the repository does not exist.
func TestEveryRouteNeedsALogin(t *testing.T) {
	r := New(Config{
		Admit:     func(*http.Request) (Client, error) { return grants{"anonymous": true}, nil },
		Challenge: func(_ *http.Request, scope, _ string) string { return "Bearer " + scope },
	})
	asked := map[Kind]bool{}
	for k := range kinds {
		to := Request{Kind: k, Repository: "shop/web", Digest: digest.FromString("x"), Upload: "6ba7b810-9dad-11d1-80b4-00c04fd430c8"}
		if k == UploadStart {
			to.Upload = ""
		}
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"} {
			req := httptest.NewRequest(method, to.Path(), nil)
			if found, err := Parse(method, req.URL); err == nil {
				asked[found.Kind] = true
			}
			answer := httptest.NewRecorder()
			r.ServeHTTP(answer, req)
			if answer.Code != 401 || !strings.HasPrefix(answer.Header().Get("WWW-Authenticate"), "Bearer ") {
				t.Errorf("%s %s: %d %v", method, to.Path(), answer.Code, answer.Header())
			}
		}
	}
	if len(asked) != int(kinds) {
		t.Errorf("the paths reach %d of %d kinds of requests", len(asked), kinds)
	}
}

// TestCreatesNothingWithoutRight: only a client that may create a repository creates one.
// Without a client, as in an undelete, nothing is created.
func TestCreatesNothingWithoutRight(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		r := New(Config{DB: db})
		for _, client := range []Client{nil, grants{"update a/b": true}, grants{"create a/c": true}} {
			_, err := r.ensure(t.Context(), Request{Repository: "a/b", client: client})
			var refused *Error
			if !errors.As(err, &refused) || refused.Code != Denied {
				t.Errorf("%v: %v, want a denial", client, err)
			}
			if repo, found, err := r.repository(t.Context(), "a/b"); found || err != nil {
				t.Errorf("%v: there is a repository %v, %v", client, repo, err)
			}
		}
		for _, client := range []Client{grants{"create a/b": true}, grants{}, nil} { // the last two find it
			if _, err := r.ensure(t.Context(), Request{Repository: "a/b", client: client}); err != nil {
				t.Errorf("%v: %v", client, err)
			}
		}
	})
}

func TestPermit(t *testing.T) {
	reader := grants{"get shop/web": true}
	writer := grants{"get shop/web": true, "update shop/web": true, "get other/base": true}
	for _, c := range []struct {
		name         string
		client       Client
		method, path string
		denied       bool
		query        string // what is left of it
	}{
		{"pull", reader, "GET", "/v2/shop/web/manifests/v1", false, ""},
		{"pull elsewhere", reader, "GET", "/v2/shop/other/manifests/v1", true, ""},
		{"push without the right", reader, "POST", "/v2/shop/web/blobs/uploads/", true, ""},
		{"push", writer, "PUT", "/v2/shop/web/manifests/v1", false, ""},
		{"push with create", grants{"create shop/new": true}, "POST", "/v2/shop/new/blobs/uploads/", false, ""},
		{"create elsewhere", grants{"create shop/new": true}, "POST", "/v2/shop/web/blobs/uploads/", true, ""},
		{"delete without the right", writer, "DELETE", "/v2/shop/web/manifests/v1", true, ""},
		{"catalog without the right", writer, "GET", "/v2/_catalog", true, ""},
		{"mount", writer, "POST", "/v2/shop/web/blobs/uploads/?from=other%2Fbase&mount=x", false, "from=other%2Fbase&mount=x"},
		{"mount from a foreign repository", writer, "POST", "/v2/shop/web/blobs/uploads/?from=secret%2Fbase&mount=x&digest-algorithm=sha256", false, "digest-algorithm=sha256"},
		{"mount from anywhere", writer, "POST", "/v2/shop/web/blobs/uploads/?mount=x", false, ""},
		{"everything", anyone{}, "POST", "/v2/shop/web/blobs/uploads/?mount=x", false, "mount=x"},
	} {
		req := httptest.NewRequest(c.method, c.path, nil)
		to, err := Parse(c.method, req.URL)
		if err != nil {
			t.Fatal(err)
		}
		got, err := permit(c.client, req, to)
		var refused *Error
		switch {
		case c.denied && (!errors.As(err, &refused) || refused.Status() != http.StatusForbidden):
			t.Errorf("%s: %v, want a denial", c.name, err)
		case !c.denied && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case !c.denied && got.URL.RawQuery != c.query:
			t.Errorf("%s: the query is %q, want %q", c.name, got.URL.RawQuery, c.query)
		}
	}
}

// TestScope: the challenge names what the request needs.
func TestScope(t *testing.T) {
	for _, c := range []struct{ method, path, want string }{
		{"GET", "/v2/", ""},
		{"GET", "/v2/_catalog", "registry:catalog:*"},
		{"GET", "/v2/shop/web/manifests/v1", "repository:shop/web:pull"},
		{"PUT", "/v2/shop/web/manifests/v1", "repository:shop/web:pull,push"},
		{"DELETE", "/v2/shop/web/manifests/v1", "repository:shop/web:delete"},
		{"POST", "/v2/shop/web/blobs/uploads/?mount=x&from=other/base", "repository:shop/web:pull,push repository:other/base:pull"},
		{"POST", "/v2/shop/web/blobs/uploads/?mount=x&from=%22,error=", "repository:shop/web:pull,push"},
	} {
		req := httptest.NewRequest(c.method, c.path, nil)
		to, err := Parse(c.method, req.URL)
		if got := scope(to, req.URL.Query().Get("from")); err != nil || got != c.want {
			t.Errorf("%s %s: %q, %v; want %q", c.method, c.path, got, err, c.want)
		}
	}
	for k := range kinds {
		if got := scope(Request{Kind: k, Repository: "a"}, ""); (got == "") != (k == Ping) {
			t.Errorf("kind %d has the scope %q", k, got)
		}
	}
}

var refusal = &Error{Code: Unauthorized, Reason: "insufficient_scope", Message: "the token lacks it"}

// narrow is a client whose roles allow everything, and whose token allows a push to one
// repository only.
type narrow struct{}

func (narrow) Known() bool { return true }

func (narrow) Sees(string) bool { return true }

func (narrow) May(verb, repository string) error {
	if repository == "shop/web" {
		return nil
	}
	return refusal
}

// TestMountNeedsScope mounts with a token that does not name the source: the client is
// told to ask for a token that does. A mount that names no source is decided by roles.
func TestMountNeedsScope(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"mount=sha256:x&from=shop/base": refusal.Error(),
		"mount=sha256:x&from=UPPER":     "",
		"mount=sha256:x":                "mount",
		"":                              "",
	} {
		req := httptest.NewRequest("POST", "/v2/shop/web/blobs/uploads/?"+query, nil)
		got := ""
		permitted, err := permit(narrow{}, req, Request{Kind: UploadStart, Repository: "shop/web"})
		switch {
		case err != nil:
			got = err.Error()
		case permitted.URL.Query().Has("mount"):
			got = "mount"
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", query, got, want)
		}
	}
}
