package v1

import (
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestName(t *testing.T) {
	for _, tt := range []struct{ path, namespace, name string }{
		{"web", "default", "web"},
		{"shop/web", "shop", "web"},
		{"shop/web.v2", "shop", "web.v2"},
		{"default/web", "default", "web-*"},
		{"shop/team/web", "shop", "team-web-*"},
		{"shop/a_b", "shop", "a-b-*"},
		{"a__b", "default", "a--b-*"},
		{"my_shop/web", "my-shop-*", "web-*"},
		{"my.shop/web", "my-shop-*", "web-*"},
		{"shop/web-0123456789abcdef", "shop", "web-0123456789abcdef-*"},
		{"shop/" + strings.Repeat("a/", 100) + "b", "shop", "a-a-a-*"},
		{strings.Repeat("n", 64) + "/web", strings.Repeat("n", 45) + "-*", "web-*"},
	} {
		namespace, name := Name(tt.path)
		if !like(namespace, tt.namespace) || !like(name, tt.name) {
			t.Errorf("Name(%q) = %s, %s; want %s, %s", tt.path, namespace, name, tt.namespace, tt.name)
		}
		path, known := Path(namespace, name)
		if plain := !strings.HasSuffix(tt.name, "*"); known != plain || plain && path != tt.path {
			t.Errorf("Path(%s, %s) = %q, %v; want %q, %v", namespace, name, path, known, tt.path, plain)
		}
	}
}

// like compares got with want, where a final star matches the rest.
func like(got, want string) bool {
	if prefix, some := strings.CutSuffix(want, "*"); some {
		return strings.HasPrefix(got, prefix)
	}
	return got == want
}

// pathPattern is the grammar of paths in distribution-spec.
var pathPattern = regexp.MustCompile(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$`)

// TestValidPath: ValidPath agrees with the grammar on every path of up to seven
// characters from an alphabet that has every case.
func TestValidPath(t *testing.T) {
	const characters = "a0._-/A"
	var walk func(path string)
	walk = func(path string) {
		if got, want := ValidPath(path), pathPattern.MatchString(path); got != want {
			t.Errorf("ValidPath(%q) = %v", path, got)
		}
		for i := 0; i < len(characters) && len(path) < 7; i++ {
			walk(path + characters[i:i+1])
		}
	}
	walk("")
	if longest := strings.Repeat("a", MaxPath); !ValidPath(longest) || ValidPath(longest+"a") {
		t.Errorf("a path has at most %d characters", MaxPath)
	}
}

// FuzzName: every path has a valid name, and no two paths have the same.
func FuzzName(f *testing.F) {
	f.Add("web", "default/web")
	f.Add("a/b/c", "a/b-c")
	f.Add("a_b/c", "a-b/c")
	f.Add("a/b-0123456789abcdef", "a/b")
	f.Fuzz(func(t *testing.T, a, b string) {
		var seen [2]string
		for i, path := range []string{a, b} {
			if !ValidPath(path) {
				return
			}
			namespace, name := Name(path)
			if errs := append(validation.IsDNS1123Label(namespace), validation.IsDNS1123Subdomain(name)...); len(errs) > 0 {
				t.Errorf("Name(%q) = %q, %q: %v", path, namespace, name, errs)
			}
			if back, known := Path(namespace, name); known && back != path {
				t.Errorf("Name(%q) = %q, %q is also that of %q", path, namespace, name, back)
			}
			seen[i] = namespace + "/" + name
		}
		if a != b && seen[0] == seen[1] {
			t.Errorf("%q and %q are both %s", a, b, seen[0])
		}
	})
}

// TestIsLabel: isLabel and the library agree on every short text of these bytes, and on
// the length.
func TestIsLabel(t *testing.T) {
	t.Parallel()
	var walk func(text string)
	walk = func(text string) {
		if got, want := isLabel(text), len(validation.IsDNS1123Label(text)) == 0; got != want {
			t.Errorf("isLabel(%q) = %t", text, got)
		}
		if len(text) < 5 {
			for _, c := range "az09-._A\xff" {
				walk(text + string(c))
			}
		}
	}
	walk("")
	if longest := strings.Repeat("a", validation.DNS1123LabelMaxLength); !isLabel(longest) || isLabel(longest+"a") {
		t.Errorf("a label has at most %d characters", validation.DNS1123LabelMaxLength)
	}
}
