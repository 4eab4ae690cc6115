// Package pattern compiles regular expressions at their first use. One with a repetition like
// {0,253} takes a quarter of a megabyte and of a millisecond, and most starts need none of them.
package pattern

import (
	"regexp"
	"sync"
)

// New returns a function that compiles the expression once. It panics if the expression is wrong.
func New(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
