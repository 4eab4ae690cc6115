package bench

import (
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// fake is a server with only what the workloads use. Its faults show whether a workload
// notices them.
type fake struct {
	faults

	mu         sync.Mutex
	namespaces map[string]string // name to JSON
	objects    map[string]string // path to JSON
	revision   int64
	watches    []chan string
	requests   map[string]int // by method
	protocols  map[string]bool
	addresses  map[string]bool // of the clients
}

type faults struct {
	refuse func(r *http.Request, n int64) int         // a status instead of an answer, or 0; n counts writes
	events func(n int64, event string) []string       // what watchers get for the nth event
	list   func(items map[string]string) []string     // names to list
	ended  func(w http.ResponseWriter, n int64) error // asked before each event: an error ends the watch

	expires bool // whether objects with expires-at go
}

func startFake(t testing.TB, f faults) (*fake, *rest.Config) {
	t.Helper()
	s := &fake{
		faults: f, namespaces: map[string]string{}, objects: map[string]string{},
		requests: map[string]int{}, protocols: map[string]bool{}, addresses: map[string]bool{},
	}
	web := httptest.NewUnstartedServer(s)
	web.EnableHTTP2 = true
	web.StartTLS()
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
	return s, &rest.Config{Host: web.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func (s *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests[r.Method]++
	s.protocols[r.Proto] = true
	s.addresses[r.RemoteAddr] = true
	n := s.revision
	s.mu.Unlock()
	if s.refuse != nil {
		if code := s.refuse(r, n); code != 0 {
			http.Error(w, "no such luck", code)
			return
		}
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/version" || r.URL.Path == "/readyz":
		fmt.Fprint(w, "{}")
	case len(parts) <= 4:
		s.serveNamespace(w, r, parts[len(parts)-1])
	case r.URL.Query().Get("watch") != "":
		s.serveWatch(w, r)
	default:
		s.serveObject(w, r, len(parts) == 5)
	}
}

func (s *fake) serveNamespace(w http.ResponseWriter, r *http.Request, name string) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Method {
	case http.MethodPost:
		s.namespaces[nameOf(body)] = string(body)
		w.WriteHeader(http.StatusCreated)
	case http.MethodDelete:
		delete(s.namespaces, name)
	default:
		ns, ok := s.namespaces[name]
		if !ok {
			http.Error(w, "not found", http.StatusNotFound)
			return
		}
		fmt.Fprint(w, ns)
	}
}

func (s *fake) serveObject(w http.ResponseWriter, r *http.Request, collection bool) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Method == http.MethodPost:
		path := r.URL.Path + "/" + nameOf(body)
		if s.objects[path] != "" {
			http.Error(w, "exists", http.StatusConflict)
			return
		}
		s.put(w, path, "ADDED", body)
	case r.Method == http.MethodPut:
		s.put(w, r.URL.Path, "MODIFIED", body)
	case r.Method == http.MethodDelete && collection:
		maps.DeleteFunc(s.objects, func(path, _ string) bool { return strings.HasPrefix(path, r.URL.Path+"/") })
	case collection:
		s.serveList(w, r)
	case s.objects[r.URL.Path] == "":
		http.Error(w, "not found", http.StatusNotFound)
	case r.Method == http.MethodDelete:
		s.remove(r)
	case r.Method == http.MethodPatch && strings.Contains(string(body), "finalizers"):
		delete(s.objects, r.URL.Path)
	case r.Method == http.MethodPatch:
		s.put(w, r.URL.Path, "MODIFIED", withData(s.objects[r.URL.Path], body))
	default:
		fmt.Fprint(w, s.objects[r.URL.Path])
	}
}

func (s *fake) put(w http.ResponseWriter, path, event string, body []byte) {
	s.objects[path] = string(body)
	events := []string{fmt.Sprintf(`{"type":%q,"object":%s}`, event, body)}
	if s.events != nil {
		events = s.events(s.revision, events[0])
	}
	s.revision++
	if s.expires {
		s.expire(path, body)
	}
	for _, watch := range s.watches {
		for _, e := range events {
			watch <- e
		}
	}
	w.WriteHeader(http.StatusCreated)
	w.Write(body)
}

// expire deletes an object when its time has come.
func (s *fake) expire(path string, body []byte) {
	var o struct {
		Metadata struct{ Annotations map[string]string }
	}
	if json.Unmarshal(body, &o) != nil || len(o.Metadata.Annotations) == 0 {
		return
	}
	at, _ := time.Parse(time.RFC3339, o.Metadata.Annotations["lifecycle.exeunt.dev/expires-at"])
	time.AfterFunc(time.Until(at), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.objects, path)
		for _, watch := range s.watches {
			watch <- fmt.Sprintf(`{"type":"DELETED","object":%s}`, body)
		}
	})
}

func (s *fake) serveList(w http.ResponseWriter, r *http.Request) {
	names := slices.Sorted(maps.Keys(s.objects))
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, r.URL.Path+"/") })
	if s.list != nil {
		names = s.list(s.objects)
	}
	query, token := r.URL.Query(), ""
	if limit, err := strconv.Atoi(query.Get("limit")); err == nil {
		names = slices.DeleteFunc(names, func(name string) bool { return name <= query.Get("continue") })
		if limit < len(names) {
			names = names[:limit]
			token = names[limit-1]
		}
	}
	var items []string
	for _, name := range names {
		items = append(items, s.objects[name])
	}
	var out io.Writer = w
	if r.Header.Get("Accept-Encoding") == "gzip" {
		w.Header().Set("Content-Encoding", "gzip")
		compressed := gzip.NewWriter(w)
		defer compressed.Close()
		out = compressed
	}
	fmt.Fprintf(out, `{"kind":"ConfigMapList","metadata":{"resourceVersion":"%d","continue":%q},"items":[%s]}`, s.revision+1, token, strings.Join(items, ","))
}

func (s *fake) serveWatch(w http.ResponseWriter, r *http.Request) {
	events := make(chan string, 10_000)
	s.mu.Lock()
	s.watches = append(s.watches, events)
	s.mu.Unlock()
	flusher := http.NewResponseController(w)
	flusher.Flush()
	for n := int64(0); ; n++ {
		select {
		case <-r.Context().Done():
			return
		case event := <-events:
			if s.ended != nil && s.ended(w, n) != nil {
				return
			}
			fmt.Fprintln(w, event)
			flusher.Flush()
		}
	}
}

// remove deletes an object, unless a finalizer holds it, and its dependents. The caller holds mu.
func (s *fake) remove(r *http.Request) {
	if strings.Contains(s.objects[r.URL.Path], `"finalizers"`) {
		return
	}
	delete(s.objects, r.URL.Path)
	if r.URL.Query().Get("propagationPolicy") != "Orphan" {
		maps.DeleteFunc(s.objects, func(_, o string) bool { return strings.Contains(o, `"ownerReferences"`) })
	}
}

// withData merges the data of a patch into an object.
func withData(object string, patch []byte) []byte {
	var whole, change struct {
		APIVersion, Kind string
		Metadata         map[string]any
		Data             map[string]string
	}
	if json.Unmarshal([]byte(object), &whole) != nil || json.Unmarshal(patch, &change) != nil {
		return nil
	}
	maps.Copy(whole.Data, change.Data)
	merged, _ := json.Marshal(map[string]any{"apiVersion": whole.APIVersion, "kind": whole.Kind, "metadata": whole.Metadata, "data": whole.Data})
	return merged
}

func nameOf(body []byte) string {
	var o struct{ Metadata struct{ Name string } }
	if err := json.Unmarshal(body, &o); err != nil {
		return err.Error()
	}
	return o.Metadata.Name
}
