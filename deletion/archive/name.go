package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// names knows what kinds are called: those that are served, and those whose
// definition was removed, which leave their names in archive_kinds. It is read
// once for a request.
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
	definition       types.UID
}

func (a *Archive) names(ctx context.Context) (*names, error) {
	// Served kinds first: one that leaves meanwhile left its names before.
	n := &names{served: a.kinds.Snapshot(), removed: map[string]removedKind{}}
	rows, err := a.db.Query(ctx, listKinds)
	if err != nil {
		return nil, fmt.Errorf("read archived kinds: %w", err)
	}
	defer func() { _ = rows.Close() }() // closed below; again on the way of an error
	for rows.Next() {
		var storage, short string
		var k removedKind
		err := rows.Scan(&storage, (*string)(&k.definition), &k.gvk.Group, &k.gvk.Version, &k.gvk.Kind, &k.plural, &k.singular, &short, &k.namespaced)
		if err == nil {
			err = json.Unmarshal([]byte(short), &k.short)
		}
		if err != nil {
			return nil, fmt.Errorf("read archived kinds: %w", err)
		}
		if _, ok := n.served.Stored(storage); !ok { // else its definition is there again
			n.removed[storage] = k
		}
	}
	return n, errors.Join(rows.Err(), rows.Close())
}

// gvk is what a stored kind is called. One that is not known any more is called
// by its storage name.
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

// clusterScoped says that objects of the kind are known to be in no namespace.
func (n *names) clusterScoped(storage string) bool {
	if k, ok := n.served.Stored(storage); ok {
		return !k.Namespaced
	}
	k, ok := n.removed[storage]
	return ok && !k.namespaced
}

// storageOf finds the stored kind that a client means: by kind, plural,
// singular, short name or "plural.group", in any case. An apiVersion narrows
// it. A word that is none of these may be the storage name of archived objects.
// Error: BadRequest if neither the server nor the archive knows the kind.
func (a *Archive) storageOf(ctx context.Context, n *names, apiVersion, word string) (string, error) {
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
	var one int64
	known, err := a.db.Row(ctx, kindArchived, []any{storage}, &one)
	if err != nil {
		return "", fmt.Errorf("look for kind %s: %w", storage, err)
	}
	if !known {
		return "", object.BadRequestf("kind %q is not known: the server does not serve it, and no object of it is in the archive", word)
	}
	return storage, nil
}

// find lists the storage names of the kinds that answer to a word.
func (n *names) find(grouped bool, group, word string) (found []string) {
	for _, k := range n.served.Kinds {
		if k.Ephemeral || k.Source != nil || grouped && k.Group != group || slices.Contains(found, k.Storage) {
			continue
		}
		if answersTo(word, k.Group, append([]string{k.Name, k.Plural, k.Singular, k.Storage}, k.ShortNames...)) {
			found = append(found, k.Storage)
		}
	}
	for storage, k := range n.removed {
		if grouped && k.gvk.Group != group {
			continue
		}
		if answersTo(word, k.gvk.Group, append([]string{k.gvk.Kind, k.plural, k.singular, storage}, k.short...)) {
			found = append(found, storage)
		}
	}
	slices.Sort(found)
	return found
}

// answersTo says whether a word is one of the names, alone or with the group.
func answersTo(word, group string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return name != "" && (strings.EqualFold(name, word) || strings.EqualFold(kind.StorageName(group, name), word))
	})
}
