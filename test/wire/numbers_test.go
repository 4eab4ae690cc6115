package wire_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/test/harness"
)

// The limits of 64 bits, and the first numbers beyond them.
const (
	most      = "9223372036854775807"
	least     = "-9223372036854775808"
	overMost  = "9223372036854775808"
	overLeast = "-9223372036854775809"
)

// number is a request with a number at its limit, and the answer of Kubernetes.
type number struct {
	name, method, path, body string
	code                     int
}

func numbers() []number {
	list := func(name, query string, code int) number {
		return number{name, "GET", configMaps + "?" + query, "", code}
	}
	empty := func(name, query string, code int) number {
		return number{name + " of nothing", "GET", "/api/v1/namespaces/kube-public/configmaps?" + query, "", code}
	}
	del := func(name, query, body string, code int) number {
		return number{name, "DELETE", configMaps + "/victim?dryRun=All" + query, body, code}
	}
	at := func(rv, name string) string {
		return "limit=1&continue=" + token(fmt.Sprintf(`{"v":"exeunt/v1","rv":%s,"name":"%s"}`, rv, name))
	}
	mint := func(name, ttl string, code int) number {
		return number{name, "POST", "/exeunt/mesh/tokens", `{"project":"default","ttlSeconds":` + ttl + `}`, code}
	}
	preview := func(name, limit string, code int) number {
		return number{name, "POST", "/apis/lifecycle.exeunt.dev/v1/deletionpreviews",
			`{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"DeletionPreview","spec":{"object":{"apiVersion":"v1","kind":"ConfigMap","namespace":"default","name":"victim"},"limit":` + limit + `}}`, code}
	}
	return []number{
		list("the largest limit", "limit="+most, 200),
		empty("the largest limit", "limit="+most, 200),
		empty("one less", "limit=9223372036854775806", 200),
		{"the largest limit everywhere", "GET", "/api/v1/configmaps?limit=" + most, "", 200},
		{"the largest limit, as a table", "GET", configMaps + "?pretty=true&limit=" + most, "", 200},
		list("the largest limit with a selector", "labelSelector=a%3Db&limit="+most, 200),
		list("the largest limit at a version", "resourceVersionMatch=NotOlderThan&resourceVersion=1&limit="+most, 200),
		list("a limit below zero", "limit=-1", 200),
		list("the smallest limit", "limit="+least, 200),
		list("a limit beyond all", "limit="+overMost, 400),
		list("a limit below all", "limit="+overLeast, 400),
		list("a limit with a fraction", "limit=1.5", 400),
		list("a timeout of a list", "timeoutSeconds="+most, 200),
		list("a timeout below zero", "timeoutSeconds=-1", 200),
		list("a timeout beyond all", "timeoutSeconds="+overMost, 400),
		list("a watch's timeout beyond all", "watch=1&timeoutSeconds="+overMost, 400),
		list("a watch of the last version", "watch=1&timeoutSeconds=1&resourceVersion="+most, 200),
		list("the last version", "resourceVersion="+most, 504),
		list("the last version exactly", "resourceVersionMatch=Exact&resourceVersion="+most, 504),
		list("a version beyond all", "resourceVersion="+overMost, 400),
		list("the smallest version", "resourceVersion="+least, 400),
		list("a token of the last version", at(most, "a"), 504),
		list("a token beyond all versions", at(overMost, "a"), 400),
		list("a token below zero", at("-1", "a"), 400),
		list("a token with a fraction", at("1.5", "a"), 400),
		list("a token of a name with NUL", at("1", `\u0000`), 400),
		list("a name with NUL", "fieldSelector=metadata.name%3D%00", 400),
		list("a name that is not UTF-8", "fieldSelector=metadata.name%3D%ff", 400),
		list("a watch of a name with NUL", "watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3D%00", 400),
		{"GET of the last version", "GET", configMaps + "/victim?resourceVersion=" + most, "", 504},
		{"GET of a version beyond all", "GET", configMaps + "/victim?resourceVersion=" + overMost, "", 400},
		del("the longest grace", "&gracePeriodSeconds="+most, "", 200),
		del("the shortest grace", "&gracePeriodSeconds="+least, "", 200),
		del("a grace beyond all", "&gracePeriodSeconds="+overMost, "", 400),
		del("the longest grace, in the body", "", options(`"dryRun":["All"],"gracePeriodSeconds":`+most), 200),
		del("a grace beyond all, in the body", "", options(`"dryRun":["All"],"gracePeriodSeconds":`+overMost), 400),
		del("a grace with an exponent", "", options(`"dryRun":["All"],"gracePeriodSeconds":1e400`), 400),
		{"a collection with the largest limit", "DELETE", configMaps + "?dryRun=All&limit=" + most, "", 200},
		mint("the longest token", most, 400),
		mint("a token beyond all", overMost, 400),
		mint("a token that has expired", least, 400),
		{"replicas beyond all", "PATCH", deployments + "/none/scale", `{"spec":{"replicas":2147483648}}`, 404},
		preview("a preview of the most", "10000", 201), // so the others are refused for their limit
		preview("a preview of more", "10001", 422),
		preview("a preview of the largest limit", most, 422),
		preview("a preview of the smallest limit", least, 422),
	}
}

// TestNumbers: the server answers the largest and the smallest numbers as Kubernetes does,
// at once, and writes nothing.
func TestNumbers(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		h := s.HTTP()
		makeVictims(t, h)
		for _, c := range numbers() {
			t.Run(c.name, func(t *testing.T) {
				contentType := ""
				if c.method == "PATCH" {
					contentType = mergePatch
				}
				refuse(t, s, h, bad{method: c.method, path: c.path, body: c.body, contentType: contentType, code: c.code})
			})
		}
		registryNumbers(t, s)
	})
}

// registryNumbers are those of the OCI distribution specification.
func registryNumbers(t *testing.T, s *harness.Server) {
	const index = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`
	ask := func(method, path, body string, headers ...string) *http.Response {
		t.Helper()
		request, err := http.NewRequest(method, "http://"+s.Registry()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers) && headers[i] != ""; i += 2 {
			request.Header.Set(headers[i], headers[i+1])
		}
		answer, err := s.RegistryHTTP().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { answer.Body.Close() })
		return answer
	}
	const digest = "sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881" // of "x"
	ask("POST", "/v2/default/numbers/blobs/uploads/?digest="+digest, "x", "Content-Type", "application/octet-stream")
	ask("PUT", "/v2/default/numbers/manifests/v1", index, "Content-Type", "application/vnd.oci.image.index.v1+json")
	upload := ask("POST", "/v2/default/numbers/blobs/uploads/", "").Header.Get("Location")
	for _, c := range []struct {
		name, method, path, body, header, value string
		code                                    int
	}{
		{"the most entries", "GET", "/v2/default/numbers/tags/list?n=" + most, "", "", "", 200},
		{"no entries", "GET", "/v2/default/numbers/tags/list?n=0", "", "", "", 200},
		{"entries beyond all", "GET", "/v2/default/numbers/tags/list?n=" + overMost, "", "", "", 400},
		{"fewer than no entries", "GET", "/v2/default/numbers/tags/list?n=-1", "", "", "", 400},
		{"the most repositories", "GET", "/v2/_catalog?n=" + most, "", "", "", 200},
		{"repositories beyond all", "GET", "/v2/_catalog?n=" + overMost, "", "", "", 400},
		{"a blob from its end on", "GET", "/v2/default/numbers/blobs/" + digest, "", "Range", "bytes=" + most + "-", 416},
		{"a blob from beyond all", "GET", "/v2/default/numbers/blobs/" + digest, "", "Range", "bytes=" + overMost + "-", 416},
		{"all of a blob and more", "GET", "/v2/default/numbers/blobs/" + digest, "", "Range", "bytes=0-" + most, 206},
		{"the longest end of a blob", "GET", "/v2/default/numbers/blobs/" + digest, "", "Range", "bytes=-" + most, 206},
		{"a chunk of everything", "PATCH", upload, "x", "Content-Range", "0-" + most, 400},
		{"a chunk of nearly everything", "PATCH", upload, "x", "Content-Range", "0-999999999999999998", 400},
		{"a chunk at the end", "PATCH", upload, "x", "Content-Range", "999999999999999998-999999999999999998", 416},
		{"a chunk beyond all", "PATCH", upload, "x", "Content-Range", overMost + "-" + overMost, 400},
		{"a chunk backwards", "PATCH", upload, "x", "Content-Range", "1-0", 400},
	} {
		t.Run("registry/"+c.name, func(t *testing.T) {
			if got := ask(c.method, c.path, c.body, c.header, c.value).StatusCode; got != c.code {
				t.Errorf("answered %d, want %d", got, c.code)
			}
		})
	}
	s.Alive()
}
