// Package v1 says how repositories of the registry are named in the API group
// registry.exeunt.dev/v1. A repository is known by its path to clients of the
// registry, and as an object, Repository, by a namespace and a name to clients
// of the API. The two follow from each other; nothing is stored about it. The
// package is pure.
package v1

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// GroupVersion is that of Repository.
var GroupVersion = schema.GroupVersion{Group: "registry.exeunt.dev", Version: "v1"}

const (
	// DefaultNamespace is where paths of one component live.
	DefaultNamespace = "default"
	// Plural is the resource's name.
	Plural = "repositories"

	// maxReadable bounds what a derived name keeps of its path, so that it fits
	// a namespace's name with the hash.
	maxReadable = 45
)

// derived is the form of a name that was derived. No plain name has it.
var derived = regexp.MustCompile(`-[0-9a-f]{16}$`)

// Name is the Repository that stands for a path:
//
//	web               default/web
//	shop/web          shop/web
//	shop/team/web     shop/team-web-8d1f7d1f2c9a3b40
//	my_shop/web       my-shop-4e07408562bedb8b/web-…
//	default/web       default/web-…: not the same as web
//
// A path whose parts are no names, or of which there are more than two, has a
// derived one: what is readable of it, and a hash of all of it. Different paths
// have different names, as far as 64 bits of SHA-256 are; should two ever meet,
// the object that is there has one path, and the other path is refused.
func Name(path string) (namespace, name string) {
	first, rest, deeper := strings.Cut(path, "/")
	if !deeper {
		first, rest = DefaultNamespace, path
	}
	plain := deeper != (first == DefaultNamespace) && plainName(rest)
	if namespace = first; len(validation.IsDNS1123Label(first)) > 0 {
		namespace, plain = derive(first, first), false
	}
	if plain {
		return namespace, rest
	}
	return namespace, derive(rest, path)
}

// Path is the inverse of Name for names that are not derived. Of a derived name
// it is not known.
func Path(namespace, name string) (path string, known bool) {
	path = name
	if namespace != DefaultNamespace {
		path = namespace + "/" + name
	}
	ns, n := Name(path)
	return path, ns == namespace && n == name
}

// plainName says whether a component is a name as it is.
func plainName(component string) bool {
	return len(validation.IsDNS1123Subdomain(component)) == 0 && !derived.MatchString(component)
}

// derive makes a name of what is readable of a text and the hash of another.
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

// ValidPath says whether a repository can have this path: components of
// lower-case letters and digits, between which there may be one dot, one or two
// underscores, or any number of dashes. Every request is held against it, so it
// is no pattern.
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
