package attack_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/test/harness"
)

const (
	imageIndex    = "application/vnd.oci.image.index.v1+json"
	imageManifest = "application/vnd.oci.image.manifest.v1+json"
	lifecycleAPI  = "/apis/lifecycle.exeunt.dev/v1/"
	protobuf      = "application/vnd.kubernetes.protobuf"
)

// stalled is a request whose client stalls: it accepts no byte of the answer, or sends
// only one byte of the body.
type stalled struct {
	name         string
	registry     bool // sent to the registry; else to the API
	method, path string
	headers      []string // names and values
	body         string
}

func get(path string) stalled { return stalled{name: "GET " + path, method: "GET", path: path} }

func (s stalled) as(accept string) stalled {
	s.name, s.headers = s.name+" as "+accept, []string{"accept", accept}
	return s
}

func (s stalled) toRegistry() stalled { s.registry = true; return s }

func write(method, path, contentType, body string) stalled {
	return stalled{name: method + " " + path, method: method, path: path, headers: []string{"content-type", contentType}, body: body}
}

// connections is a server whose registry speaks HTTP/2 too.
type connections struct {
	*target
	images string // HOST:PORT
	client *http.Client
	blobs  map[string]string // digests by name
	node   string            // credential of a mesh node
}

func newConnections(t *testing.T, engine string) *connections {
	t.Helper()
	s := harness.Start(t, engine, "--registry-listen", "0.0.0.0:0", "--stall-timeout", "1h")
	a := &connections{target: newTarget(t, s), blobs: map[string]string{}}
	_, rest0, _ := strings.Cut(s.Said(), "The OCI registry is at https://")
	line, _, _ := strings.Cut(rest0, "\n")
	a.images = "127.0.0.1" + line[strings.LastIndex(line, ":"):]
	var err error
	if a.client, err = rest.HTTPClientFor(s.Config()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.client.CloseIdleConnections)
	return a
}

// registry sends a request to the registry; it must be answered with 2xx.
func (a *connections) registry(t *testing.T, method, path, contentType string, body []byte) *http.Response {
	t.Helper()
	request, err := http.NewRequest(method, "https://"+a.images+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", contentType)
	answer, err := a.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %s", method, path, answer.Status, text)
	}
	return answer
}

// fill stores what the requests ask for: objects of 20 kB in two namespaces, an
// image with a referrer, a node of the mesh.
func (a *connections) fill(t *testing.T) {
	t.Helper()
	data := strings.Repeat("x", 20_000)
	a.create(t, "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"many"}}`)
	for _, namespace := range []string{"default", "many"} {
		for i := range 30 {
			a.create(t, "/api/v1/namespaces/"+namespace+"/configmaps", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c-%d"},"data":{"x":%q}}`, i, data))
		}
	}
	a.http.Do(t, harness.Request{Method: "DELETE", Path: configMaps + "/c-29"}) // archived
	for name, content := range map[string]string{"config": "{}", "layer": strings.Repeat("layer", 100_000)} {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(content)))
		a.blobs[name] = digest
		a.registry(t, "POST", "/v2/default/image/blobs/uploads/?digest="+digest, "application/octet-stream", []byte(content))
	}
	image := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":2},"layers":[],"annotations":{"x":%q}`,
		imageManifest, a.blobs["config"], data)
	a.registry(t, "PUT", "/v2/default/image/manifests/v1", imageManifest, []byte(image+"}"))
	subject := fmt.Sprintf(`,"subject":{"mediaType":%q,"digest":"sha256:%x","size":%d}}`, imageManifest, sha256.Sum256([]byte(image+"}")), len(image)+1)
	a.blobs["image"] = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(image+"}")))
	a.registry(t, "PUT", "/v2/default/image/manifests/referrer", imageManifest, []byte(image+subject))

	// Lists of more than 4 kB wait for their clients in the handler; HTTP/2 buffers less.
	long := strings.Repeat("long", 25)
	index := []byte(`{"schemaVersion":2,"mediaType":"` + imageIndex + `","manifests":[]}`)
	tags := ""
	for i := range 60 {
		tags += fmt.Sprintf("&tag=%s-%d", long, i)
		a.registry(t, "PUT", fmt.Sprintf("/v2/default/%s-%d/manifests/v1", long, i), imageIndex, index)
	}
	a.registry(t, "PUT", fmt.Sprintf("/v2/default/image/manifests/sha256:%x?%s", sha256.Sum256(index), tags[1:]), imageIndex, index)
	secret := (rand.Text() + rand.Text())[:43]
	made := a.http.Do(t, harness.Request{Method: "POST", Path: "/exeunt/mesh/tokens", Body: `{"project":"many","ttlSeconds":600}`})
	enrol := fmt.Sprintf(`{"token":%s,"nonce":%q,"secret":%q,"name":"alpha"}`, made.Field("text"), rand.Text(), secret)
	enrolled := a.http.Do(t, harness.Request{Method: "POST", Path: "/exeunt/mesh/node/enrol", Body: enrol, Anonymous: true})
	if enrolled.Code != http.StatusOK {
		t.Fatalf("enrol: %d %s", enrolled.Code, enrolled.Body)
	}
	a.node = "exn_" + strings.Trim(enrolled.Field("uid"), `"`) + "_" + secret
}

// unread returns requests for every kind of answer.
func (a *connections) unread() []stalled {
	many := "/api/v1/namespaces/many/configmaps"
	list := get("/api/v1/configmaps")
	watch := get("/api/v1/configmaps?watch=true")
	target := `"spec":{"object":{"apiVersion":"v1","kind":"Namespace","name":"many"}}}`
	object := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"y":%q}}`, name, strings.Repeat("y", 20_000))
	}
	node := func(s stalled) stalled { s.headers = append(s.headers, "authorization", "Bearer "+a.node); return s }
	requests := []stalled{
		list.as("application/json"), list.as("application/yaml"), list.as(protobuf),
		list.as("application/json;as=Table;v=v1;g=meta.k8s.io"), list.as("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"),
		get("/api/v1/configmaps?limit=10"), get(many + "?resourceVersion=0"), get("/api/v1/configmaps?labelSelector=a!%3Db"),
		watch.as("application/json"), watch.as(protobuf + ";stream=watch"), watch.as("application/json;as=Table;v=v1;g=meta.k8s.io"),
		get("/api/v1/configmaps?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"),
		get(many + "/c-0"), get(many + "/c-0").as(protobuf),
		write("POST", many, "application/json", object("new")), write("PUT", many+"/c-1", "application/json", object("c-1")),
		write("PATCH", many+"/c-2", "application/merge-patch+json", `{"data":{"y":"y"}}`), write("DELETE", many+"/c-3", "application/json", ""),
		write("DELETE", many+"?fieldSelector=metadata.name%3Dc-4", "application/json", ""),
		write("POST", lifecycleAPI+"deletionpreviews", "application/json", `{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"DeletionPreview",`+target),
		write("POST", lifecycleAPI+"deletionreports", "application/json", `{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"DeletionReport",`+target),
		get(lifecycleAPI + "archivedobjects"), get("/api"), get("/apis"), get("/apis/apps/v1"),
		get("/apis").as("application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList"),
		get("/openapi/v2"), get("/openapi/v3"), get("/openapi/v3/api/v1"), get("/metrics"), get("/version"), get("/readyz"),
		get("/debug/pprof/"), get("/debug/pprof/heap"), get("/debug/pprof/goroutine?debug=2"),
		get("/exeunt/gc"), get("/exeunt/registry/gc"), get("/exeunt/registry/gc/dry-run"), get("/exeunt/registry/deleted"), get("/exeunt/mesh/tokens"),
		node(get("/exeunt/mesh/node/peers")), node(get("/exeunt/mesh/node/peers?since=1&wait=1ms")),
		node(write("POST", "/exeunt/mesh/node/heartbeat", "application/json", "")),
	}
	const repository = "/v2/default/image"
	for _, path := range []string{
		"/v2/", "/v2/_catalog", repository + "/tags/list", repository + "/referrers/" + a.blobs["image"], repository + "/manifests/v1",
		repository + "/blobs/" + a.blobs["config"], repository + "/blobs/" + a.blobs["layer"], repository + "/blobs/nothing",
	} {
		requests = append(requests, get(path).toRegistry())
	}
	return requests
}

// unsent returns requests with every kind of body.
func (a *connections) unsent(t *testing.T) []stalled {
	t.Helper()
	const repository = "/v2/default/image"
	uploads := repository + "/blobs/uploads/"
	upload := func() string { return a.registry(t, "POST", uploads, "", nil).Header.Get("Location") }
	digest := "digest=" + a.blobs["image"]
	requests := []stalled{
		write("POST", "/api/v1/namespaces/many/configmaps", "application/json", ""), write("PUT", "/api/v1/namespaces/many/configmaps/c-5", "application/json", ""),
		write("PATCH", "/api/v1/namespaces/many/configmaps/c-6", "application/merge-patch+json", ""), write("DELETE", "/api/v1/namespaces/many/configmaps/c-7", "application/json", ""),
		write("POST", lifecycleAPI+"deletionpreviews", "application/json", ""),
		write("POST", "/exeunt/mesh/tokens", "application/json", ""), write("POST", "/exeunt/mesh/node/enrol", "application/json", ""),
	}
	for _, r := range []stalled{
		write("PUT", repository+"/manifests/v2", imageIndex, ""),
		write("POST", uploads+"?"+digest, "application/octet-stream", ""),
		write("PATCH", upload(), "application/octet-stream", ""), write("PUT", upload()+"?"+digest, "application/octet-stream", ""),
	} {
		requests = append(requests, r.toRegistry())
	}
	return requests
}

// address returns the address to which a request is sent.
func (a *connections) address(r stalled) string {
	if r.registry {
		return a.images
	}
	return a.host
}

// TestStalledClientsHoldNoConnection: no request holds a database connection while it
// waits for its client.
func TestStalledClientsHoldNoConnection(t *testing.T) {
	for _, engine := range harness.Engines(t.Name()) {
		t.Run(engine, func(t *testing.T) {
			a := newConnections(t, engine)
			a.fill(t)
			for _, length := range []string{"100", "1000000"} {
				for _, r := range a.unsent(t) { // begins uploads: an upload takes one body at a time
					if length != "100" && !r.registry {
						continue // the API reads bodies of all lengths in the same way
					}
					conn := a.dialTo(t, a.address(r), "http/1.1")
					send(t, conn, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %s\r\n\r\n{", r.method, r.path, r.headers[1], length))
					if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
						t.Fatal(err)
					}
					if line, _ := bufio.NewReader(conn).ReadString('\n'); line != "" {
						t.Errorf("%s: answered before its body: %s", r.name, line)
					}
				}
			}
			a.wantNoneInUse(t) // the server waits 20 seconds for the bodies
			for _, r := range a.unread() {
				s := a.request(t, a.dialTo(t, a.address(r), "h2"), 0, r.body, append([]string{":method", r.method, ":path", r.path}, r.headers...)...)
				status, err := s.readStatus()
				if err != nil || status[0] != '2' && !strings.HasSuffix(r.path, "/nothing") {
					t.Errorf("%s: answered %s, %v", r.name, status, err)
				}
			}
			a.wantNoneInUse(t)
		})
	}
}

// wantNoneInUse: no connection of the database is in use, apart from moments.
func (a *connections) wantNoneInUse(t *testing.T) {
	t.Helper()
	harness.Within(t, 10*time.Second, "no connection in use", func() error {
		metrics := string(a.http.Get(t, "/metrics").Body)
		_, value, _ := strings.Cut(metrics, "\nexeunt_database_connections_in_use ")
		if value, _, _ = strings.Cut(value, "\n"); value != "0" {
			return fmt.Errorf("%s connections are in use", value)
		}
		return nil
	})
}
