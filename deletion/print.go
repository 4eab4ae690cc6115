// Package deletion names the object that a question about a deletion is about: it
// finds the object of a reference, and names objects in messages and on command
// lines. It knows the kinds and reads the store; it decides nothing.
package deletion

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// Printable escapes what a terminal would interpret, or a reader would take for a line of
// the program's own: control characters with newlines and tabs, marks of direction. The
// escapes are those of JSON.
func Printable(text string) string {
	return escape(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// WithoutControls is Printable for a whole output, which has lines and columns.
func WithoutControls(text string) string {
	return escape(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' })
}

func escape(text string, escaped func(rune) bool) string {
	if !strings.ContainsFunc(text, escaped) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !escaped(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// shellWord has the characters that a shell does not interpret in any position but the first.
const shellWord = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+,"

// Quote returns a text as one word of a shell. What is not printable is written as bash, zsh,
// ksh and busybox read it: $'\033'.
func Quote(word string) string {
	switch {
	case word != "" && strings.Trim(word, shellWord) == "":
		return word
	case Printable(word) == word:
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for _, r := range word {
		if unicode.IsPrint(r) && r != '\'' && r != '\\' {
			b.WriteRune(r)
			continue
		}
		for _, c := range []byte(string(r)) {
			fmt.Fprintf(&b, `\%03o`, c)
		}
	}
	b.WriteString("'")
	return b.String()
}

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

// Find reads the object of a reference; nil for a valid reference without an
// object. An invalid reference is the error Invalid.
func Find(ctx context.Context, r *store.Reader, kinds *kind.Snapshot, ref v1.ObjectReference, path *field.Path) (*store.Stored, error) {
	if ref.UID != "" && ref.Kind == "" && ref.APIVersion == "" && ref.Name == "" && ref.Namespace == "" {
		return r.GetByUID(ctx, ref.UID)
	}
	key, err := Key(kinds, ref, path)
	if err != nil {
		return nil, err
	}
	o, err := r.Get(ctx, key)
	if o != nil && ref.UID != "" && ref.UID != o.UID {
		return nil, nil // another object has that name now
	}
	return o, err
}

// Key returns the storage key of a reference. Error: Invalid.
func Key(kinds *kind.Snapshot, ref v1.ObjectReference, path *field.Path) (object.Key, error) {
	var errs field.ErrorList
	for _, f := range []struct{ name, value string }{{"apiVersion", ref.APIVersion}, {"kind", ref.Kind}, {"name", ref.Name}} {
		if f.value == "" {
			errs = append(errs, field.Required(path.Child(f.name), "name the object by apiVersion, kind and name, or by uid alone"))
		}
	}
	if len(errs) > 0 {
		return object.Key{}, object.InvalidFields(errs)
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return object.Key{}, object.InvalidFields(field.ErrorList{field.Invalid(path.Child("apiVersion"), ref.APIVersion, err.Error())})
	}
	k := kinds.Named(gv.WithKind(ref.Kind))
	switch {
	case k == nil:
		errs = append(errs, field.Invalid(path.Child("kind"), ref.Kind, "no such kind in "+ref.APIVersion))
	case k.Ephemeral:
		errs = append(errs, field.Invalid(path.Child("kind"), ref.Kind, "objects of this kind are never stored"))
	case k.Namespaced && ref.Namespace == "":
		errs = append(errs, field.Required(path.Child("namespace"), ref.Kind+" lives in a namespace"))
	case !k.Namespaced && ref.Namespace != "":
		errs = append(errs, field.Invalid(path.Child("namespace"), ref.Namespace, ref.Kind+" lives in no namespace"))
	}
	if len(errs) > 0 {
		return object.Key{}, object.InvalidFields(errs)
	}
	return object.Key{Kind: k.Storage, Namespace: ref.Namespace, Name: ref.Name}, nil
}

// Reference names a stored object as clients know it. For a kind that is no longer
// served, it uses the plural and the group.
func Reference(kinds *kind.Snapshot, key object.Key, uid types.UID) v1.ObjectReference {
	ref := v1.ObjectReference{Namespace: key.Namespace, Name: key.Name, UID: uid}
	ref.Kind, ref.APIVersion = kinds.Names(key.Kind)
	return ref
}

// NotFound is the error for a reference without an object.
func NotFound(ref v1.ObjectReference) error {
	if ref.Name == "" {
		return object.Errorf(object.NotFound, "no object with uid %s", ref.UID)
	}
	return object.Errorf(object.NotFound, "%s not found", Describe(ref))
}

// Describe names an object for people, and for their terminals: "Deployment web in namespace shop".
func Describe(ref v1.ObjectReference) string {
	text := ref.Kind + " " + ref.Name
	if ref.Namespace != "" {
		text += " in namespace " + ref.Namespace
	}
	return Printable(text)
}

// A question about one object reaches others, in other namespaces and of other kinds.
// The answer names those that the client may get, and counts the rest.

// MayGet returns a denial if the client may not get the object of a question. It does
// not say whether the object exists. For a uid alone it returns nil: what that finds is
// checked with the object's key, and a denial is answered as if nothing was found.
func MayGet(client kind.Client, kinds *kind.Snapshot, ref v1.ObjectReference) error {
	if ref.Kind == "" || ref.Name == "" {
		return nil
	}
	return client.MayResource("get", kinds.ResourceOf(ref.APIVersion, ref.Kind), ref.Namespace, ref.Name)
}
