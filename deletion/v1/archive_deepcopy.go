package v1

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopy makes an independent copy.
func (o *ArchivedObject) DeepCopy() *ArchivedObject {
	if o == nil {
		return nil
	}
	out := *o
	out.ObjectMeta = *o.ObjectMeta.DeepCopy()
	out.Spec.RemovedAt, out.Spec.ExpiresAt = *o.Spec.RemovedAt.DeepCopy(), o.Spec.ExpiresAt.DeepCopy()
	if o.Object != nil {
		out.Object = o.Object.DeepCopy()
	}
	return &out
}

// DeepCopyObject is DeepCopy.
func (o *ArchivedObject) DeepCopyObject() runtime.Object { return o.DeepCopy() }

// DeepCopyObject makes an independent copy.
func (l *ArchivedObjectList) DeepCopyObject() runtime.Object {
	if l == nil {
		return nil
	}
	out := *l
	out.ListMeta = *l.ListMeta.DeepCopy()
	out.Items = slices.Clone(l.Items)
	for i := range out.Items {
		out.Items[i] = *l.Items[i].DeepCopy()
	}
	return &out
}

// DeepCopyObject makes an independent copy.
func (l *RestoreList) DeepCopyObject() runtime.Object {
	if l == nil {
		return nil
	}
	out := *l
	out.ListMeta = *l.ListMeta.DeepCopy()
	out.Items = slices.Clone(l.Items)
	for i := range out.Items {
		out.Items[i] = *l.Items[i].DeepCopy()
	}
	return &out
}

// DeepCopyObject makes an independent copy.
func (r *Restore) DeepCopyObject() runtime.Object {
	if r == nil {
		return nil
	}
	return r.DeepCopy()
}

// DeepCopy makes an independent copy.
func (r *Restore) DeepCopy() *Restore {
	if r == nil {
		return nil
	}
	out := *r
	out.ObjectMeta = *r.ObjectMeta.DeepCopy()
	if r.Spec.Object != nil {
		name := *r.Spec.Object
		out.Spec.Object = &name
	}
	out.Status.Results = slices.Clone(r.Status.Results)
	for i := range out.Status.Results {
		out.Status.Results[i].Warnings = slices.Clone(r.Status.Results[i].Warnings)
		out.Status.Results[i].Changes = slices.Clone(r.Status.Results[i].Changes)
	}
	return &out
}
