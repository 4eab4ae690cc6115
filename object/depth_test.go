package object

import (
	"strings"
	"testing"
)

func TestMeasure(t *testing.T) {
	nested := func(open, shut string, n int) string { return strings.Repeat(open, n) + strings.Repeat(shut, n) }
	for _, c := range []struct {
		name, doc string
		want      Shape
	}{
		{"nothing", ``, Shape{}},
		{"a scalar", `7`, Shape{}},
		{"an object", `{"a":{"b":1,"c":2}}`, Shape{Depth: 2}},
		{"an array", `[1,2,3]`, Shape{Depth: 1, Elements: 3}},
		{"objects in an array", `{"a":[{"b":1,"c":2},{}],"d":4}`, Shape{Depth: 3, Elements: 2}},
		{"brackets in a string", `{"a":"[[[{{{,"}`, Shape{Depth: 1}},
		{"an escaped quote", `{"a":"\"[[[","b":"\\"}`, Shape{Depth: 1}},
		{"a string without an end", `{"a":"[[[\`, Shape{Depth: 1}},
		{"more ends than beginnings", `]]]}}}[`, Shape{Depth: 1, Elements: 1}},
		{"as deep as may be", nested(`{"a":[`, `]}`, MaxDepth/2), Shape{Depth: MaxDepth, Elements: MaxDepth / 2}},
		{"too deep", nested(`{"a":`, `}`, MaxDepth+1), Shape{Depth: MaxDepth + 1}},
		{"beginnings only", strings.Repeat(`{"a":`, 1<<20), Shape{Depth: MaxDepth + 1}},
	} {
		if got := Measure([]byte(c.doc)); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if err := CheckDepth([]byte(c.doc)); (err != nil) != (c.want.Depth > MaxDepth) {
			t.Errorf("%s: CheckDepth says %v", c.name, err)
		}
	}
}
