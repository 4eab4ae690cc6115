package object

import (
	"strings"
	"unicode/utf8"
)

// NameProblem returns why a text cannot be a segment of a path, or "". It is the one rule
// of both sides: the router refuses no other path, and every create asks it. So what
// is stored can be read and deleted by its path.
func NameProblem(name string) string {
	switch {
	case name == "":
		return "must not be empty"
	case name == ".", name == "..":
		return `must not be "." or ".."`
	case strings.Contains(name, "/"):
		return "must not have a slash"
	case !utf8.ValidString(name), strings.ContainsRune(name, 0):
		return "must be valid UTF-8 without NUL"
	}
	return ""
}
