package admission

import (
	"errors"
	"fmt"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apiserver/pkg/admission"
)

var classResource = schedulingv1.Resource("priorityclasses")

// validateClass refuses a second default PriorityClass, as Kubernetes does. Of two that are
// created in the same moment both may pass, as in Kubernetes: then the lower one counts.
func (p *podPlugin) validateClass(a admission.Attributes) error {
	class, ok := a.GetObject().(*schedulingv1.PriorityClass)
	if !ok || !class.GlobalDefault || a.GetSubresource() != "" || a.GetOperation() != admission.Create && a.GetOperation() != admission.Update {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	other, err := p.class("")
	if err != nil {
		return err
	}
	if other != nil && (a.GetOperation() == admission.Create || other.Name != class.Name) {
		return admission.NewForbidden(a, fmt.Errorf("PriorityClass %v is already marked as default. Only one default can exist", other.Name))
	}
	return nil
}
