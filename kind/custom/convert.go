package custom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// plainConverters makes converters of the strategy None. They call no webhook, so they need no way to one.
var plainConverters conversion.CRConverterFactory

// newConverter returns the library's converter of the strategy None: only the apiVersion changes.
// Its methods change the given object; those of copying do not.
func newConverter(crd *apiextensionsv1.CustomResourceDefinition) (copying, changing runtime.ObjectConvertor, err error) {
	plain := *crd
	plain.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	return plainConverters.NewConverter(&plain)
}

// selectableFields returns a version's field labels: ".spec.color" is "spec.color".
func selectableFields(v apiextensionsv1.CustomResourceDefinitionVersion) []string {
	var out []string
	for _, f := range v.SelectableFields {
		out = append(out, strings.TrimPrefix(f.JSONPath, "."))
	}
	return out
}

// copyingConverter converts a copy and leaves its input unchanged.
type copyingConverter struct{ runtime.ObjectConvertor }

// Convert converts a copy of in.
func (s copyingConverter) Convert(in, out, context any) error {
	obj, ok := in.(runtime.Object)
	if !ok {
		return fmt.Errorf("convert %T: not an object", in)
	}
	return s.ObjectConvertor.Convert(obj.DeepCopyObject(), out, context)
}

// ConvertToVersion converts a copy of in.
func (s copyingConverter) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	return s.ObjectConvertor.ConvertToVersion(in.DeepCopyObject(), target)
}

// NewConverter builds the converter of a definition whose conversion strategy is Webhook.
// The library's conversion.CRConverterFactory has such a method. The converter that
// changes its input is the second.
type NewConverter func(*apiextensionsv1.CustomResourceDefinition) (copying, changing runtime.ObjectConvertor, err error)

// convertBatch is how many objects one call of a webhook converts.
const convertBatch = 500

// webhook converts objects by the webhook of their definition. Objects that are in the
// wanted version already never reach it. The library's converter is built at the first
// use: it needs parts of the server that start after the definitions are read.
type webhook struct {
	runtime.ObjectConvertor // the plain one: labels of field selectors, and Scale objects
	build                   func() (runtime.ObjectConvertor, error)
}

var _ runtime.ObjectConvertor = (*webhook)(nil)

func newWebhook(crd *apiextensionsv1.CustomResourceDefinition, plain runtime.ObjectConvertor, make NewConverter) *webhook {
	return &webhook{plain, sync.OnceValues(func() (runtime.ObjectConvertor, error) {
		if make == nil {
			return nil, fmt.Errorf("conversion webhook for %s: this part of the server calls none", crd.Name)
		}
		_, changing, err := make(crd)
		return changing, err
	})}
}

// Convert copies the content of in to out, in the version of out.
func (w *webhook) Convert(in, out, context any) error {
	to, ok := out.(*unstructured.Unstructured)
	from, okIn := in.(*unstructured.Unstructured)
	if !ok || !okIn {
		return w.ObjectConvertor.Convert(in, out, context) // a Scale, or an error
	}
	converted, err := w.ConvertToVersion(from, to.GroupVersionKind().GroupVersion())
	if err != nil {
		return err
	}
	to.SetUnstructuredContent(converted.(runtime.Unstructured).UnstructuredContent())
	return nil
}

// ConvertToVersion converts an object, or a list and its items. Its errors say what the
// webhook did; the client sees them, as in Kubernetes. The webhook may change labels and
// annotations, but not those that hold a deletion.
func (w *webhook) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	if _, ok := in.(runtime.Unstructured); !ok {
		return w.ObjectConvertor.ConvertToVersion(in, target)
	}
	var before []map[string]string
	for _, u := range itemsOf(in) {
		before = append(before, u.GetAnnotations())
	}
	library, err := w.build()
	if err == nil {
		in, err = library.ConvertToVersion(in, target)
	}
	if _, known := errors.AsType[*apierrors.StatusError](err); known { // the library's errors are texts
		return nil, err
	}
	if err != nil {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonUnknown, Message: err.Error(),
		}}
	}
	for i, u := range itemsOf(in) {
		if annotations, changed := lifecycle.KeepMarks(u.GetAnnotations(), before[i]); changed {
			u.SetAnnotations(annotations)
		}
	}
	return in, nil
}

// itemsOf returns an object, or the items of a list.
func itemsOf(obj runtime.Object) (items []*unstructured.Unstructured) {
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		items = append(items, o)
	case *unstructured.UnstructuredList:
		for i := range o.Items {
			items = append(items, &o.Items[i])
		}
	}
	return items
}

// storedBody is a body and its resourceVersion.
type storedBody struct {
	body            []byte
	resourceVersion string
}

// decodeStored decodes a body in the version that it was written in.
func (f *family) decodeStored(b storedBody) (*unstructured.Unstructured, error) {
	version, body, err := object.CutVersion(b.body)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", f.kind, err)
	}
	version = cmp.Or(version, f.unmarked)
	if !f.has(version) { // the definition has dropped the version
		return object.DecodeUnstructured(body, b.resourceVersion, f.gvk(version))
	}
	return f.decodeAs(version, version, body, b.resourceVersion)
}

// decodeAll decodes bodies into a version. It asks the webhook about those that were
// written in another one, until the context ends: each call may take half a minute.
func (f *family) decodeAll(ctx context.Context, version string, bodies []storedBody) ([]runtime.Object, error) {
	out := make([]runtime.Object, len(bodies))
	var foreign []int // positions in out
	for i, b := range bodies {
		u, err := f.decodeStored(b)
		if err != nil {
			return nil, err
		}
		out[i] = u
		if u.GroupVersionKind().Version != version {
			foreign = append(foreign, i)
		}
	}
	for len(foreign) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := min(len(foreign), convertBatch)
		if err := f.convertThese(version, out, foreign[:n]); err != nil {
			return nil, err
		}
		foreign = foreign[n:]
	}
	return out, nil
}

// convertThese converts the objects at some positions, by one call of the webhook.
func (f *family) convertThese(version string, objects []runtime.Object, positions []int) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(f.gvk(version).GroupVersion().WithKind(f.crd.Status.AcceptedNames.ListKind))
	for _, i := range positions {
		list.Items = append(list.Items, *objects[i].(*unstructured.Unstructured))
	}
	converted, err := f.convert.ConvertToVersion(list, f.gvk(version).GroupVersion())
	if err != nil {
		return err
	}
	items := converted.(*unstructured.UnstructuredList).Items
	for at, i := range positions {
		u := &items[at]
		if err := f.coerceStored(u); err != nil {
			return err
		}
		objects[i] = u
	}
	return nil
}
