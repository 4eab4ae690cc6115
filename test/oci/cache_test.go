package oci

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/exeunt/exeunt/test/harness"
)

// TestCacheKilled: a RegistryCache whose upstream is another Exeunt, with its login. The server is killed in the middle of a fetch:
// what it has is sound, and the next pull gets the image, and the one after that without the upstream.
func TestCacheKilled(t *testing.T) {
	for _, engine := range harness.Engines(t.Name()) {
		t.Run(engine, func(t *testing.T) {
			up, s := harness.Start(t, engine), harness.Start(t, engine)
			img, err := random.Image(1<<20, 3)
			if err != nil {
				t.Fatal(err)
			}
			layers, err := img.Layers()
			if err != nil {
				t.Fatal(err)
			}
			stalls, err := layers[1].Digest()
			if err != nil {
				t.Fatal(err)
			}
			if err := crane.Push(img, up.Registry()+"/team/app:v1"); err != nil {
				t.Fatal(err)
			}
			half, killed := make(chan struct{}), make(chan struct{})
			var once sync.Once
			to := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: up.Registry()})
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.Header.Get("Authorization") != "" && strings.HasSuffix(req.URL.Path, stalls.String()) {
					w = &stalling{w, 512 << 10, func() {
						once.Do(func() { close(half) })
						<-killed
					}}
				}
				to.ServeHTTP(w, req)
			}))
			defer proxy.Close()
			host := strings.TrimPrefix(proxy.URL, "http://")
			config, err := json.Marshal(map[string]any{"auths": map[string]any{host: map[string]string{"username": "any", "password": up.RegistryToken()}}})
			if err != nil {
				t.Fatal(err)
			}
			for path, body := range map[string]string{
				"/api/v1/namespaces/default/secrets": fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","type":"kubernetes.io/dockerconfigjson","metadata":{"name":"login"},"stringData":{".dockerconfigjson":%q}}`, config),
				"/apis/registry.exeunt.dev/v1/registrycaches": fmt.Sprintf(`{"apiVersion":"registry.exeunt.dev/v1","kind":"RegistryCache","metadata":{"name":"hub"},
					"spec":{"upstream":%q,"credentials":{"namespace":"default","name":"login"}}}`, proxy.URL+"/team"),
			} {
				if a := s.HTTP().Do(t, harness.Request{Method: "POST", Path: path, Body: body}); a.Code != 201 {
					t.Fatalf("%s: %d %s", path, a.Code, a.Body)
				}
			}
			pull := func() error {
				pulled, err := crane.Pull(s.Registry() + "/hub/app:v1")
				if err == nil {
					err = validate.Image(pulled)
				}
				return err
			}
			harness.Until(t, "the cache is known", func() error {
				_, err := crane.Digest(s.Registry() + "/hub/app:v1")
				return err
			})
			ended := make(chan error, 1)
			go func() { ended <- pull() }()
			<-half
			s.Kill()
			close(killed)
			if err := <-ended; err == nil {
				t.Error("the pull has ended without the server")
			}
			s.Start()
			s.VerifyRegistry(t)
			if err := pull(); err != nil {
				t.Fatal(err)
			}
			if err := crane.Push(img, s.Registry()+"/hub/app:v2"); err == nil || !strings.Contains(err.Error(), "is a cache of") {
				t.Errorf("a push to the cache: %v", err)
			}
			up.Stop()
			if err := pull(); err != nil {
				t.Errorf("without the upstream: %v", err)
			}
			if _, err := remote.Image(craneFlow{t: t, at: s.Registry() + "/"}.ref("hub/other:v1"), loggedIn()); err == nil || !strings.Contains(err.Error(), "503") {
				t.Errorf("what is not here, without the upstream: %v", err)
			}
		})
	}
}

// stalling waits when some bytes are written.
type stalling struct {
	http.ResponseWriter
	after int
	wait  func()
}

func (s *stalling) Write(p []byte) (int, error) {
	n, err := s.ResponseWriter.Write(p)
	if s.after -= n; s.after < 0 && err == nil {
		s.ResponseWriter.(http.Flusher).Flush()
		s.wait()
	}
	return n, err
}
