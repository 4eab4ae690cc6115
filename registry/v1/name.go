// Package v1 maps repository paths to names in the API group
// registry.exeunt.dev/v1. Clients of the registry know a repository by its path;
// clients of the API know it as an object, Repository, by namespace and name.
// Each is computed from the other; nothing is stored. The package is pure.
package v1

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// GroupVersion is the group and version of Repository.
var GroupVersion = schema.GroupVersion{Group: "registry.exeunt.dev", Version: "v1"}

const (
	// DefaultNamespace is the namespace of paths with one component.
	DefaultNamespace = "default"
	// Plural is the resource's name.
	Plural = "repositories"

	// maxReadable bounds the readable part of a derived name, so that it and the
	// hash fit the name of a namespace.
	maxReadable = 45
)

// derived matches derived names. No plain name matches it.
var derived = regexp.MustCompile(`-[0-9a-f]{16}$`)

// Name returns the namespace and name of the Repository of a path:
//
//	web               default/web
//	shop/web          shop/web
//	shop/team/web     shop/team-web-8d1f7d1f2c9a3b40
//	my_shop/web       my-shop-4e07408562bedb8b/web-…
//	default/web       default/web-…: not the same as web
//
// A path with more than two components, or with one that is not a valid name,
// gets a derived name: its readable part and a hash of the whole path. Different
// paths have different names unless 64 bits of SHA-256 collide. After a
// collision the existing object keeps its path, and the other path is refused.
func Name(path string) (namespace, name string) {
	first, rest, deeper := strings.Cut(path, "/")
	if !deeper {
		first, rest = DefaultNamespace, path
	}
	plain := deeper != (first == DefaultNamespace) && plainName(rest)
	if namespace = first; !isLabel(first) {
		namespace, plain = derive(first, first), false
	}
	if plain {
		return namespace, rest
	}
	return namespace, derive(rest, path)
}

// Path is the inverse of Name. For a derived name the path is not known.
func Path(namespace, name string) (path string, known bool) {
	path = name
	if namespace != DefaultNamespace {
		path = namespace + "/" + name
	}
	ns, n := Name(path)
	return path, ns == namespace && n == name
}

// plainName reports whether a component is a valid name without change.
func plainName(component string) bool {
	valid := isLabel(component) || len(validation.IsDNS1123Subdomain(component)) == 0
	return valid && !(strings.Contains(component, "-") && derived.MatchString(component))
}

// isLabel reports whether s is a DNS label, as validation.IsDNS1123Label does. It runs for
// every request, so it is not a regular expression.
func isLabel(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
		if !letter && (c != '-' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return s != "" && len(s) <= validation.DNS1123LabelMaxLength
}

// derive makes a name from the readable part of text and the hash of whole.
func derive(text, whole string) string {
	readable := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, text)
	readable = strings.Trim(readable[:min(len(readable), maxReadable)], "-")
	sum := sha256.Sum256([]byte(whole))
	return readable + "-" + hex.EncodeToString(sum[:8])
}

// MaxPath is the longest path.
const MaxPath = 255

// ValidPath reports whether a repository can have this path: components of
// lower-case letters and digits, separated by one dot, one or two underscores,
// or any number of dashes. It runs for every request, so it is not a regular
// expression.
func ValidPath(path string) bool {
	if len(path) > MaxPath {
		return false
	}
	for component := range strings.SplitSeq(path, "/") {
		if !validComponent(component) {
			return false
		}
	}
	return true
}

func validComponent(s string) bool {
	if s == "" || !letterOrDigit(s[0]) || !letterOrDigit(s[len(s)-1]) {
		return false
	}
	for i := 1; i < len(s); i++ {
		from := i
		for !letterOrDigit(s[i]) {
			i++
		}
		switch between := s[from:i]; between {
		case "", ".", "_", "__":
		default:
			if strings.Trim(between, "-") != "" {
				return false
			}
		}
	}
	return true
}

func letterOrDigit(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

// Size formats a number of bytes in the notation of Kubernetes: two or three digits and a unit, 12Mi.
func Size(n int64) string {
	unit := int64(1)
	for _, next := range []int64{1 << 10, 1 << 20, 1 << 30, 1 << 40} {
		if n >= 10*next {
			unit = next
		}
	}
	return resource.NewQuantity(n/unit*unit, resource.BinarySI).String()
}
