package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/exeunt/exeunt/store"
)

// judge is an admission that asks the test about every delete of a ConfigMap.
type judge struct {
	asked func(version string) error
}

func (judge) Handles(operation admission.Operation) bool { return operation == admission.Delete }

func (judge) Complete(context.Context, string, runtime.Object) error { return nil }

func (judge) Selects(resource schema.GroupResource, _ string, operation admission.Operation) bool {
	return resource.Resource == "configmaps" && operation == admission.Delete
}

func (judge) Judges(schema.GroupResource, admission.Operation) []string { return nil }

func (j judge) Judge(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return j.Validate(ctx, a, o)
}

func (judge) Pretend(context.Context, *corev1.Namespace) {}

func (judge) SelectsIn(string, schema.GroupResource, admission.Operation) bool { return false }

func (j judge) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	accessor, err := meta.Accessor(a.GetOldObject())
	if err != nil {
		return err
	}
	if err := j.asked(accessor.GetResourceVersion()); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// TestDeleteIsAdmittedForItsVersion writes to an object while the webhook decides about
// its delete: the webhook must be asked about the new version too, because that is what
// goes.
func TestDeleteIsAdmittedForItsVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.Options{})
	var asked []string
	path := configMaps + "/raced"
	w.api.Admission = judge{func(version string) error {
		asked = append(asked, version)
		if len(asked) == 1 {
			w.patch(path, `{"data":{"a":"b"}}`)
		}
		return nil
	}}
	first := w.configMap("raced", "")
	w.want(http.StatusOK, "DELETE", path, "")
	if len(asked) != 2 || asked[0] != first || asked[1] == first {
		t.Errorf("asked about versions %v, the first was %s", asked, first)
	}
	w.want(http.StatusNotFound, "GET", path, "")

	asked = nil
	first = w.configMap("raced", "")
	w.want(http.StatusConflict, "DELETE", path, `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"resourceVersion":"`+first+`"}}`)
	if len(asked) != 1 {
		t.Errorf("a delete whose own precondition failed was tried again: asked %d times", len(asked))
	}
	w.want(http.StatusOK, "GET", path, "")
}

// TestRefusedDelete refuses a delete and a deletecollection: nothing goes.
func TestRefusedDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.Options{})
	w.api.Admission = judge{func(string) error { return errors.New("keep it") }}
	w.configMap("kept", "")
	for _, path := range []string{configMaps + "/kept", configMaps} {
		if r := w.want(http.StatusForbidden, "DELETE", path, ""); !strings.Contains(r.body, "keep it") {
			t.Errorf("DELETE %s: %s", path, r.body)
		}
	}
	w.want(http.StatusOK, "GET", configMaps+"/kept", "")
}
