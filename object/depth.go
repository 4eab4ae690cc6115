package object

import "bytes"

// MaxDepth is how many arrays and objects of a document may stand inside each
// other. The deepest real documents are definitions with nested schemas: each
// level of a schema takes two levels of JSON, and 40 levels of schema are rare.
// Libraries that merge, patch and compare documents take time and memory by
// depth times size, so a bound on the depth is a bound on both.
const MaxDepth = 256

// Shape is what a JSON document costs those who walk through it.
type Shape struct {
	Depth    int // of arrays and objects inside each other
	Elements int // of all arrays
}

// Measure reads the shape of a JSON document in one pass, without decoding it.
// It ends where the document is deeper than MaxDepth, with Depth MaxDepth+1. A
// document that is not JSON has the shape of its part before the first error,
// or a larger one.
func Measure(doc []byte) Shape {
	var s Shape
	var arrays [MaxDepth + 1]bool // what stands open at each depth is an array
	depth := 0
	for i := 0; i < len(doc); i++ {
		switch doc[i] {
		case '"':
			i = stringEnd(doc, i)
		case '{', '[':
			if depth == MaxDepth {
				s.Depth = MaxDepth + 1
				return s
			}
			depth++
			arrays[depth] = doc[i] == '['
			if arrays[depth] {
				s.Elements++
			}
			s.Depth = max(s.Depth, depth)
		case '}', ']':
			depth = max(0, depth-1)
		case ',':
			if arrays[depth] {
				s.Elements++
			}
		}
	}
	return s
}

// stringEnd is where the string ends that begins at start.
func stringEnd(doc []byte, start int) int {
	for i := start + 1; ; i++ {
		next := bytes.IndexAny(doc[i:], `"\`)
		if next < 0 {
			return len(doc)
		}
		i += next
		if doc[i] == '"' {
			return i
		}
		if i++; i >= len(doc) {
			return len(doc)
		}
	}
}

// CheckDepth refuses a JSON document that is deeper than MaxDepth, without
// decoding it. It does not judge the syntax.
func CheckDepth(doc []byte) error {
	if Measure(doc).Depth > MaxDepth {
		return TooDeep()
	}
	return nil
}

// TooDeep refuses a document that is deeper than MaxDepth.
func TooDeep() error {
	return BadRequestf("the document is nested too deeply: at most %d arrays and objects may stand inside each other", MaxDepth)
}
