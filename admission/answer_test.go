package admission

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/kind"
)

// TestHostileConversion: a conversion webhook whose answer does not end, or is none, fails
// the request, and the server has read a bounded part of it.
func TestHostileConversion(t *testing.T) {
	const endless, most = 512 << 20, 64 << 20
	for name, answer := range map[string]func(w http.ResponseWriter, sent *atomic.Int64){
		"an endless answer": func(w http.ResponseWriter, sent *atomic.Int64) {
			w.Header().Set("Content-Type", "application/json")
			part := []byte(strings.Repeat(" ", 1<<20))
			for sent.Load() < endless {
				n, err := w.Write(part)
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		},
		"an endless error": func(w http.ResponseWriter, sent *atomic.Int64) {
			w.WriteHeader(http.StatusBadRequest)
			part := []byte(strings.Repeat("x", 1<<20))
			for sent.Load() < endless {
				n, err := w.Write(part)
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		},
		"no JSON": func(w http.ResponseWriter, _ *atomic.Int64) { _, _ = w.Write([]byte("hello")) },
		"another object": func(w http.ResponseWriter, _ *atomic.Int64) {
			_, _ = w.Write([]byte(`{"kind":"Pod","apiVersion":"v1"}`))
		},
		"no connection": func(http.ResponseWriter, *atomic.Int64) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int64
			hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, &sent) }))
			defer hook.Close()
			chain, err := New(Config{Client: &rest.Config{Host: "http://self.invalid"}, Authorizer: authorizerfactory.NewAlwaysDenyAuthorizer(), Kinds: kind.NewRegistry(nil)})
			if err != nil {
				t.Fatal(err)
			}
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
			crd := &apiextensionsv1.CustomResourceDefinition{}
			crd.Name, crd.Spec.Group = "things.example.com", "example.com"
			crd.Spec.Names.Kind, crd.Spec.Names.ListKind = "Thing", "ThingList"
			crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}, {Name: "v2", Served: true}}
			crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
				ConversionReviewVersions: []string{"v1"}, ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: &hook.URL, CABundle: ca},
			}}
			converter, _, err := chain.NewConverter(crd)
			if err != nil {
				t.Fatal(err)
			}
			in := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "a"}}}
			_, err = converter.ConvertToVersion(in, schema.GroupVersion{Group: "example.com", Version: "v2"})
			t.Logf("%d bytes were sent: %.200v", sent.Load(), err)
			if err == nil || sent.Load() > most {
				t.Errorf("%d bytes were sent, want %d at most; error %v", sent.Load(), most, err)
			}
			if err != nil && len(err.Error()) > 10_000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}
