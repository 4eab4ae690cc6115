package object

import "bytes"

// MaxDepth is how deep arrays and objects of a document may be nested. The deepest
// real documents are definitions with nested schemas: each level of a schema
// takes two levels of JSON, and 40 levels of schema are rare. Libraries that
// merge, patch and compare documents take time and memory proportional to depth
// times size, so a limit on the depth limits both.
const MaxDepth = 256

// Shape is what the cost of walking through a JSON document depends on.
type Shape struct {
	Depth    int // of nested arrays and objects
	Elements int // of all arrays
}

// Measure reads the shape of a JSON document in one pass, without decoding it.
// It stops where the document is deeper than MaxDepth, with Depth MaxDepth+1. For
// a document that is not valid JSON the shape is at least that of the part before
// the first error.
func Measure(doc []byte) Shape {
	var s Shape
	var arrays [MaxDepth + 1]bool // true: the open value at this depth is an array
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

// stringEnd is the position of the quote that ends the string at start.
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
// decoding it. It does not check the syntax.
func CheckDepth(doc []byte) error {
	if Measure(doc).Depth > MaxDepth {
		return TooDeep()
	}
	return nil
}

// TooDeep is the error for a document that is deeper than MaxDepth.
func TooDeep() error {
	return BadRequestf("the document is nested too deeply: at most %d arrays and objects may stand inside each other", MaxDepth)
}
