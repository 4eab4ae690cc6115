package registry_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestOtherBytes: bytes that are not those of the digest, or not as many as announced, are never stored, however they
// are sent.
func TestOtherBytes(t *testing.T) {
	large := strings.Repeat("x", 200_000)
	each(t, func(w *world) {
		wrong := "?digest=" + sha256("other")
		for _, content := range []string{"x", large} {
			w.refuses(400, registry.DigestInvalid, "POST", "/v2/a/blobs/uploads/"+wrong, nil, content)
			w.refuses(400, registry.DigestInvalid, "POST", "/v2/a/blobs/uploads/"+wrong, nil, streamed(content))
			w.refuses(400, registry.DigestInvalid, "PUT", w.begin("a")+wrong, nil, content)
			w.refuses(400, registry.DigestInvalid, "PUT", w.begin("a")+wrong, nil, streamed(content))
			w.refuses(400, registry.SizeInvalid, "PATCH", w.begin("a"), headers{"Content-Range": "0-299999"}, streamed(content))
		}
		w.absent("a", sha256("other"))
		for _, id := range []string{"x", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"} {
			w.refuses(404, registry.BlobUploadUnknown, "PATCH", "/v2/a/blobs/uploads/"+id, nil, "x")
		}
		if got := w.counts(); !strings.HasPrefix(got, "blobs 0, ") {
			w.Errorf("left: %s", got)
		}
	})
}

// guest is a client without a login who may pull.
type guest struct{}

func (guest) Known() bool      { return false }
func (guest) Sees(string) bool { return false }
func (guest) May(verb, _ string) error {
	if verb == "get" {
		return nil
	}
	return errors.New("no")
}

// TestStrangers: what a listener refuses reaches nothing; clients without a login have their share of the requests and no more, and
// learn from every refusal how to log in.
func TestStrangers(t *testing.T) {
	refuse, calls := "", 0
	var client registry.Client = guest{}
	r := registry.New(registry.Config{
		DB: dbtest.OpenDB(t, sqldb.SQLite), MaxRequests: 1,
		Refuse:    func(*http.Request) string { return refuse },
		Admit:     func(*http.Request) (registry.Client, error) { calls++; return client, nil },
		Challenge: func(_ *http.Request, scope, _ string) string { return "Bearer " + scope },
	})
	ask := func(h http.Handler, method, path string) *httptest.ResponseRecorder {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest(method, path, nil))
		return answer
	}
	for _, test := range []struct {
		refuse       string
		client       registry.Client
		method, path string
		status       int
		challenge    string
	}{
		{"", guest{}, "GET", "/v2/a/tags/list", 404, ""},
		{"from a page", guest{}, "GET", "/v2/a/tags/list", 403, ""},
		{"", guest{}, "POST", "/v2/a/blobs/uploads/", 401, "Bearer repository:a:pull,push"},
		{"", guest{}, "GET", "/v2/", 401, "Bearer "},
		{"", guest{}, "GET", "/v2/NO/such", 401, "Bearer "},
		{"", nil, "GET", "/v2/a/tags/list", 403, ""},
	} {
		refuse, client, calls = test.refuse, test.client, 0
		answer := ask(r, test.method, test.path)
		if answer.Code != test.status || answer.Header().Get("WWW-Authenticate") != test.challenge || (calls == 0) != (refuse != "") {
			t.Errorf("%+v: %d %v, asked %d times who it is", test, answer.Code, answer.Header(), calls)
		}
	}
	refuse, client = "", guest{}
	nested := 0
	limited := r.Limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if nested++; nested == 1 {
			if answer := ask(r, "GET", "/v2/a/tags/list"); answer.Code != http.StatusTooManyRequests {
				t.Errorf("a second request: %d", answer.Code)
			}
			if answer := ask(r.Limited(http.NotFoundHandler()), "POST", "/token"); answer.Code != http.StatusTooManyRequests {
				t.Errorf("a second one for a token: %d", answer.Code)
			}
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	if answer := ask(limited, "POST", "/token"); answer.Code != http.StatusNoContent {
		t.Errorf("within the limit: %d", answer.Code)
	}
}
