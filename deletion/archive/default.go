package archive

import (
	"slices"

	"github.com/tidwall/gjson"

	"github.com/exeunt/exeunt/object"
)

// withoutDefaults leaves out the ServiceAccount "default" of a namespace that is restored
// too, if no client has changed it: the server creates an equal one with the namespace. A
// restore of both would be a race between the two.
func withoutDefaults(all []*candidate) []*candidate {
	namespaces := map[string]bool{}
	for _, c := range all {
		if c.key.Kind == object.Namespaces {
			namespaces[c.key.Name] = true
		}
	}
	return slices.DeleteFunc(all, func(c *candidate) bool { return c.isDefault && namespaces[c.key.Namespace] })
}

// isDefault says whether a removed object is as the server creates it in every namespace.
func isDefault(r *row) bool {
	if r.Kind != object.ServiceAccounts || r.Name != object.DefaultAccount {
		return false
	}
	for _, changed := range []string{"secrets", "imagePullSecrets", "automountServiceAccountToken", "metadata.labels", "metadata.annotations", "metadata.ownerReferences", "metadata.finalizers"} {
		if gjson.GetBytes(r.Body, changed).Exists() {
			return false
		}
	}
	return len(r.Body) > 0
}
