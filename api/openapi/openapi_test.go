package openapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	openapiv3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	"k8s.io/kube-openapi/pkg/handler3"

	"github.com/exeunt/exeunt/kind"
)

const (
	protoV2Type = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	protoV3Type = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
)

// fewService is the service of fewKinds, shared by the tests that only read, so
// that each document is built once.
func fewService(t *testing.T) *Service {
	t.Helper()
	shared.Do(func() { sharedService = New(kind.NewRegistry(fewKinds(t)), "v0.1.0") })
	return sharedService
}

var (
	shared        sync.Once
	sharedService *Service // set once
)

func readIndex(t *testing.T, s *Service) map[string]string {
	t.Helper()
	var index handler3.OpenAPIV3Discovery
	if err := json.Unmarshal(get(t, s, "/openapi/v3").Body.Bytes(), &index); err != nil {
		t.Fatal(err)
	}
	urls := map[string]string{}
	for name, entry := range index.Paths {
		urls[name] = entry.ServerRelativeURL
	}
	return urls
}

func TestIndexLeadsToEveryDocument(t *testing.T) {
	t.Parallel()
	s := fewService(t)
	urls := readIndex(t, s)
	for _, name := range []string{
		"api/v1", "apis/apps/v1", "apis/rbac.authorization.k8s.io/v1", "apis/apiextensions.k8s.io/v1",
		"apis/authorization.k8s.io/v1", "apis/example.exeunt.dev/v1", "apis/plain.exeunt.dev/v1beta1",
	} {
		if !strings.HasPrefix(urls[name], "/openapi/v3/"+name+"?hash=") {
			t.Errorf("index has %q for %s", urls[name], name)
			continue
		}
		w := get(t, s, urls[name])
		if got := w.Header().Get("Cache-Control"); got != "public, immutable" {
			t.Errorf("%s: Cache-Control %q", name, got)
		}
	}
	if len(urls) != 7 {
		t.Errorf("index has %d entries: %v", len(urls), urls)
	}
}

func TestOldHashIsSentToTheNewOne(t *testing.T) {
	t.Parallel()
	s := fewService(t)
	w := ask(s, "/openapi/v3/api/v1?hash=OLD")
	if w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != readIndex(t, s)["api/v1"] {
		t.Errorf("answers %d to %s", w.Code, w.Header().Get("Location"))
	}
}

func TestETag(t *testing.T) {
	t.Parallel()
	s := fewService(t)
	again := New(kind.NewRegistry(fewKinds(t)), "v0.1.0")
	for _, path := range []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/apis/apps/v1"} {
		tag := get(t, s, path).Header().Get("ETag")
		if len(tag) < 10 || tag[0] != '"' {
			t.Errorf("%s: ETag %s", path, tag)
		}
		if w := ask(s, path, "If-None-Match", tag); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
			t.Errorf("%s: known tag answers %d with %d bytes", path, w.Code, w.Body.Len())
		}
		get(t, s, path, "If-None-Match", `"other"`)
		if got := get(t, again, path).Header().Get("ETag"); got != tag {
			t.Errorf("%s: another server has ETag %s, not %s", path, got, tag)
		}
	}
}

func TestGzip(t *testing.T) {
	t.Parallel()
	s := fewService(t)
	plain := get(t, s, "/openapi/v3/api/v1").Body.Bytes()
	w := get(t, s, "/openapi/v3/api/v1", "Accept-Encoding", "deflate, gzip;q=0.5")
	if w.Header().Get("Content-Encoding") != "gzip" {
		t.Fatalf("headers %v", w.Header())
	}
	r, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(unpacked, plain) {
		t.Errorf("unpacked %d bytes, want %d; error %v", len(unpacked), len(plain), err)
	}
	for header, want := range map[string][]byte{"bytes=7-12": plain[7:13], "bytes=-5": plain[len(plain)-5:], "bytes=0-": plain} {
		if got := ask(s, "/openapi/v3/api/v1", "Range", header).Body.Bytes(); !bytes.Equal(got, want) {
			t.Errorf("Range %s: %d bytes, want %d", header, len(got), len(want))
		}
	}
	for _, refused := range []string{"gzip;q=0", "gzip; q=0.000", "br"} {
		if w := get(t, s, "/openapi/v2", "Accept-Encoding", refused); w.Header().Get("Content-Encoding") != "" {
			t.Errorf("Accept-Encoding %q is answered with gzip", refused)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := fewService(t)
	for path, want := range map[string]int{
		"/openapi/v3/apis/nobody/v1":  http.StatusNotFound,
		"/openapi/v3/apis/apps/v2":    http.StatusNotFound,
		"/openapi/v3/api/v1/more":     http.StatusNotFound,
		"/openapi/v3/":                http.StatusNotFound,
		"/openapi/v3/apis//v1":        http.StatusNotFound,
		"/openapi/v4":                 http.StatusNotFound,
		"/openapi/v3/api/v1?hash=abc": http.StatusMovedPermanently,
	} {
		if w := ask(s, path); w.Code != want {
			t.Errorf("%s answers %d, want %d", path, w.Code, want)
		}
	}
	if w := ask(s, "/openapi/v2", "Accept", "text/html"); w.Code != http.StatusNotAcceptable {
		t.Errorf("text/html answers %d", w.Code)
	}
	if w := ask(s, "/openapi/v3", "Accept", protoV3Type); w.Code != http.StatusNotAcceptable {
		t.Errorf("the index in protobuf answers %d", w.Code)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/openapi/v2", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" {
		t.Errorf("POST answers %d with Allow %q", w.Code, w.Header().Get("Allow"))
	}
}

func TestNegotiation(t *testing.T) {
	t.Parallel()
	s := fewService(t)
	for accept, want := range map[string]string{
		"":                                  "application/json",
		"*/*":                               "application/json",
		"application/*":                     "application/json",
		"text/html, application/json;q=0.5": "application/json",
		protoV2Type + ", application/json":  "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
		strings.Replace(protoV2Type, "@", ".", 1): "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
	} {
		if got := get(t, s, "/openapi/v2", "Accept", accept).Header().Get("Content-Type"); got != want {
			t.Errorf("Accept %q gives %s, want %s", accept, got, want)
		}
	}
}

func TestProtobuf(t *testing.T) {
	t.Parallel()
	s := fewService(t)
	var v2 openapiv2.Document
	if err := proto.Unmarshal(get(t, s, "/openapi/v2", "Accept", protoV2Type).Body.Bytes(), &v2); err != nil {
		t.Fatal(err)
	}
	doc := getV2(t, s)
	if got, want := len(v2.GetDefinitions().GetAdditionalProperties()), len(doc.Definitions); got != want || want < 100 {
		t.Errorf("protobuf v2 has %d definitions, JSON %d", got, want)
	}
	if got, want := len(v2.GetPaths().GetPath()), len(doc.Paths.Paths); got != want {
		t.Errorf("protobuf v2 has %d paths, JSON %d", got, want)
	}
	// It is built from chunks, and must equal the document converted at once.
	whole, err := openapiv2.ParseDocument(get(t, s, "/openapi/v2").Body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(whole, &v2) {
		t.Error("protobuf v2 is not the JSON document")
	}
	for _, gv := range []string{"api/v1", "apis/example.exeunt.dev/v1"} {
		var v3 openapiv3.Document
		if err := proto.Unmarshal(get(t, s, "/openapi/v3/"+gv, "Accept", protoV3Type).Body.Bytes(), &v3); err != nil {
			t.Fatal(err)
		}
		if len(v3.GetComponents().GetSchemas().GetAdditionalProperties()) == 0 || len(v3.GetPaths().GetPath()) == 0 {
			t.Errorf("protobuf v3 of %s is empty", gv)
		}
	}
}

func TestChangedKindsShowInTheNextAnswer(t *testing.T) {
	t.Parallel()
	kinds := fewKinds(t)
	reg := kind.NewRegistry(kinds)
	s := New(reg, "v0.1.0")
	before := readIndex(t, s)
	v2 := get(t, s, "/openapi/v2").Header().Get("ETag")

	reg.Put(newKind(gvk("late.exeunt.dev", "v1", "Comer"), "comers", nil))
	changed := widget(t)
	changed.Versions[0].Schema().Description = "Widget is another thing."
	reg.Put(changed)
	after := readIndex(t, s)
	if after["apis/late.exeunt.dev/v1"] == "" {
		t.Error("a new kind is not in the index")
	}
	if name := "apis/example.exeunt.dev/v1"; after[name] == before[name] {
		t.Error("a changed kind keeps its hash")
	}
	if name := "apis/apps/v1"; after[name] != before[name] {
		t.Errorf("an untouched group moved from %s to %s", before[name], after[name])
	}
	doc := getV2(t, s)
	if got := doc.Definitions["dev.exeunt.example.v1.Widget"].Description; got != "Widget is another thing." {
		t.Errorf("v2 still says %q", got)
	}
	if _, ok := doc.Definitions["dev.exeunt.late.v1.Comer"]; !ok {
		t.Error("a new kind is not in v2")
	}

	reg.Replace(map[string]*kind.Kind{"comers.late.exeunt.dev": nil})
	reg.Put(kinds[len(kinds)-2])
	if w := ask(s, "/openapi/v3/apis/late.exeunt.dev/v1"); w.Code != http.StatusNotFound {
		t.Errorf("a removed group answers %d", w.Code)
	}
	if got := get(t, s, "/openapi/v2").Header().Get("ETag"); got != v2 {
		t.Error("v2 of the same kinds has another ETag")
	}
}

func TestConcurrentRequests(t *testing.T) {
	t.Parallel()
	reg := kind.NewRegistry(fewKinds(t))
	s := New(reg, "v0.1.0")
	var wg sync.WaitGroup
	for range 2 {
		for _, path := range []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1"} {
			wg.Go(func() {
				if w := ask(s, path, "Accept-Encoding", "gzip"); w.Code != http.StatusOK {
					t.Errorf("%s answers %d", path, w.Code)
				}
			})
		}
		changed := widget(t)
		wg.Go(func() { reg.Put(changed) })
	}
	wg.Wait()
}

// TestIndexWithoutDocuments: the index builds no document, and each has the hash that the index names. No more than customKept of custom kinds are kept.
func TestIndexWithoutDocuments(t *testing.T) {
	t.Parallel()
	const many = customKept + 10
	reg := kind.NewRegistry(fewKinds(t))
	for i := range many {
		k := newKind(gvk(fmt.Sprintf("g%d.exeunt.dev", i), "v1", "Thing"), "things", nil)
		k.Definition, k.Fingerprint = k.Storage, fmt.Sprint(i)
		reg.Put(k)
	}
	s := New(reg, "v0.1.0")
	urls := readIndex(t, s)
	if got := len(s.v3); got != 0 {
		t.Errorf("%d of %d documents were built", got, len(urls))
	}
	for name, url := range urls {
		if w := get(t, s, url); w.Header().Get("Cache-Control") != "public, immutable" {
			t.Errorf("%s has another hash", name)
		}
	}
	if got := len(s.v3); got > len(urls)-many+customKept {
		t.Errorf("%d documents are kept", got)
	}
	changed := newKind(gvk("g0.exeunt.dev", "v1", "Thing"), "things", nil)
	changed.Definition, changed.Fingerprint = changed.Storage, "other"
	reg.Put(changed)
	again := readIndex(t, s)
	if again["apis/g0.exeunt.dev/v1"] == urls["apis/g0.exeunt.dev/v1"] || again["apis/g1.exeunt.dev/v1"] != urls["apis/g1.exeunt.dev/v1"] {
		t.Error("the hashes do not follow the kinds")
	}
}
