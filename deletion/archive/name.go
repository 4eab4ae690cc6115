package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// names has the names of kinds: of served ones, and of those whose definition was
// removed, from archive_kinds. It is read once per request.
type names struct {
	served  *kind.Snapshot
	removed map[string]removedKind // by storage name; none of them is served
}

// removedKind is a kind whose CustomResourceDefinition was removed.
type removedKind struct {
	gvk              schema.GroupVersionKind
	plural, singular string
	short            []string
	namespaced       bool
}

func (a *Archive) names(ctx context.Context) (*names, error) {
	// Served kinds first: a kind that is removed meanwhile is in archive_kinds
	// already.
	n := &names{served: a.kinds.Snapshot(), removed: map[string]removedKind{}}
	kinds, err := a.store.Reader().ArchivedKinds(ctx)
	if err != nil {
		return nil, fmt.Errorf("read archived kinds: %w", err)
	}
	for _, k := range kinds {
		removed := removedKind{
			gvk:    schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind},
			plural: k.Plural, singular: k.Singular, namespaced: k.Namespaced,
		}
		if err := json.Unmarshal([]byte(k.ShortNames), &removed.short); err != nil {
			return nil, fmt.Errorf("read archived kinds: %w", err)
		}
		if _, ok := n.served.Stored(k.Storage); !ok { // otherwise its definition exists again
			n.removed[k.Storage] = removed
		}
	}
	return n, nil
}

// gvk returns the names of a stored kind. For an unknown kind it uses the storage
// name.
func (n *names) gvk(storage string) schema.GroupVersionKind {
	if k, ok := n.served.Stored(storage); ok && len(k.Versions) > 0 {
		return k.Versions[0].GVK
	}
	if k, ok := n.removed[storage]; ok {
		return k.gvk
	}
	plural, group, _ := strings.Cut(storage, ".")
	return schema.GroupVersionKind{Group: group, Version: "v1", Kind: plural}
}

// clusterScoped reports whether the kind is known to be cluster-scoped.
func (n *names) clusterScoped(storage string) bool {
	if k, ok := n.served.Stored(storage); ok {
		return !k.Namespaced
	}
	k, ok := n.removed[storage]
	return ok && !k.namespaced
}

// storageOf finds the stored kind that a client means: by kind, plural,
// singular, short name or "plural.group", in any case. An apiVersion narrows
// it. Any other word may be the storage name of archived objects, if the client may get
// those. Error: BadRequest if neither the server nor the archive knows the kind.
func (a *Archive) storageOf(ctx context.Context, client kind.Client, n *names, o v1.ObjectName) (string, error) {
	apiVersion, word := o.APIVersion, o.Kind
	var group string
	if apiVersion != "" {
		gv, err := schema.ParseGroupVersion(apiVersion)
		if err != nil {
			return "", object.BadRequestf("apiVersion %q: %v", apiVersion, err)
		}
		group = gv.Group
	}
	found := n.find(apiVersion != "", group, word)
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", object.BadRequestf("kind %q is ambiguous: say one of %s", word, strings.Join(found, ", "))
	}
	storage := strings.ToLower(word)
	if group != "" {
		storage = kind.StorageName(group, storage)
	}
	known := false
	if client.May("get", object.Key{Kind: storage, Namespace: o.Namespace, Name: o.Name}) == nil {
		var err error
		if known, err = a.store.Reader().ArchivesKind(ctx, storage); err != nil {
			return "", fmt.Errorf("look for kind %s: %w", storage, err)
		}
	}
	if !known {
		return "", object.BadRequestf("kind %q is not known: the server does not serve it, and no object of it is in the archive", word)
	}
	return storage, nil
}

// find lists the storage names of the kinds that have the word as a name.
func (n *names) find(grouped bool, group, word string) (found []string) {
	for _, k := range n.served.Kinds {
		if k.Ephemeral || k.Source != nil || grouped && k.Group != group || slices.Contains(found, k.Storage) {
			continue
		}
		if hasName(word, k.Group, append([]string{k.Name, k.Plural, k.Singular, k.Storage}, k.ShortNames...)) {
			found = append(found, k.Storage)
		}
	}
	for storage, k := range n.removed {
		if grouped && k.gvk.Group != group {
			continue
		}
		if hasName(word, k.gvk.Group, append([]string{k.gvk.Kind, k.plural, k.singular, storage}, k.short...)) {
			found = append(found, storage)
		}
	}
	slices.Sort(found)
	return found
}

// hasName reports whether a word is one of the names, alone or with the group.
func hasName(word, group string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return name != "" && (strings.EqualFold(name, word) || strings.EqualFold(kind.StorageName(group, name), word))
	})
}
