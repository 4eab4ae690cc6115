package repository

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/access/accesstest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store/storetest"
)

const basicSesame = "Basic dXNlcjpzZXNhbWU=" // user:sesame

// login makes the Secret hub-login in namespace shop, with a password for a host.
func (w *world) login(host string) (credentials string) {
	w.Helper()
	if err := w.createNamespace(w.Context(), "shop"); err != nil {
		w.Fatal(err)
	}
	config := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, host, base64.StdEncoding.EncodeToString([]byte("user:sesame"))))
	w.ask("DELETE", "/api/v1/namespaces/shop/secrets/hub-login", "")
	body := `{"apiVersion":"v1","kind":"Secret","type":"kubernetes.io/dockerconfigjson","metadata":{"name":"hub-login"},"data":{".dockerconfigjson":"` + config + `"}}`
	if a := w.ask("POST", "/api/v1/namespaces/shop/secrets", body); a.Code != 201 {
		w.Fatalf("create Secret: %d %s", a.Code, a.Body)
	}
	return `,"credentials":{"namespace":"shop","name":"hub-login"}`
}

// hostOf is host and port of a server.
func hostOf(s *httptest.Server) string {
	u, _ := url.Parse(s.URL)
	return u.Host
}

// TestCacheLogin: Bearer with a token service, and Basic. A token is used again, and fetched again when it is no longer
// accepted. A password goes to no host but the one that the Secret names.
func TestCacheLogin(t *testing.T) {
	each(t, func(w *world) {
		up := newSource(w)
		up.image("web", "v1", "one")
		issued, asked := 0, map[string]int{}
		var mu sync.Mutex
		tokens := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if req.Header.Get("Authorization") != basicSesame {
				rw.WriteHeader(401)
				return
			}
			asked[req.URL.Query().Get("service")+" "+req.URL.Query().Get("scope")]++
			issued++
			_, _ = fmt.Fprintf(rw, `{"token":"t%d"}`, issued)
		}))
		t.Cleanup(tokens.Close)
		up.on(func(rw http.ResponseWriter, req *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			if issued > 0 && req.Header.Get("Authorization") == fmt.Sprint("Bearer t", issued) {
				return false
			}
			rw.Header().Set("WWW-Authenticate", `Bearer realm="`+tokens.URL+`/token",service="s",scope="repository:secret:pull,push"`)
			rw.WriteHeader(401)
			return true
		})
		w.cache("hub", up.URL, "")
		w.want(403, "answers 401", "GET", "/v2/hub/web/manifests/v1")
		w.cache("hub", up.URL, w.login(hostOf(up.Server)))
		w.pulls("hub/web", "v1", "one")
		if issued != 1 || asked["s repository:web:pull"] != 1 {
			t.Errorf("%d tokens, %v", issued, asked)
		}
		mu.Lock()
		issued++ // the token is no longer accepted
		mu.Unlock()
		up.image("web", "v2", "two")
		w.pulls("hub/web", "v2", "two")

		up.on(func(rw http.ResponseWriter, req *http.Request) bool {
			if req.Header.Get("Authorization") != basicSesame {
				rw.Header().Set("WWW-Authenticate", `Basic realm="x"`)
				rw.WriteHeader(401)
			}
			return req.Header.Get("Authorization") != basicSesame
		})
		up.image("web", "v3", "three")
		w.cacheClock.Advance(time.Hour) // the token ends
		w.pulls("hub/web", "v3", "three")

		w.login("other.example:5000")
		w.cacheClock.Advance(time.Hour)
		sent := 0
		up.on(func(rw http.ResponseWriter, req *http.Request) bool {
			if req.Header.Get("Authorization") != "" {
				sent++
			}
			rw.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			rw.WriteHeader(401)
			return true
		})
		w.want(403, "has no entry for "+hostOf(up.Server), "GET", "/v2/hub/web/manifests/v4")
		if sent != 0 {
			t.Errorf("%d requests had a password for another host", sent)
		}
		w.pulls("hub/web", "v3", "three")
	})
}

// TestCacheRedirects: content may be elsewhere, but what the upstream redirects to gets no credentials, and must be http.
func TestCacheRedirects(t *testing.T) {
	each(t, func(w *world) {
		up, other := newSource(w), newSource(w)
		_, layer := up.image("web", "v1", large("one"))
		other.blob("web", []byte(large("one")))
		target, sent := other.URL, ""
		up.on(func(rw http.ResponseWriter, req *http.Request) bool {
			if req.Header.Get("Authorization") == "" {
				rw.Header().Set("WWW-Authenticate", `Basic realm="x"`)
				rw.WriteHeader(401)
				return true
			}
			if strings.HasSuffix(req.URL.Path, layer) {
				http.Redirect(rw, req, target+req.URL.Path, http.StatusTemporaryRedirect)
				return true
			}
			return false
		})
		other.on(func(_ http.ResponseWriter, req *http.Request) bool {
			sent += req.Header.Get("Authorization") + req.Header.Get("Cookie")
			return false
		})
		w.cache("hub", up.URL, w.login(hostOf(up.Server)))
		w.want(200, "", "GET", "/v2/hub/web/manifests/v1")
		for _, target = range []string{"file:///etc", "ftp://127.0.0.1", "http://169.254.169.254/latest?", up.URL} {
			w.want(503, "does not answer", "GET", "/v2/hub/web/blobs/"+layer)
		}
		target = other.URL
		w.want(200, "one", "GET", "/v2/hub/web/blobs/"+layer)
		if sent != "" || other.count("GET /v2/web/blobs/"+layer) != 1 {
			t.Errorf("the other host got %q, %d times", sent, other.count("GET /v2/web/blobs/"+layer))
		}
	})
}

// TestCacheTLS: an upstream is trusted by caBundle, and leads neither by a redirect nor by a token service to plain HTTP.
func TestCacheTLS(t *testing.T) {
	each(t, func(w *world) {
		up, plain := newSource(w), newSource(w)
		up.Server.Close()
		up.Server = httptest.NewTLSServer(up)
		t.Cleanup(up.Server.Close)
		_, layer := up.image("web", "v1", "one")
		plain.image("web", "v1", "one")
		w.cache("hub", up.URL, "")
		w.want(503, "does not answer", "GET", "/v2/hub/web/manifests/v1")
		trusted, _ := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: up.Certificate().Raw}))
		w.cache("hub", up.URL, `,"caBundle":`+string(trusted))
		w.want(200, "", "GET", "/v2/hub/web/manifests/v1")
		up.on(func(rw http.ResponseWriter, req *http.Request) bool {
			http.Redirect(rw, req, plain.URL+req.URL.Path, http.StatusFound)
			return true
		})
		w.want(503, "does not answer", "GET", "/v2/hub/web/blobs/"+layer)
		up.on(func(rw http.ResponseWriter, _ *http.Request) bool {
			rw.Header().Set("WWW-Authenticate", `Bearer realm="`+plain.URL+`/token"`)
			rw.WriteHeader(401)
			return true
		})
		w.want(403, "has no URL that may be asked", "GET", "/v2/hub/web/blobs/"+layer)
		if len(plain.asked) > 0 {
			t.Errorf("plain HTTP was asked: %v", plain.asked)
		}
	})
}

// TestCacheSpec: what a RegistryCache cannot say.
func TestCacheSpec(t *testing.T) {
	each(t, func(w *world) {
		for spec, want := range map[string]int{
			`"upstream":"https://ghcr.io"`: 201, `"upstream":"https://ghcr.io:8443/team/x/"`: 201, `"upstream":"http://mirror.example"`: 201, `"upstream":"http://[::1]:5000"`: 201,
			`"upstream":"ghcr.io"`: 422, `"upstream":"ftp://ghcr.io"`: 422, `"upstream":"https://me:secret@ghcr.io"`: 422, `"upstream":"https://ghcr.io?x=1"`: 422, `"upstream":"https://ghcr.io/../x"`: 422,
			`"upstream":"https://[:::::]"`: 422, `"upstream":"https://[1:2]/x"`: 422,
			`"upstream":"https://ghcr.io","pushes":"Maybe"`: 422, `"upstream":"https://ghcr.io","revalidateAfterSeconds":-1`: 422,
			`"upstream":"http://mirror.example","credentials":{"namespace":"a","name":"b"}`:       422,
			`"upstream":"http://localhost.example","credentials":{"namespace":"a","name":"b"}`:    422,
			`"upstream":"http://127.0.0.1.example","credentials":{"namespace":"a","name":"b"}`:    422,
			`"upstream":"http://localhost:5000/team","credentials":{"namespace":"a","name":"b"}`:  201,
			`"upstream":"https://mirror.example/team","credentials":{"namespace":"a","name":"b"}`: 201,
			`"upstream":"https://mirror.example/team","credentials":{"namespace":"a"}`:            422,
		} {
			body := `{"apiVersion":"registry.exeunt.dev/v1","kind":"RegistryCache","metadata":{"name":"x"},"spec":{` + spec + `}}`
			if a := w.ask("POST", cachesPath, body); a.Code != want {
				t.Errorf("%s: %d %s", spec, a.Code, a.Body)
			}
			w.ask("DELETE", cachesPath+"/x", "")
		}
	})
}

// TestCacheUnreadable: a RegistryCache that cannot be read stops neither the others nor the registry.
func TestCacheUnreadable(t *testing.T) {
	each(t, func(w *world) {
		up := newSource(w)
		d, _ := up.image("web", "v1", "x")
		key := object.Key{Kind: "registrycaches.registry.exeunt.dev", Name: "broken"}
		storetest.Create(w, w.store, storetest.Object(w, key, `,"spec":{"upstream":"https://[:::::]"}`))
		w.push("shop/web", "v1", "1")
		w.cache("hub", up.URL, "")
		w.pulls("hub/web", d, "x")
	})
}

// TestCacheStatus is what kubectl shows.
func TestCacheStatus(t *testing.T) {
	each(t, func(w *world) {
		up := newSource(w)
		up.image("web", "v1", "one")
		w.cache("hub", up.URL, "")
		run := func() {
			w.Helper()
			if err := w.caches.RunOne(w.Context()); err != nil {
				w.Fatal(err)
			}
		}
		row := func() string {
			w.Helper()
			var table struct {
				Rows []struct{ Cells []any }
			}
			req := accesstest.Admin(httptest.NewRequestWithContext(w.Context(), "GET", cachesPath, nil))
			req.Header.Set("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
			a := httptest.NewRecorder()
			w.api.ServeHTTP(a, req)
			if err := json.Unmarshal(a.Body.Bytes(), &table); err != nil || len(table.Rows) != 1 {
				w.Fatalf("%d %s: %v", a.Code, a.Body, err)
			}
			cells := table.Rows[0].Cells
			return fmt.Sprint(append(cells[:5:5], cells[6])) // without the age
		}
		run()
		w.pulls("hub/web", "v1", "one")
		w.pulls("hub/web", "v1", "one")
		run()
		if got, want := row(), "[hub "+up.URL+" True 2 2 <nil>]"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		up.Server.Close()
		w.want(503, "", "GET", "/v2/hub/web/manifests/v2")
		run()
		if got := row(); !strings.HasPrefix(got, "[hub "+up.URL+" False 2 2 ") || !strings.Contains(got, "connection refused") {
			t.Error(got)
		}
		run()
	})
}

// TestCacheQuota: a blob that does not fit is not stored, and not served.
func TestCacheQuota(t *testing.T) {
	each(t, func(w *world) {
		up := newSource(w)
		_, layer := up.image("web", "v1", large("one"))
		w.cache("hub", up.URL, "")
		w.want(200, "", "GET", "/v2/hub/web/manifests/v1")
		w.limitNamespace("hub", "100Ki")
		w.want(403, "the blob does not fit", "GET", "/v2/hub/web/blobs/"+layer)
		w.limitNamespace("hub", "")
		w.want(200, "one", "GET", "/v2/hub/web/blobs/"+layer)
		w.sound()
	})
}
