package v1

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyObject is for runtime.Object.
func (p *DeletionPreview) DeepCopyObject() runtime.Object { return p.DeepCopy() }

// DeepCopy copies the preview and everything in it.
func (p *DeletionPreview) DeepCopy() *DeletionPreview {
	if p == nil {
		return nil
	}
	out := *p
	out.ObjectMeta = *p.ObjectMeta.DeepCopy()
	out.Spec.PropagationPolicy = copyOf(p.Spec.PropagationPolicy)
	out.Spec.GracePeriodSeconds = copyOf(p.Spec.GracePeriodSeconds)
	out.Status.Guard = copyOf(p.Status.Guard)
	out.Status.Counts = slices.Clone(p.Status.Counts)
	out.Status.Blockers = copyItems(p.Status.Blockers)
	out.Status.Items = copyItems(p.Status.Items)
	return &out
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	out := *p
	return &out
}

func copyItems(items []Item) []Item {
	out := slices.Clone(items)
	for i := range out {
		out[i].Finalizers = slices.Clone(out[i].Finalizers)
		out[i].Owners = slices.Clone(out[i].Owners)
	}
	return out
}

// DeepCopyObject is for runtime.Object.
func (r *DeletionReport) DeepCopyObject() runtime.Object { return r.DeepCopy() }

// DeepCopy copies the report and everything in it.
func (r *DeletionReport) DeepCopy() *DeletionReport {
	if r == nil {
		return nil
	}
	out := *r
	out.ObjectMeta = *r.ObjectMeta.DeepCopy()
	out.Status.Reasons = copyReasons(r.Status.Reasons)
	return &out
}

func copyReasons(reasons []Reason) []Reason {
	out := slices.Clone(reasons)
	for i := range out {
		out[i].Object = copyOf(out[i].Object)
		out[i].Since = out[i].Since.DeepCopy()
		out[i].Children = copyReasons(out[i].Children)
	}
	return out
}
