package bench

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// fakeRegistry has as much of a registry as the load uses, and checks the load: a blob
// must match its digest, a manifest must have its blobs.
type fakeRegistry struct {
	t         *testing.T
	mu        sync.Mutex
	blobs     map[string]int64
	manifests map[string][]byte
	mounted   map[string]bool
	lose      bool // acknowledges manifests and does not store them
	yardstick string
	clean     bool         // the run removes what it created
	rest      *rest.Config // the API of the registry; nil if there is none
	refuse    bool         // deletes are not supported
}

// mount answers as if the upload had begun when the blob is not there.
func (f *fakeRegistry) mount(w http.ResponseWriter, req *http.Request) {
	digest := req.URL.Query().Get("mount")
	if _, ok := f.blobs[digest]; !ok || req.URL.Query().Get("from") != "bench/images" {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	f.mounted[digest] = true
	w.WriteHeader(http.StatusCreated)
}

func (f *fakeRegistry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rest := strings.TrimPrefix(req.URL.Path, "/v2/bench/images/")
	copied, isCopy := strings.CutPrefix(req.URL.Path, "/v2/bench/images-copies/blobs/")
	switch {
	case isCopy && req.Method == http.MethodDelete:
		delete(f.mounted, copied)
		w.WriteHeader(http.StatusAccepted)
	case isCopy:
		f.mount(w, req)
	case req.Method == http.MethodDelete && f.refuse:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case req.Method == http.MethodDelete:
		f.remove(w, rest)
	case req.Method == http.MethodPost:
		w.Header().Set("Location", "/v2/bench/images/blobs/uploads/1?state=x")
		w.WriteHeader(http.StatusAccepted)
	case req.Method == http.MethodPut && strings.HasPrefix(rest, "blobs/"):
		h := sha256.New()
		n, _ := io.Copy(h, req.Body)
		if want := req.URL.Query().Get("digest"); want != "sha256:"+hex.EncodeToString(h.Sum(nil)) || req.URL.Query().Get("state") != "x" {
			f.t.Errorf("PUT %s of %d bytes with another digest, or at another place", req.URL, n)
		} else {
			f.blobs[want] = n
		}
		w.WriteHeader(http.StatusCreated)
	case req.Method == http.MethodPut:
		f.put(req, strings.TrimPrefix(rest, "manifests/"))
		w.WriteHeader(http.StatusCreated)
	case rest == "tags/list":
		fmt.Fprint(w, "{}")
	case strings.HasPrefix(rest, "manifests/"):
		if body, ok := f.manifests[strings.TrimPrefix(rest, "manifests/")]; ok {
			_, _ = w.Write(body)
			return
		}
		http.Error(w, "no such manifest", http.StatusNotFound)
	default:
		size, ok := f.blobs[strings.TrimPrefix(rest, "blobs/")]
		if !ok {
			http.Error(w, "no such blob", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(size))
		if req.Method == http.MethodGet {
			_, _ = w.Write(make([]byte, size))
		}
	}
}

// remove deletes a manifest by its digest, with its tags, or a blob that no
// manifest uses.
func (f *fakeRegistry) remove(w http.ResponseWriter, rest string) {
	if digest, found := strings.CutPrefix(rest, "manifests/"); found {
		maps.DeleteFunc(f.manifests, func(_ string, body []byte) bool { return newBlob(body).digest == digest })
	} else if digest, found := strings.CutPrefix(rest, "blobs/"); found {
		for tag, body := range f.manifests {
			if strings.Contains(string(body), digest) {
				f.t.Errorf("blob %s is deleted while %s uses it", digest, tag)
			}
		}
		delete(f.blobs, digest)
	}
	w.WriteHeader(http.StatusAccepted)
}

func (f *fakeRegistry) put(req *http.Request, tag string) {
	var m struct{ Config, Layers any }
	body, _ := io.ReadAll(req.Body)
	if err := json.Unmarshal(body, &m); err != nil || strings.Count(string(body), "sha256:") != 4 {
		f.t.Errorf("the manifest is %s (%v)", body, err)
	}
	for digest := range f.blobs {
		if strings.Contains(string(body), digest) && f.blobs[digest] == 0 {
			f.t.Errorf("the manifest names %s, which is empty", digest)
		}
	}
	if !f.lose {
		f.manifests[tag] = body
	}
}

func runFake(t *testing.T, f *fakeRegistry) (Result, error) {
	t.Helper()
	f.t, f.blobs, f.manifests, f.mounted = t, map[string]int64{}, map[string][]byte{}, map[string]bool{}
	server := httptest.NewServer(f)
	defer server.Close()
	return RunRegistry(context.Background(), RegistryConfig{
		URL: server.URL, Images: 5, Tags: 7, Rounds: 3, Large: 100_003, Duration: 20 * time.Millisecond, LayerSize: 100,
		Yardstick: f.yardstick, Keep: !f.clean, REST: f.rest,
	})
}

func TestRegistry(t *testing.T) {
	f := &fakeRegistry{}
	result, err := runFake(t, f)
	if err != nil || result.Err() != nil {
		t.Fatal(err, result.Err())
	}
	counts := map[string]int64{}
	for _, m := range result.Measures {
		counts[m.Name] = m.Operations
	}
	if counts["push small image"] != 5 || counts["mount blob"] != 20 || len(f.mounted) != 20 || counts["list 7 tags"] != 3 || counts["push large layer"] != 1 || counts["pull large layer"] != 1 {
		t.Errorf("operations %v", counts)
	}
	if len(f.blobs) != 5*4+1 || len(f.manifests) != 5+7 {
		t.Errorf("the registry has %d blobs and %d manifests", len(f.blobs), len(f.manifests))
	}
}

// TestRegistryIsLeftEmpty: what was pushed is deleted, manifests before the blobs
// that they use; a registry that deletes nothing is not an error.
func TestRegistryIsLeftEmpty(t *testing.T) {
	f := &fakeRegistry{clean: true}
	if result, err := runFake(t, f); err != nil || result.Err() != nil {
		t.Fatal(err, result.Err())
	}
	if len(f.blobs) != 0 || len(f.manifests) != 0 || len(f.mounted) != 0 {
		t.Errorf("%d blobs, %d manifests and %d mounts are left", len(f.blobs), len(f.manifests), len(f.mounted))
	}
	f = &fakeRegistry{clean: true, refuse: true}
	if result, err := runFake(t, f); err != nil || result.Err() != nil {
		t.Fatal(err, result.Err())
	}
}

// TestRegistryNamespaceIsRemoved: a run with an API creates the namespace of its
// repository before the first push, and removes it.
func TestRegistryNamespaceIsRemoved(t *testing.T) {
	for _, clean := range []bool{false, true} {
		s, config := startFake(t, faults{})
		if result, err := runFake(t, &fakeRegistry{clean: clean, rest: config}); err != nil || result.Err() != nil {
			t.Fatal(err, result.Err())
		}
		s.mu.Lock()
		if _, exists := s.namespaces["bench"]; exists == clean || s.requests[http.MethodPost] != 1 {
			t.Errorf("clean %v: the namespace exists: %v, after %d creates", clean, exists, s.requests[http.MethodPost])
		}
		s.mu.Unlock()
	}
}

// TestRegistryYardstick: large layers are compared with the speed of disk and kernel, and
// nothing is left behind.
func TestRegistryYardstick(t *testing.T) {
	f := &fakeRegistry{yardstick: t.TempDir()}
	result, err := runFake(t, f)
	if err != nil || result.Err() != nil {
		t.Fatal(err, result.Err())
	}
	bytes, against := map[string]int64{}, map[string]string{}
	for _, m := range result.Measures {
		bytes[m.Name] = m.Bytes
		if m.Yardstick != nil {
			against[m.Name] = m.Yardstick.Name
			if m.Yardstick.Times <= 0 {
				t.Errorf("%s takes %v times as long as its yardstick", m.Name, m.Yardstick.Times)
			}
		}
	}
	if want := map[string]string{pushLarge: writeYardstick, pullLarge: sendYardstick}; !maps.Equal(against, want) {
		t.Errorf("measures with a yardstick: %v", against)
	}
	if bytes[writeYardstick] != 100_003 || bytes[sendYardstick] != 100_003 {
		t.Errorf("bytes %v", bytes)
	}
	if left, err := os.ReadDir(f.yardstick); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestRegistryThatLoses: an acknowledged manifest that cannot be read is an error.
func TestRegistryThatLoses(t *testing.T) {
	result, err := runFake(t, &fakeRegistry{lose: true})
	if err == nil && result.Err() == nil {
		t.Error("a registry that loses manifests passes")
	}
}

func TestRegistryRefuses(t *testing.T) {
	for _, c := range []RegistryConfig{{}, {URL: "localhost:5000"}, {URL: "ftp://x"}, {URL: "http://x", Images: -1}} {
		if _, err := RunRegistry(context.Background(), c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}
