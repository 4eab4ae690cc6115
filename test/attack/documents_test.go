package attack_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/harness"
)

// cheap limits the time to refuse or serve a document that took a minute before the fix.
const cheap = 15 * time.Second

// document is a small request that was expensive before the fix.
type document struct {
	name, method, path, contentType, body string
	code                                  int
}

func documents() []document {
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	patch := func(name, contentType, body string, code int) document {
		return document{name, "PATCH", configMaps + "/probe", contentType, body, code}
	}
	return []document{
		patch("copy bomb", "application/json-patch+json",
			`[{"op":"add","path":"/z","value":["`+strings.Repeat("x", 1000)+`"]}`+strings.Repeat(`,{"op":"copy","from":"/z","path":"/z/-"}`, 40)+`]`, 422),
		patch("deep merge patch", "application/merge-patch+json", deep(9000), 400),
		patch("deep strategic patch", "application/strategic-merge-patch+json", deep(9000), 400),
		patch("a merge patch as deep as may be, of 3 MiB", "application/merge-patch+json",
			strings.Repeat(`{"a":`, 250)+`"`+strings.Repeat("x", 3<<20-4000)+`"`+strings.Repeat("}", 250), 413),
		{"largest limit", "GET", "/api/v1/namespaces/kube-public/configmaps?limit=9223372036854775807", "", "", 200},
		{"YAML of aliases", "POST", configMaps, "application/yaml",
			"a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 100000) + "]", 413},
	}
}

// TestExpensiveDocuments: the cost of a document is proportional to its size. The server
// answers other clients meanwhile, and stops working on the document once it has answered.
func TestExpensiveDocuments(t *testing.T) {
	a := startTarget(t, harness.SQLite)
	for _, d := range documents() {
		t.Run(d.name, func(t *testing.T) {
			before := a.memory(t)
			p := a.probe(t)
			start := time.Now()
			answer := a.http.Do(t, harness.Request{Method: d.method, Path: d.path, ContentType: d.contentType, Body: d.body})
			took := time.Since(start)
			p.end()
			t.Logf("%d bytes: %d after %v", len(d.body), answer.Code, took.Round(time.Millisecond))
			if answer.Code != d.code {
				t.Errorf("answered %d, want %d: %.300s", answer.Code, d.code, answer.Body)
			}
			if took > cheap {
				t.Errorf("answered after %v, want %v at most", took, cheap)
			}
			a.awaitMemory(t, before)
		})
	}
}

// TestManyMediaTypes: the server refuses a manifest with 5,000 new media types at once.
func TestManyMediaTypes(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		const digest = "sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881" // of "x"
		put := func(method, path, contentType, body string) (int, time.Duration) {
			t.Helper()
			request, err := http.NewRequest(method, "http://"+s.Registry()+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", contentType)
			start := time.Now()
			answer, err := s.RegistryHTTP().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			return answer.StatusCode, time.Since(start)
		}
		manifest := func(n int) string {
			layers := make([]string, n)
			for i := range layers {
				layers[i] = fmt.Sprintf(`{"mediaType":"application/x.%d.%d","digest":%q,"size":1}`, n, i, digest)
			}
			return fmt.Sprintf(`{"schemaVersion":2,"config":{"mediaType":"application/x","digest":%q,"size":1},"layers":[%s]}`, digest, strings.Join(layers, ","))
		}
		const image = "application/vnd.oci.image.manifest.v1+json"
		put("POST", "/v2/default/types/blobs/uploads/?digest="+digest, "application/octet-stream", "x")
		for n, want := range map[int]int{5000: http.StatusBadRequest, 490: http.StatusCreated} {
			code, took := put("PUT", fmt.Sprintf("/v2/default/types/manifests/v%d", n), image, manifest(n))
			t.Logf("%d media types: %d after %v", n, code, took.Round(time.Millisecond))
			if code != want || took > cheap {
				t.Errorf("%d media types: answered %d after %v, want %d within %v", n, code, took, want, cheap)
			}
		}
	})
}
