package deletion

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
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
