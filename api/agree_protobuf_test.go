package api

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/exeunt/exeunt/kind"
)

// inProtobuf returns the same row with a body and an answer in protobuf, for a row of a
// built-in kind that the fast path serves.
func (r row) inProtobuf() (row, bool) {
	if r.library || r.protobuf || strings.HasPrefix(r.url, widgets) {
		return row{}, false
	}
	r.protobuf = true
	r.name += ", protobuf"
	r.headers = append(slices.Clone(r.headers), "Accept: application/vnd.kubernetes.protobuf,application/json")
	return r, true
}

// sendRow sends the request of a row. An answer in protobuf is returned as JSON, with its
// headers unchanged.
func (w *world) sendRow(t *testing.T, r row, body string) reply {
	t.Helper()
	headers := r.headers
	if r.protobuf && r.method != "PATCH" && body != "" {
		body, headers = w.toProtobuf(t, r, body), append(slices.Clone(headers), "Content-Type: "+runtime.ContentTypeProtobuf)
	}
	got := w.send(r.method, r.url, body, headers...)
	if got.header.Get("Content-Type") != runtime.ContentTypeProtobuf {
		return got
	}
	obj, _, err := protobufOf(w.versionOf(t, r.url)).Decode([]byte(got.body), nil, nil)
	if err != nil {
		t.Fatalf("%v in %q", err, got.body)
	}
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	got.body = string(data)
	return got
}

// toProtobuf encodes a body: DeleteOptions, or an object of the kind that the URL names.
func (w *world) toProtobuf(t *testing.T, r row, body string) string {
	t.Helper()
	v := w.versionOf(t, r.url)
	obj, gvk := v.New(), v.GVK
	if r.method == "DELETE" {
		obj, gvk = &metav1.DeleteOptions{}, metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	}
	if err := json.Unmarshal([]byte(body), obj); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if obj.GetObjectKind().GroupVersionKind().Kind == "" {
		obj.GetObjectKind().SetGroupVersionKind(gvk)
	}
	data, err := runtime.Encode(protobufOf(v), obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func protobufOf(v *kind.Version) runtime.Serializer {
	info, _ := runtime.SerializerInfoForMediaType(v.Wire.Serializer.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	return info.Serializer
}

func (w *world) versionOf(t *testing.T, url string) *kind.Version {
	t.Helper()
	resolver := &genericrequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	info, err := resolver.NewRequestInfo(httptest.NewRequest("GET", url, nil))
	if err != nil {
		t.Fatal(err)
	}
	v, ok := w.api.Kinds.Snapshot().Lookup(schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource})
	if !ok {
		t.Fatalf("no kind at %s", url)
	}
	return v
}
