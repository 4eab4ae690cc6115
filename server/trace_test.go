package server

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/internal/tracing/otlp/otlptest"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// traced sends a request of a client that traces.
func traced(t *testing.T, client *http.Client, method, url, trace, parent string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("traceparent", fmt.Sprintf("00-%s-%s-01", trace, parent))
	answer, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %s %v", method, url, answer.Status, body, err)
	}
}

const (
	objectTrace, imageTrace = "4bf92f3577b34da6a3ce929d0e0e4736", "5bf92f3577b34da6a3ce929d0e0e4736"
	clientSpan              = "00f067aa0ba902b7"
)

// TestTrace: one trace has the DELETE of a client and the review of what the object owned,
// although the server restarts in between. So has another for the DELETE of a tag, and the
// reviews until the bytes are unlinked.
func TestTrace(t *testing.T) {
	for _, engine := range dbtest.EnginesOf(t) {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			spans := otlptest.NewReceiver(t)
			config := Config{
				Data: filepath.Join(t.TempDir(), "data"), Database: dbtest.Open(t, engine), OTLPEndpoint: spans.URL,
				RegistryListen: "127.0.0.1:0", RegistryAnonymous: true, NoCollector: true, RegistryKeepManifests: true, RegistryKeepBlobs: true,
				RegistryReviewAfter: map[string]time.Duration{},
			}
			for _, event := range []string{"blob_upload", "manifest_upload", "tag_delete", "manifest_delete", "layer_delete", "blob_delete", "existence_check"} {
				config.RegistryReviewAfter[event] = 0
			}
			r := start(t, config)
			r.createFamily(t)
			client, err := rest.HTTPClientFor(r.http)
			if err != nil {
				t.Fatal(err)
			}
			traced(t, client, "DELETE", r.http.Host+"/api/v1/namespaces/default/configmaps/parent", objectTrace, clientSpan)
			r.pushImage(t)
			r.stop()
			config.NoCollector, config.RegistryKeepBlobs = false, false
			r = start(t, config)
			dbtest.Await(t, "the dependent is collected", func() bool {
				list, err := r.client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{LabelSelector: "family"})
				return err == nil && len(list.Items) == 0
			})
			// The review that the push of the blob asked for has no trace. It ends before the
			// manifest goes: it could remove the blob.
			dbtest.Await(t, "the blob is reviewed", func() bool {
				metrics, err := r.client.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
				return err == nil && strings.Contains(string(metrics), `exeunt_reviews_total{outcome="done",queue="registry-blobs"} 1`)
			})
			traced(t, http.DefaultClient, "DELETE", r.image()+"manifests/v1", imageTrace, clientSpan)
			r.stop()
			config.RegistryKeepManifests = false
			r = start(t, config)
			dbtest.Await(t, "the bytes are unlinked", func() bool {
				return spans.Names(imageTrace)["review registry-unlinks"] > 0
			})
			r.stop() // sends the last spans
			names := spans.Names(objectTrace)
			if names["HTTP DELETE"] != 1 || names["review objects"] == 0 {
				t.Errorf("the trace of the object has the spans %v", names)
			}
			spans.WantParents(t, objectTrace, clientSpan)
			spans.WantParents(t, imageTrace, clientSpan)
			names = spans.Names(imageTrace)
			if names["HTTP DELETE"] != 1 || names["review registry-manifests"] == 0 || names["review registry-blobs"] == 0 {
				t.Errorf("the trace of the image has the spans %v", names)
			}
		})
	}
}

// createFamily creates a ConfigMap and one that it owns.
func (r *running) createFamily(t *testing.T) {
	t.Helper()
	maps := r.client.CoreV1().ConfigMaps("default")
	parent, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "parent", Labels: map[string]string{"family": ""}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "child", Labels: parent.Labels, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "parent", UID: parent.UID},
	}}}
	if _, err := maps.Create(t.Context(), child, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// image is the address of a repository.
func (r *running) image() string {
	return regexp.MustCompile(`The OCI registry is at (\S+)`).FindStringSubmatch(r.out.String())[1] + "/v2/shop/web/"
}

// pushImage pushes an image with one tag.
func (r *running) pushImage(t *testing.T) {
	t.Helper()
	base := r.image()
	send := func(method, path, contentType, body string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", contentType)
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusCreated {
			t.Fatalf("%s %s: %s", method, path, answer.Status)
		}
	}
	config := strings.Repeat("{}", 100_000) // too large for the database
	d := digest.FromString(config)
	send("POST", "blobs/uploads/?digest="+d.String(), "application/octet-stream", config)
	send("PUT", "manifests/v1", "application/vnd.oci.image.manifest.v1+json", fmt.Sprintf(`{"schemaVersion":2,
"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"%s","size":%d},"layers":[]}`, d, len(config)))
}
