package admission

import (
	"context"
	"io"
	"sync"

	"k8s.io/apiserver/pkg/admission"
	mutatinghook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatinghook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
)

// hooks are the plugins of webhooks. Each is made with the first configuration of its kind, or for the first request
// before all configurations are read: its CEL environments cost a start 4 ms. It then reads the configurations before it
// decides, as all plugins do.
type hooks struct {
	mutating   mutatingHook
	validating validatingHook
}

type mutatingHook struct{ later[*mutatinghook.Plugin] }

type validatingHook struct{ later[*validatinghook.Plugin] }

// later is a plugin that is made once, by the first call of get. A request asks it only if selects reports that a webhook or policy may select it.
type later[P admission.Interface] struct {
	get     func() (P, error)
	selects func(admission.Attributes) bool
}

func newHooks(initializer admission.PluginInitializer, selects func(admission.Attributes) bool) hooks {
	return hooks{
		mutatingHook{newLater(mutatinghook.NewMutatingWebhook, initializer, selects)},
		validatingHook{newLater(validatinghook.NewValidatingAdmissionWebhook, initializer, selects)},
	}
}

func newLater[P admission.Interface](plugin func(config io.Reader) (P, error), initializer admission.PluginInitializer, selects func(admission.Attributes) bool) later[P] {
	return later[P]{get: sync.OnceValues(func() (P, error) {
		made, err := plugin(nil)
		if err != nil {
			return made, err
		}
		initializer.Initialize(made)
		return made, admission.ValidateInitialization(made)
	}), selects: selects}
}

// Handles implements admission.Interface: webhooks may select every operation.
func (later[P]) Handles(admission.Operation) bool { return true }

// Admit implements admission.MutationInterface.
func (h mutatingHook) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if !h.selects(a) {
		return nil
	}
	plugin, err := h.get()
	if err != nil {
		return err
	}
	return plugin.Admit(ctx, a, o)
}

// Validate implements admission.ValidationInterface.
func (h validatingHook) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if !h.selects(a) {
		return nil
	}
	plugin, err := h.get()
	if err != nil {
		return err
	}
	return plugin.Validate(ctx, a, o)
}
