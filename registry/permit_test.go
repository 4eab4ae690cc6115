package registry

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

// grants is a client that may do what it lists: "get shop/web".
type grants map[string]bool

func (g grants) May(verb, repository string) error {
	if g[verb+" "+repository] {
		return nil
	}
	return errors.New("cannot " + verb + " " + repository)
}

// TestEveryKindNeedsARight: no kind of request but Ping is open to a client without rights.
func TestEveryKindNeedsARight(t *testing.T) {
	for k := range kinds {
		_, err := permit(grants{"": true, " shop/web": true}, httptest.NewRequest("GET", "/v2/", nil), Request{Kind: k, Repository: "shop/web"})
		if (err == nil) != (k == Ping) {
			t.Errorf("kind %d without rights: %v", k, err)
		}
	}
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
		{"delete without the right", writer, "DELETE", "/v2/shop/web/manifests/v1", true, ""},
		{"catalog without the right", writer, "GET", "/v2/_catalog", true, ""},
		{"mount", writer, "POST", "/v2/shop/web/blobs/uploads/?from=other%2Fbase&mount=x", false, "from=other%2Fbase&mount=x"},
		{"mount from a foreign repository", writer, "POST", "/v2/shop/web/blobs/uploads/?from=secret%2Fbase&mount=x&digest-algorithm=sha256", false, "digest-algorithm=sha256"},
		{"mount from anywhere", writer, "POST", "/v2/shop/web/blobs/uploads/?mount=x", false, ""},
		{"everything", nil, "POST", "/v2/shop/web/blobs/uploads/?mount=x", false, "mount=x"},
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
