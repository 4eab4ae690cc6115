package custom

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilhook "k8s.io/apiserver/pkg/util/webhook"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// hook is a conversion webhook: the teeth of v1 are the cogs of v2.
type hook struct {
	*httptest.Server
	calls, objects atomic.Int64
	down           atomic.Bool
	strips         atomic.Bool // it removes all annotations
}

func startHook(t *testing.T) *hook {
	h := &hook{}
	h.Server = httptest.NewTLSServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil || h.down.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	h.calls.Add(1)
	answer := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, raw := range review.Request.Objects {
		h.objects.Add(1)
		var u unstructured.Unstructured
		if err := u.UnmarshalJSON(raw.Raw); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		spec, _ := u.Object["spec"].(map[string]any)
		if from := map[string]string{"example.com/v1": "teeth", "example.com/v2": "cogs"}[u.GetAPIVersion()]; spec[from] != nil {
			spec[map[string]string{"teeth": "cogs", "cogs": "teeth"}[from]] = spec[from]
			delete(spec, from)
		}
		if h.strips.Load() {
			u.SetAnnotations(nil)
		}
		u.SetAPIVersion(review.Request.DesiredAPIVersion)
		answer.ConvertedObjects = append(answer.ConvertedObjects, runtime.RawExtension{Object: &u})
	}
	review.Request, review.Response = nil, answer
	_ = json.NewEncoder(w).Encode(review)
}

// asked returns how many calls and objects reached the webhook since the last time.
func (h *hook) asked() (calls, objects int64) { return h.calls.Swap(0), h.objects.Swap(0) }

// geared is plain with a second version, which is the storage version, and the webhook.
func (h *hook) geared(t *testing.T) string {
	return edit(t, plain, "scope: Cluster", "scope: Cluster\n  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: '"+h.URL+"'}}}",
		"    storage: true", "    storage: false") + `
  - name: v2
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {cogs: {type: integer}}}}}}
`
}

// update takes a definition through an update.
func (h *hook) update(t *testing.T, before *apiextensionsv1.CustomResourceDefinition, text string) (*apiextensionsv1.CustomResourceDefinition, *kind.Kind) {
	t.Helper()
	crd := parse(t, text)
	crd.ResourceVersion, crd.UID = "2", before.UID
	if c := crd.Spec.Conversion; c.Webhook != nil {
		c.Webhook.ClientConfig.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	}
	s := Definition().Versions[0].Strategy
	if _, errs := s.Update(t.Context(), crd, before); len(errs) > 0 {
		t.Fatalf("the update is not valid: %v", errs)
	}
	crd.Status, _ = Accept(crd, nil, now)
	factory, err := conversion.NewCRConverterFactory(utilhook.NewDefaultServiceResolver(), nil)
	if err != nil {
		t.Fatal(err)
	}
	k, err := New(crd, factory.NewConverter)
	if err != nil {
		t.Fatal(err)
	}
	return crd, k
}

func gear(version, name, spec string) string {
	return "apiVersion: example.com/" + version + "\nkind: Gear\nmetadata: {name: " + name + ", uid: u-" + name + "}\nspec: " + spec + "\n"
}

func stored(t *testing.T, v *kind.Version, name, spec string) []byte {
	t.Helper()
	body, err := v.Encode(request(t, v, gear(v.GVK.Version, name, spec)))
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// TestConversionWebhook: objects from before and after the change of the storage version
// are read in both versions, and only those in another version reach the webhook.
func TestConversionWebhook(t *testing.T) {
	t.Parallel()
	h := startHook(t)
	first := create(t, plain)
	old, err := New(first, nil)
	if err != nil {
		t.Fatal(err)
	}
	early := stored(t, pick(t, old, "v1"), "early", "{teeth: 12}")
	crd, k := h.update(t, first, h.geared(t))
	v1, v2 := pick(t, k, "v1"), pick(t, k, "v2")
	if v1.Raw || v2.Raw || k.StoredAs != "v2" || k.Stored() != v2 {
		t.Errorf("raw = %v, %v; stored as %q", v1.Raw, v2.Raw, k.StoredAs)
	}
	late := stored(t, v1, "late", "{teeth: 20}") // a write in v1 is stored in v2
	if version, body, err := object.CutVersion(late); version != "v2" || !strings.Contains(string(body), `"cogs":20`) || err != nil {
		t.Fatalf("stored as %q: %s, %v", version, body, err)
	}
	h.asked()
	for _, test := range []struct {
		v     *kind.Version
		body  []byte
		field string
		want  int64
		calls int64
	}{
		{v1, early, "teeth", 12, 0}, {v2, early, "cogs", 12, 1}, {v1, late, "teeth", 20, 1}, {v2, late, "cogs", 20, 0},
	} {
		obj, err := test.v.Decode(test.body, "7")
		if err != nil {
			t.Fatal(err)
		}
		u := obj.(*unstructured.Unstructured)
		got, _, _ := unstructured.NestedInt64(u.Object, "spec", test.field)
		if calls, _ := h.asked(); got != test.want || calls != test.calls || u.GroupVersionKind() != test.v.GVK || u.GetResourceVersion() != "7" {
			t.Errorf("%s of %s: %s = %d after %d calls, want %d after %d: %v", test.v.GVK.Version, test.body, test.field, got, calls, test.want, test.calls, u.Object)
		}
	}
	all, err := v2.DecodeAll(t.Context(), []object.Object{{Body: early, Revision: 1}, {Body: late, Revision: 2}, {Body: early, Revision: 3}})
	if calls, objects := h.asked(); err != nil || len(all) != 3 || calls != 1 || objects != 2 {
		t.Errorf("%d objects after %d calls with %d objects, %v; want 3, 1, 2", len(all), calls, objects, err)
	}
	h.testDown(t, k, early, late)

	// A client cannot remove what the server wrote, and the next update keeps it.
	crd2, k := h.update(t, crd, plainAgain(t, h.geared(t)))
	if firstStorage(crd2) != "v1" {
		t.Errorf("annotations = %v", crd2.Annotations)
	}
	if version, _, _ := object.CutVersion(stored(t, pick(t, k, "v1"), "back", "{teeth: 8}")); version != "v1" {
		t.Errorf("stored as %q, want v1", version)
	}
}

// TestConversionKeepsMarks: a webhook cannot take the marks of a deletion off an object, or
// put them on it.
func TestConversionKeepsMarks(t *testing.T) {
	t.Parallel()
	h := startHook(t)
	_, k := h.update(t, create(t, plain), h.geared(t))
	v1, v2 := pick(t, k, "v1"), pick(t, k, "v2")
	h.strips.Store(true)
	obj := request(t, v1, gear("v1", "held", "{teeth: 12}"))
	held := map[string]string{lifecycle.HeldAbove: "5"}
	obj.SetAnnotations(map[string]string{lifecycle.HeldAbove: "5", "other": "x"})
	body, err := v1.Encode(obj)
	if err != nil {
		t.Fatal(err)
	}
	all, err := v1.DecodeAll(t.Context(), []object.Object{{Body: body}, {Body: stored(t, v2, "free", "{cogs: 1}")}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []map[string]string{held, nil} {
		if got := all[i].(*unstructured.Unstructured).GetAnnotations(); !maps.Equal(got, want) {
			t.Errorf("object %d has %v, want %v", i, got, want)
		}
	}
}

// testDown: without the webhook, the stored version is served, and the error of the other
// one says why.
func (h *hook) testDown(t *testing.T, k *kind.Kind, early, late []byte) {
	t.Helper()
	h.down.Store(true)
	defer h.down.Store(false)
	v1, v2 := pick(t, k, "v1"), pick(t, k, "v2")
	if _, err := v2.Decode(late, "1"); err != nil {
		t.Errorf("read of the stored version: %v", err)
	}
	if _, err := v2.Encode(request(t, v2, gear("v2", "more", "{cogs: 1}"))); err != nil {
		t.Errorf("write of the stored version: %v", err)
	}
	if _, err := v1.DecodeStored(late, "1"); err != nil {
		t.Errorf("read of what is stored: %v", err)
	}
	_, errRead := v2.Decode(early, "1")
	_, errList := v2.DecodeAll(t.Context(), []object.Object{{Body: early}})
	_, errWrite := v1.Encode(request(t, v1, gear("v1", "more", "{teeth: 1}")))
	// kube-apiserver names the object that it converts, and of a list the wanted version.
	for of, err := range map[string]error{"v1, Kind=Gear": errRead, "v1, Kind=Gear ": errWrite, "v2, Kind=GearList": errList} {
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != http.StatusInternalServerError ||
			!strings.HasPrefix(status.Status().Message, "conversion webhook for example.com/"+strings.TrimSpace(of)+" failed: ") {
			t.Errorf("error = %v", err)
		}
	}
}

// plainAgain makes v1 the storage version again.
func plainAgain(t *testing.T, text string) string {
	return edit(t, edit(t, text, "storage: false", "storage: TRUE", "storage: true", "storage: false"), "storage: TRUE", "storage: true")
}

// TestFirstStorageOnCreate: a client cannot set the annotation; a restore keeps it.
func TestFirstStorageOnCreate(t *testing.T) {
	t.Parallel()
	text := edit(t, plain, "  name: gears.example.com", "  name: gears.example.com\n  annotations: {"+firstStorageKey+": v0}")
	crd := parse(t, text)
	Definition().Versions[0].Strategy.Create(kind.Restoring(t.Context()), crd)
	if firstStorage(crd) != "v0" {
		t.Errorf("a restore lost the annotation: %v", crd.Annotations)
	}
	Definition().Versions[0].Strategy.Create(t.Context(), crd)
	if firstStorage(crd) != "" {
		t.Errorf("annotations = %v", crd.Annotations)
	}
}

// TestInvalidVersions: clients know these texts of kube-apiserver.
func TestInvalidVersions(t *testing.T) {
	t.Parallel()
	k := serve(t, plain)
	v := k.Versions[0]
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v.GVK)
	gone := v.GVK.GroupVersion()
	gone.Version = "v9"
	if _, err := v.Wire.UnsafeConvertor.ConvertToVersion(u, gone); err == nil || err.Error() != "request to convert CR to an invalid group/version: "+gone.String() {
		t.Errorf("to a version that is gone: %v", err)
	}
	u.SetAPIVersion(gone.String())
	if _, err := v.Wire.UnsafeConvertor.ConvertToVersion(u, v.GVK.GroupVersion()); err == nil || err.Error() != "request to convert CR from an invalid group/version: "+gone.String() {
		t.Errorf("from a version that is gone: %v", err)
	}
}
