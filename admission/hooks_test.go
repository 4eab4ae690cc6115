package admission

import (
	"errors"
	"io"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	mutatinghook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
)

// TestHooksAreMadeLater: a request that no webhook selects makes no plugin, although the chain asks it because of a
// built-in rule; the first that one selects makes it, once, and an error of that refuses the request.
func TestHooksAreMadeLater(t *testing.T) {
	t.Parallel()
	made, selected := 0, false
	broken := errors.New("no plugin")
	hook := mutatingHook{newLater(func(io.Reader) (*mutatinghook.Plugin, error) {
		made++
		return nil, broken
	}, admission.PluginInitializers{}, func(admission.Attributes) bool { return selected })}
	a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{Resource: "namespaces"}, "", admission.Create, nil, false, nil)
	if err := hook.Admit(t.Context(), a, nil); err != nil || made != 0 {
		t.Errorf("without a webhook: %v, %d plugins", err, made)
	}
	selected = true
	for range 2 {
		if err := hook.Admit(t.Context(), a, nil); !errors.Is(err, broken) || made != 1 {
			t.Errorf("with a webhook: %v, %d plugins", err, made)
		}
	}
}
