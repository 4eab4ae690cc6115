package kind

import "slices"

// The verbs by type of kind, as discovery shows them: in alphabetical order but for customVerbs.
var (
	allVerbs       = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	namespaceVerbs = []string{"create", "delete", "get", "list", "patch", "update", "watch"}
	readVerbs      = []string{"get", "list", "watch"}
	sourceVerbs    = []string{"delete", "get", "list"}
	answerVerbs    = []string{"create"}
	keptVerbs      = []string{"create", "delete", "get", "list"}
	// customVerbs is the order in which Kubernetes shows those of custom kinds.
	customVerbs = []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
)

// Verbs returns the verbs that the kind supports.
func (k *Kind) Verbs() []string {
	switch {
	case k.Ephemeral:
		return answerVerbs
	case k.ReadOnly:
		return readVerbs
	case k.Source != nil && k.Answer != nil:
		return keptVerbs
	case k.Source != nil:
		return sourceVerbs
	case k.Definition != "":
		return customVerbs
	case k.IsNamespace():
		// A request that deletes all namespaces is always a mistake.
		return namespaceVerbs
	}
	return allVerbs
}

// Allows reports whether the kind supports the verb.
func (k *Kind) Allows(verb string) bool { return slices.Contains(k.Verbs(), verb) }

// IsNamespace reports whether this is the kind Namespace.
func (k *Kind) IsNamespace() bool { return k.Group == "" && k.Name == "Namespace" }
