package deletion

import (
	"fmt"
	"strings"

	v1 "github.com/exeunt/exeunt/deletion/v1"
)

// Command returns a kubectl command for an object, for a shell.
func Command(ref v1.ObjectReference, verb string, options ...string) string {
	resource := ref.Kind
	if gv := groupVersion(ref.APIVersion); gv != "" {
		resource += "." + gv
	}
	object := resource + " " + Quote(ref.Name)
	if strings.HasPrefix(ref.Name, "-") { // kubectl would read it as an option
		object = Quote(resource + "/" + ref.Name)
	}
	return strings.Join(append([]string{"kubectl", verb, object + inNamespace(ref)}, options...), " ")
}

// Target names an object on this program's command line, for a shell.
func Target(ref v1.ObjectReference) string {
	resource := strings.ToLower(ref.Kind)
	if gv := groupVersion(ref.APIVersion); gv != "" {
		resource += "." + gv
	} else if strings.Contains(ref.APIVersion, ".") {
		resource += "." + ref.APIVersion // the group of a kind that is not served
	}
	return Quote(resource+"/"+ref.Name) + inNamespace(ref)
}

func inNamespace(ref v1.ObjectReference) string {
	if ref.Namespace == "" {
		return ""
	}
	return " -n " + Quote(ref.Namespace)
}

// ForceCommand returns the command that removes a finalizer.
func ForceCommand(ref v1.ObjectReference, finalizer string) string {
	return fmt.Sprintf("exeunt finalizer remove %s %s --reason %q", Target(ref), Quote(finalizer), "...")
}

// groupVersion returns "v1.apps" for "apps/v1", as kubectl accepts it after a kind;
// empty for the core group, which needs none.
func groupVersion(apiVersion string) string {
	for i, c := range apiVersion {
		if c == '/' {
			return apiVersion[i+1:] + "." + apiVersion[:i]
		}
	}
	return ""
}

// Plural returns the word for n things.
func Plural[N int | int64](n N, word string) string {
	if n == 1 {
		return word
	}
	if stem, ok := strings.CutSuffix(word, "y"); ok && !strings.HasSuffix(stem, "a") && !strings.HasSuffix(stem, "e") {
		return stem + "ies"
	}
	return word + "s"
}
