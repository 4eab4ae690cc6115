package repository

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/registry/verify"
)

const cachesPath = "/apis/registry.exeunt.dev/v1/registrycaches"

// source is an upstream: content by path, which a test may make lie.
type source struct {
	*httptest.Server
	mu      sync.Mutex
	content map[string][]byte
	types   map[string]string
	asked   map[string]int                                      // requests by method and path
	before  func(w http.ResponseWriter, req *http.Request) bool // reports whether it has answered
}

func newSource(w *world) *source {
	s := &source{content: map[string][]byte{}, types: map[string]string{}, asked: map[string]int{}}
	s.Server = httptest.NewServer(s)
	w.Cleanup(s.Server.Close)
	return s
}

func (s *source) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	s.asked[req.Method+" "+req.URL.Path]++
	content, found := s.content[req.URL.Path]
	mediaType, before := s.types[req.URL.Path], s.before
	s.mu.Unlock()
	if before != nil && before(w, req) {
		return
	}
	if !found {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if mediaType != "" {
		w.Header().Set("Content-Type", mediaType)
		w.Header().Set("Docker-Content-Digest", digest.FromBytes(content).String())
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	_, _ = w.Write(content)
}

// on sets what comes before each answer. Nil: nothing.
func (s *source) on(before func(w http.ResponseWriter, req *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

// answers makes the source answer all requests with a status.
func (s *source) answers(status int) {
	s.on(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(status)
		return true
	})
}

func (s *source) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[what]
}

func (s *source) blob(repo string, content []byte) (d digest.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d = digest.FromBytes(content)
	s.content["/v2/"+repo+"/blobs/"+d.String()] = content
	return d
}

func (s *source) manifest(repo, tag, mediaType, content string) digest.Digest {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := digest.FromString(content)
	for _, ref := range []string{tag, d.String()} {
		if ref != "" {
			s.content["/v2/"+repo+"/manifests/"+ref], s.types["/v2/"+repo+"/manifests/"+ref] = []byte(content), mediaType
		}
	}
	return d
}

// image puts an image with one layer into the source.
func (s *source) image(repo, tag, content string) (manifestDigest, layer string) {
	manifest, d, layer := image(content)
	s.blob(repo, []byte("{}"))
	s.blob(repo, []byte(content))
	s.manifest(repo, tag, manifestType, manifest)
	return d, layer
}

// large is content that is stored as a file.
func large(content string) string { return content + strings.Repeat(".", 200<<10) }

// secret reads a Secret of the store.
func (w *world) secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	o, err := w.store.Get(ctx, object.Key{Kind: object.Secrets, Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	var secret struct{ Data map[string][]byte }
	err = json.Unmarshal(o.Body, &secret)
	return secret.Data, err
}

// cache makes a RegistryCache, or replaces its spec.
func (w *world) cache(name, upstream, more string) {
	w.Helper()
	body := fmt.Sprintf(`{"apiVersion":"registry.exeunt.dev/v1","kind":"RegistryCache","metadata":{"name":%q},"spec":{"upstream":%q%s}}`, name, upstream, more)
	w.ask("DELETE", cachesPath+"/"+name, "")
	if a := w.ask("POST", cachesPath, body); a.Code != 201 {
		w.Fatalf("create cache: %d %s", a.Code, a.Body)
	}
	w.cacheClock.Advance(time.Minute) // so that it is known
}

// sound verifies what is stored.
func (w *world) sound() {
	w.Helper()
	_, err := verify.Run(w.Context(), w.DB, w.blobs, verify.Options{Found: func(f verify.Finding) { w.Errorf("verify: %+v", f) }})
	if err != nil {
		w.Fatal(err)
	}
}

// TestCache: what is pulled is fetched once, and only what is pulled; it stays as long as its tag. A manifest that came later is
// held by the list that names it, and a layer by its manifest.
func TestCache(t *testing.T) {
	each(t, func(w *world) {
		up := newSource(w)
		w.cache("hub", up.URL+"/lib", "")
		one, two := large("one"), "two"
		first, firstLayer := up.image("lib/team/web", "", one)
		second, secondLayer := up.image("lib/team/web", "", two)
		list := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[{"mediaType":%q,"digest":%q,"size":1},{"mediaType":%q,"digest":%q,"size":1}]}`,
			indexType, manifestType, first, manifestType, second)
		index := up.manifest("lib/team/web", "v1", indexType, list)
		for range 2 {
			for _, ref := range []string{"v1", index.String()} {
				a := w.do("GET", "/v2/hub/team/web/manifests/"+ref, "", "")
				if a.Code != 200 || a.Body.String() != list || a.Header().Get("Content-Type") != indexType {
					t.Fatalf("%s: %d %s", ref, a.Code, a.Body)
				}
			}
			w.pulls("hub/team/web", first, one)
		}
		for what, want := range map[string]int{
			"GET /v2/lib/team/web/manifests/v1": 1, "GET /v2/lib/team/web/manifests/" + index.String(): 0, "GET /v2/lib/team/web/manifests/" + first: 1,
			"GET /v2/lib/team/web/blobs/" + firstLayer: 1, "GET /v2/lib/team/web/manifests/" + second: 0, "GET /v2/lib/team/web/blobs/" + secondLayer: 0,
			"HEAD /v2/lib/team/web/manifests/v1": 0,
		} {
			if got := up.count(what); got != want {
				t.Errorf("%s: %d times, want %d", what, got, want)
			}
		}
		w.sound()
		w.clock.Advance(100 * time.Hour)
		w.collect()
		up.Close()
		w.pulls("hub/team/web", first, one) // without the upstream
		w.want(200, "", "HEAD", "/v2/hub/team/web/manifests/v1")
		w.want(503, "does not answer", "GET", "/v2/hub/team/web/manifests/"+second)
		w.want(503, "does not answer", "GET", "/v2/hub/team/web/blobs/"+secondLayer)
		w.sound()
		w.want(202, "", "DELETE", "/v2/hub/team/web/manifests/v1")
		w.clock.Advance(200 * time.Hour)
		w.collect()
		if n := w.Count(`SELECT count(*) FROM manifests`) + w.Count(`SELECT count(*) FROM missing_content`) + w.Count(`SELECT count(*) FROM blobs`); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// TestCacheOnce: 50 clients that ask at once, and one fetch.
func TestCacheOnce(t *testing.T) {
	each(t, func(w *world) {
		up := newSource(w)
		w.cache("hub", up.URL, "")
		content := large("x")
		d, layer := up.image("web", "v1", content)
		var all sync.WaitGroup
		arrived := make(chan struct{}, 100)
		up.on(func(_ http.ResponseWriter, req *http.Request) bool {
			if strings.Contains(req.URL.Path, layer) || strings.HasSuffix(req.URL.Path, "/v1") {
				for range 50 {
					<-arrived
				}
			}
			return false
		})
		for _, path := range []string{"/v2/hub/web/manifests/v1", "/v2/hub/web/blobs/" + layer} {
			for range 50 {
				all.Go(func() {
					arrived <- struct{}{}
					if a := w.do("GET", path, "", ""); a.Code != 200 {
						t.Errorf("%s: %d %s", path, a.Code, a.Body)
					}
				})
			}
			all.Wait()
		}
		for what, n := range up.asked {
			if n != 1 {
				t.Errorf("%s: %d times", what, n)
			}
		}
		w.pulls("hub/web", d, content)
	})
}

// TestCacheRevalidates: a tag is asked for again after its time. What is here is served while the upstream fails, and not when it
// says that the tag is gone.
func TestCacheRevalidates(t *testing.T) {
	each(t, func(w *world) {
		up := newSource(w)
		w.cache("hub", up.URL, `,"revalidateAfterSeconds":0`)
		head, get := "HEAD /v2/web/manifests/v1", "GET /v2/web/manifests/v1"
		up.image("web", "v1", "one")
		w.pulls("hub/web", "v1", "one")
		w.pulls("hub/web", "v1", "one")
		if h, g := up.count(head), up.count(get); h != 1 || g != 1 {
			t.Errorf("%d HEAD and %d GET; want 1 and 1", h, g)
		}
		up.image("web", "v1", "two")
		w.pulls("hub/web", "v1", "two")
		for _, status := range []int{429, 500, 503} {
			up.image("web", "v1", fmt.Sprint("three", status))
			up.answers(status)
			before := up.count(head)
			w.pulls("hub/web", "v1", "two")
			w.pulls("hub/web", "v1", "two")
			if got := up.count(head) - before; got != 1 {
				t.Errorf("%d: asked %d times while it rests, want 1", status, got)
			}
			w.cacheClock.Advance(time.Hour)
		}
		up.on(func(w http.ResponseWriter, req *http.Request) bool { // HEAD as it should be, and another manifest
			if req.Method == "GET" {
				w.Header().Set("Content-Type", manifestType)
				w.Header().Set("Docker-Content-Digest", digest.FromString("?").String())
				_, _ = io.WriteString(w, "{}")
			}
			return req.Method == "GET"
		})
		w.pulls("hub/web", "v1", "two")
		up.answers(404)
		w.want(404, "MANIFEST_UNKNOWN", "GET", "/v2/hub/web/manifests/v1")
		up.answers(403)
		w.want(403, "denies it", "GET", "/v2/hub/web/manifests/v1")
		_, second, _ := image("two")
		w.pulls("hub/web", second, "two")
		up.on(nil)
		up.image("web", "v1", "four")
		w.pulls("hub/web", "v1", "four")
		w.sound()
	})
}

// TestCacheOfALiar: nothing of what is not as it should be is served or stored, and an honest answer heals.
func TestCacheOfALiar(t *testing.T) {
	eachWith(t, settings{patience: 200 * time.Millisecond}, func(w *world) {
		up := newSource(w)
		w.cache("hub", up.URL, "")
		for _, content := range []string{"small", large("large")} {
			d, layer := up.image("web", "v1", content)
			w.want(200, "", "GET", "/v2/hub/web/manifests/"+d)
			honest := []byte(content)
			send := func(w http.ResponseWriter, body []byte, length int) {
				if length >= 0 {
					w.Header().Set("Content-Length", fmt.Sprint(length))
				}
				_, _ = w.Write(body)
			}
			endless := func(w http.ResponseWriter, req *http.Request) {
				w.WriteHeader(200)
				for req.Context().Err() == nil {
					_, _ = w.Write(make([]byte, 32<<10))
				}
			}
			slow := func(w http.ResponseWriter, req *http.Request) {
				send(w, honest[:2], len(honest))
				w.(http.Flusher).Flush()
				<-req.Context().Done()
			}
			for name, lie := range map[string]func(http.ResponseWriter, *http.Request){
				"another content": func(w http.ResponseWriter, _ *http.Request) {
					send(w, bytes.ToUpper(honest), len(honest))
				},
				"longer":  func(w http.ResponseWriter, _ *http.Request) { send(w, append(honest, '.'), len(honest)+1) },
				"shorter": func(w http.ResponseWriter, _ *http.Request) { send(w, honest[1:], len(honest)-1) },
				"broken":  func(w http.ResponseWriter, _ *http.Request) { send(w, honest[1:], len(honest)) },
				"endless": endless, "slow": slow,
				"silent": func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() },
			} {
				up.on(func(w http.ResponseWriter, req *http.Request) bool {
					lie(w, req)
					return true
				})
				if a := w.do("GET", "/v2/hub/web/blobs/"+layer, "", ""); a.Code != 502 && a.Code != 503 {
					t.Errorf("%s: %d %s", name, a.Code, a.Body)
				}
				if n := w.Count(`SELECT count(*) FROM blobs WHERE digest = $1`, layer) + w.Count(`SELECT count(*) FROM blob_uploads`); n != 0 {
					t.Errorf("%s: %d rows of it", name, n)
				}
			}
			for name, lie := range map[string]func(http.ResponseWriter, *http.Request){
				"endless": func(w http.ResponseWriter, req *http.Request) {
					w.Header().Set("Content-Type", manifestType)
					endless(w, req)
				},
				"no manifest": func(w http.ResponseWriter, _ *http.Request) { send(w, []byte("<html>"), -1) },
				"media type": func(w http.ResponseWriter, _ *http.Request) {
					manifest, _, _ := image("other")
					w.Header().Set("Content-Type", indexType)
					send(w, []byte(manifest), -1)
				},
				"digest": func(w http.ResponseWriter, _ *http.Request) {
					manifest, _, _ := image("other")
					w.Header().Set("Docker-Content-Digest", d)
					w.Header().Set("Content-Type", manifestType)
					send(w, []byte(manifest), -1)
				},
				"slow": func(w http.ResponseWriter, req *http.Request) {
					w.Header().Set("Content-Type", manifestType)
					slow(w, req)
				},
			} {
				up.on(func(w http.ResponseWriter, req *http.Request) bool {
					lie(w, req)
					return true
				})
				if a := w.do("GET", "/v2/hub/web/manifests/other", "", ""); a.Code != 502 && a.Code != 503 {
					t.Errorf("manifest %s: %d %s", name, a.Code, a.Body)
				}
			}
			up.on(nil)
			w.pulls("hub/web", d, content)
		}
		if got := w.tags("hub/web"); len(got) != 0 {
			t.Errorf("tags %v", got)
		}
		w.clock.Advance(100 * time.Hour)
		w.sound()
	})
}

// TestCachePushes: pushes are refused, or shadow the upstream: a tag that was pushed stays, also if it was pushed during a fetch.
func TestCachePushes(t *testing.T) {
	each(t, func(w *world) {
		up := newSource(w)
		up.image("web", "v1", "theirs")
		up.image("web", "v2", "theirs")
		w.push("hub/old", "v1", "ours") // before the cache
		w.cache("hub", up.URL, `,"revalidateAfterSeconds":0`)
		if a := w.tryPush("hub/web", "v1", "ours"); a.Code != 403 || !strings.Contains(a.Body.String(), "is a cache of "+up.URL) {
			t.Errorf("push: %d %s", a.Code, a.Body)
		}
		w.want(403, `"DENIED"`, "PUT", "/v2/hub/web/manifests/v1")
		w.want(404, "NAME_UNKNOWN", "GET", "/v2/hub/web/tags/list")
		w.pulls("hub/web", "v2", "theirs")
		up.image("old", "v1", "theirs")
		w.pulls("hub/old", "v1", "ours")

		w.cache("hub", up.URL, `,"revalidateAfterSeconds":0,"pushes":"Shadow"`)
		var once sync.Once
		up.on(func(_ http.ResponseWriter, req *http.Request) bool {
			if strings.HasSuffix(req.URL.Path, "/v1") {
				once.Do(func() { w.push("hub/web", "v1", "ours") })
			}
			return false
		})
		w.pulls("hub/web", "v1", "ours")
		w.push("hub/web", "v2", "ours")
		w.pulls("hub/web", "v2", "ours")
		w.pulls("hub/web", "v1", "ours")
		w.want(202, "", "DELETE", "/v2/hub/web/manifests/v2")
		w.pulls("hub/web", "v2", "theirs")
		w.sound()
	})
}

// TestCacheParentGoes: a list that is deleted while one of its manifests is fetched, and a manifest while its layer is.
func TestCacheParentGoes(t *testing.T) {
	each(t, func(w *world) {
		up := newSource(w)
		w.cache("hub", up.URL, "")
		d, layer := up.image("web", "", "one")
		list := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[{"mediaType":%q,"digest":%q,"size":1}]}`, indexType, manifestType, d)
		index := up.manifest("web", "v1", indexType, list)
		w.want(200, "", "GET", "/v2/hub/web/manifests/v1")
		for _, c := range [][2]string{{"/v2/hub/web/manifests/" + d, index.String()}, {"/v2/hub/web/blobs/" + layer, d}} {
			path, parent := c[0], c[1]
			w.want(200, "", "GET", "/v2/hub/web/manifests/"+parent)
			up.on(func(_ http.ResponseWriter, req *http.Request) bool {
				up.on(nil)
				w.want(202, "", "DELETE", "/v2/hub/web/manifests/"+parent)
				return false
			})
			w.want(200, "", "GET", path)
			w.sound()
		}
		w.clock.Advance(100 * time.Hour)
		w.collect()
		if n := w.Count(`SELECT count(*) FROM missing_content`); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// TestCacheStoreStops: pulls and pushes go on while the RegistryCaches cannot be read.
func TestCacheStoreStops(t *testing.T) {
	each(t, func(w *world) {
		up := newSource(w)
		w.cache("hub", up.URL, "")
		if u, err := w.caches.Of(w.Context(), "hub/web"); u == nil || err != nil {
			t.Fatal(u, err)
		}
		if err := w.store.Close(); err != nil {
			t.Fatal(err)
		}
		w.cacheClock.Advance(time.Hour)
		if u, err := w.caches.Of(w.Context(), "hub/web"); u == nil || err != nil {
			t.Error(u, err)
		}
		if u, err := w.caches.Of(w.Context(), "shop/web"); u != nil || err != nil {
			t.Error(u, err)
		}
	})
}
