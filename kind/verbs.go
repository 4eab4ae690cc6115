package kind

import "slices"

// The verbs of the API by what they may be used on; alphabetical, as discovery
// shows them.
var (
	allVerbs       = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	namespaceVerbs = []string{"create", "delete", "get", "list", "patch", "update", "watch"}
	sourceVerbs    = []string{"delete", "get", "list"}
	answerVerbs    = []string{"create"}
)

// Verbs are what can be done with objects of the kind.
func (k *Kind) Verbs() []string {
	switch {
	case k.Ephemeral:
		return answerVerbs
	case k.Source != nil:
		return sourceVerbs
	case k.IsNamespace():
		// One request that empties the whole server is always a mistake.
		return namespaceVerbs
	}
	return allVerbs
}

// Allows says whether the verb is one of the kind's.
func (k *Kind) Allows(verb string) bool { return slices.Contains(k.Verbs(), verb) }

// IsNamespace says whether this is the kind Namespace, which others live in.
func (k *Kind) IsNamespace() bool { return k.Group == "" && k.Name == "Namespace" }
