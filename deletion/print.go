package deletion

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"

	v1 "github.com/exeunt/exeunt/deletion/v1"
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
