package archive

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// storageOf finds the stored kind that a person means: by kind, plural,
// singular, short name or "plural.group", in any case. An apiVersion narrows
// it. A word that no kind has is taken for the storage name of one that is not
// served any more.
func storageOf(kinds *kind.Snapshot, apiVersion, word string) (string, error) {
	var group string
	if apiVersion != "" {
		gv, err := schema.ParseGroupVersion(apiVersion)
		if err != nil {
			return "", object.BadRequestf("apiVersion %q: %v", apiVersion, err)
		}
		group = gv.Group
	}
	var found []string
	for _, k := range kinds.Kinds {
		if k.Ephemeral || k.Source != nil || apiVersion != "" && k.Group != group || !answersTo(k, word) {
			continue
		}
		if len(found) == 0 || found[len(found)-1] != k.Storage {
			found = append(found, k.Storage)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", object.BadRequestf("kind %q is ambiguous: say one of %s", word, strings.Join(found, ", "))
	}
	if apiVersion != "" && group != "" {
		return kind.StorageName(group, strings.ToLower(word)), nil
	}
	return strings.ToLower(word), nil
}

func answersTo(k *kind.Kind, word string) bool {
	names := append([]string{k.Name, k.Plural, k.Singular, k.Storage, kind.StorageName(k.Group, k.Plural)}, k.ShortNames...)
	for _, name := range names {
		if strings.EqualFold(name, word) {
			return true
		}
	}
	return false
}
