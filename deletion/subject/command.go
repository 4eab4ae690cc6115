package subject

import (
	"fmt"
	"strings"

	v1 "github.com/exeunt/exeunt/deletion/v1"
)

// Command returns a kubectl command for an object.
func Command(ref v1.ObjectReference, verb string, options ...string) string {
	resource := ref.Kind
	if gv := groupVersion(ref.APIVersion); gv != "" {
		resource += "." + gv
	}
	text := fmt.Sprintf("kubectl %s %s %s", verb, resource, ref.Name)
	if ref.Namespace != "" {
		text += " -n " + ref.Namespace
	}
	for _, o := range options {
		text += " " + o
	}
	return text
}

// Target names an object on this program's command line.
func Target(ref v1.ObjectReference) string {
	resource := strings.ToLower(ref.Kind)
	if gv := groupVersion(ref.APIVersion); gv != "" {
		resource += "." + gv
	} else if strings.Contains(ref.APIVersion, ".") {
		resource += "." + ref.APIVersion // the group of a kind that is not served
	}
	text := resource + "/" + ref.Name
	if ref.Namespace != "" {
		text += " -n " + ref.Namespace
	}
	return text
}

// ForceCommand returns the command that removes a finalizer.
func ForceCommand(ref v1.ObjectReference, finalizer string) string {
	return fmt.Sprintf("exeunt finalizer remove %s %s --reason %q", Target(ref), finalizer, "...")
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
func Plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
