package admission

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/kind"
)

// mapper finds the resource of a kind among the served kinds. Policies need it for the
// kind of their parameters.
type mapper struct {
	meta.RESTMapper // nil: the plugins call RESTMapping alone
	kinds           *kind.Registry
}

func (m mapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	k, ok := m.kinds.Snapshot().OfGroupKind(gk)
	if !ok || k.Ephemeral || k.Source != nil {
		return nil, &meta.NoKindMatchError{GroupKind: gk, SearchedVersions: versions}
	}
	scope := meta.RESTScopeRoot
	if k.Namespaced {
		scope = meta.RESTScopeNamespace
	}
	for _, v := range k.Versions {
		if len(versions) == 0 || slices.Contains(versions, v.GVK.Version) {
			return &meta.RESTMapping{Resource: v.Resource(), GroupVersionKind: v.GVK, Scope: scope}, nil
		}
	}
	return nil, &meta.NoKindMatchError{GroupKind: gk, SearchedVersions: versions}
}
