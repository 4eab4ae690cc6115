// Package earlier finds the kinds of earlier versions of a store: the built-in ones are those of now, the custom ones are
// by the definitions of then. It does not know what the program that ran then could read or validate. Begin with Version.
package earlier

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// Kinds finds the kinds of earlier revisions. A definition that is still the same gives the kind of now. It is safe for
// concurrent use.
type Kinds struct {
	store *store.Store
	kinds *kind.Registry

	mu       sync.Mutex
	made     map[string]*kind.Kind // by fingerprint, at most kept; guarded by mu
	compiled *custom.Cache
}

// kept is how many kinds of earlier definitions are kept, and compiledLimit about how many bytes their schemas may take.
const (
	kept          = 64
	compiledLimit = 16 << 20
)

// New finds the kinds of earlier revisions of a store. kinds are those of now.
func New(s *store.Store, kinds *kind.Registry) *Kinds {
	return &Kinds{store: s, kinds: kinds, made: map[string]*kind.Kind{}, compiled: custom.NewCache(compiledLimit)}
}

// Version finds the version of a resource that was served at a revision; nil if none was. Errors: those of store.GetAt.
func (e *Kinds) Version(ctx context.Context, gvr schema.GroupVersionResource, revision int64) (*kind.Version, error) {
	if now, ok := e.kinds.Snapshot().Lookup(gvr); ok && now.Kind.Definition == "" {
		return now, nil
	}
	o, err := e.store.GetAt(ctx, object.Key{Kind: object.Definitions, Name: kind.StorageName(gvr.Group, gvr.Resource)}, revision)
	if object.Is(err, object.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	k, err := e.kindOf(o)
	if err != nil || k == nil {
		return nil, err
	}
	if i := slices.IndexFunc(k.Versions, func(v *kind.Version) bool { return v.Resource() == gvr }); i >= 0 {
		return k.Versions[i], nil
	}
	return nil, nil
}

// Snapshot returns all kinds at a revision. Errors: those of store.List.
func (e *Kinds) Snapshot(ctx context.Context, revision int64) (*kind.Snapshot, error) {
	now := e.kinds.Snapshot()
	kinds := slices.DeleteFunc(slices.Clone(now.Kinds), func(k *kind.Kind) bool { return k.Definition != "" })
	listing, err := e.store.List(ctx, store.ListRequest{Kind: object.Definitions, Revision: revision, Past: true})
	if err != nil {
		return nil, err
	}
	for listing.Next() {
		k, err := e.kindOf(listing.Object())
		if err != nil {
			return nil, err
		}
		if k != nil {
			kinds = append(kinds, k)
		}
	}
	then := kind.NewRegistry(kinds).Snapshot()
	if slices.Equal(then.Kinds, now.Kinds) {
		then = now
	}
	return then, listing.Err()
}

// kindOf is the kind of a stored definition; nil if it was not served, or a built-in kind has its name.
func (e *Kinds) kindOf(o object.Object) (*kind.Kind, error) {
	header, err := custom.Header(o.Body, o.ResourceVersion())
	if err != nil || !custom.Established(header) {
		return nil, err
	}
	print := custom.Fingerprint(header)
	if now, ok := e.kinds.Snapshot().Stored(kind.StorageName(header.Spec.Group, header.Status.AcceptedNames.Plural)); ok && now.Definition == "" {
		return nil, nil
	} else if ok && now.Fingerprint == print {
		return now, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	k := e.made[print]
	if k == nil {
		if k, err = custom.Stored(header, o.Body, e.compiled, noWebhook); err != nil {
			return nil, err
		}
		if len(e.made) >= kept {
			clear(e.made)
		}
		e.made[print] = k
	}
	return k, nil
}

// noWebhook makes a converter that converts nothing: a webhook of then may be gone, or belong to another today. An object in
// the version that it was stored in needs none.
func noWebhook(*apiextensionsv1.CustomResourceDefinition) (copying, changing runtime.ObjectConvertor, err error) {
	return nil, unconverted{}, nil
}

type unconverted struct{ runtime.ObjectConvertor }

func (unconverted) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	all := []runtime.Object{in}
	if list, ok := in.(*unstructured.UnstructuredList); ok {
		all = nil
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	for _, o := range all {
		stored := o.GetObjectKind().GroupVersionKind()
		if wanted, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{stored}); ok && wanted == stored {
			continue
		}
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
			Message: fmt.Sprintf("the definition of then converts by a webhook, which is not called for the past: read the %s in %s, as it was stored", stored.Kind, stored.GroupVersion()),
		}}
	}
	return in, nil
}
