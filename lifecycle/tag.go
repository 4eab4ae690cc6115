package lifecycle

import (
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ImmutableTags is the annotation of a Namespace, or of a Repository, that names
	// tags by patterns, with commas between them: "v*,release-*". A tag that matches
	// one, of either object, can be pushed once. Then it is neither moved nor deleted.
	ImmutableTags = "lifecycle.exeunt.dev/immutable-tags"

	// ConfirmTag is the annotation of a Repository by which a person lets immutable
	// tags go: TAG@DIGEST, with commas between them. It names the manifest too, so it
	// ends when the tag points at another one.
	ConfirmTag = "lifecycle.exeunt.dev/confirm-tag"

	// StartRetention is the annotation of a RetentionPolicy that starts it: its value is the
	// generation that a person has seen the plan of. Another generation has not begun.
	StartRetention = "lifecycle.exeunt.dev/start-retention"

	// maxTagRules bounds the patterns and the confirmed tags of one annotation.
	maxTagRules = 64
)

// ParsePatterns reads patterns of tags, as in [path.Match], with commas between them.
func ParsePatterns(text string) ([]string, error) {
	patterns := strings.Split(text, ",")
	for i, p := range patterns {
		patterns[i] = strings.TrimSpace(p)
		if _, err := path.Match(patterns[i], ""); err != nil || patterns[i] == "" || strings.Contains(p, "/") {
			return nil, errors.New(`must be patterns of tags with commas between them, such as "v*,release-*"`)
		}
	}
	if len(patterns) > maxTagRules {
		return nil, errors.New("has more than 64 patterns")
	}
	return patterns, nil
}

func parseConfirmedTags(text string) ([]string, error) {
	list := strings.Split(text, ",")
	for i, item := range list {
		list[i] = strings.TrimSpace(item)
		if tag, digest, ok := strings.Cut(list[i], "@"); !ok || tag == "" || !strings.Contains(digest, ":") {
			return nil, errors.New(`must be a tag and the digest that it points at, such as "v1@sha256:…", or several with commas between them`)
		}
	}
	if len(list) > maxTagRules {
		return nil, errors.New("confirms more than 64 tags")
	}
	return list, nil
}

// MatchTag returns the first pattern that a tag matches, or "".
func MatchTag(patterns []string, tag string) string {
	for _, p := range patterns {
		if ok, _ := path.Match(p, tag); ok {
			return p
		}
	}
	return ""
}

// ImmutableTag returns the pattern by which annotations make a tag immutable, or "".
func ImmutableTag(annotations map[string]string, tag string) string {
	patterns, _ := read(annotations, ImmutableTags, ParsePatterns)
	return MatchTag(patterns, tag)
}

// TagConfirmed reports whether annotations let an immutable tag of a manifest go.
func TagConfirmed(annotations map[string]string, tag, digest string) bool {
	confirmed, _ := read(annotations, ConfirmTag, parseConfirmedTags)
	return slices.Contains(confirmed, tag+"@"+digest)
}

// LoosensTags reports whether an update takes away a pattern of immutable tags.
func LoosensTags(m, old metav1.Object) bool {
	now, _ := read(annotationsOf(m), ImmutableTags, ParsePatterns)
	before, _ := read(annotationsOf(old), ImmutableTags, ParsePatterns)
	return slices.ContainsFunc(before, func(p string) bool { return !slices.Contains(now, p) })
}

func parseGeneration(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, errors.New(`must be the metadata.generation of the policy that may begin, such as "1"`)
	}
	return n, nil
}

// confirmsTag returns what a write confirms: an immutable tag that may go, or a retention or an
// expiry that may begin. Empty if it confirms none. old is nil for a create.
func confirmsTag(m, old metav1.Object) string {
	for _, name := range []string{ConfirmTag, StartRetention, StartExpiry} {
		if now := m.GetAnnotations()[name]; now != "" && now != annotationsOf(old)[name] {
			return now
		}
	}
	return ""
}
