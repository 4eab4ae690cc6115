package lifecycle

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTagAnnotations: what is accepted, what matches, and which change needs the right to confirm.
func TestTagAnnotations(t *testing.T) {
	t.Parallel()
	for text, tags := range map[string]string{
		"v*":                                    "v1 v v1.2-rc.1: web dev",
		"v?, release-*":                         "v1 release-: v v12 release",
		"*":                                     "a 1 _: ",
		"v[0-9]":                                "v3: va v33",
		"":                                      ": v1",
		"v*,":                                   ": v1",
		"a/b":                                   ": a",
		"[":                                     ": [",
		strings.Repeat("a,", maxTagRules) + "b": ": a b",
		strings.Repeat("a,", maxTagRules-1) + "b": "a b: c",
	} {
		yes, no, _ := strings.Cut(tags, ":")
		m := map[string]string{ImmutableTags: text}
		for _, tag := range strings.Fields(yes) {
			if ImmutableTag(m, tag) == "" {
				t.Errorf("%q does not match %s", text, tag)
			}
		}
		for _, tag := range strings.Fields(no) {
			if p := ImmutableTag(m, tag); p != "" {
				t.Errorf("%q matches %s by %s", text, tag, p)
			}
		}
		if refused := checkAnnotations(m, nil, false) != nil; refused != (strings.TrimSpace(yes) == "") {
			t.Errorf("%q is refused: %t", text, refused)
		}
	}
	of := func(name, value string) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Annotations: map[string]string{name: value}}
	}
	for _, c := range []struct {
		before, now string
		want        bool
	}{{"v*", "", true}, {"v*", "v*,w*", false}, {"v*,w*", "w*", true}, {"", "v*", false}, {"v*", "v1*", true}, {"bad/", "", false}} {
		if got := LoosensTags(of(ImmutableTags, c.now), of(ImmutableTags, c.before)); got != c.want {
			t.Errorf("%q to %q loosens: %t", c.before, c.now, got)
		}
	}
	for _, c := range []struct {
		before, now string
		want        bool
	}{{"", "v1@sha256:a", true}, {"v1@sha256:a", "v1@sha256:a", false}, {"v1@sha256:a", "v1@sha256:b", true}, {"v1@sha256:a", "", false}} {
		if got := Confirms(of(ConfirmTag, c.now), of(ConfirmTag, c.before)); got != c.want {
			t.Errorf("%q to %q confirms: %t", c.before, c.now, got)
		}
	}
	if !Confirms(of(ConfirmTag, "v1@sha256:a"), nil) || Released(of(ConfirmTag, "v1@sha256:a"), nil) != "v1@sha256:a" {
		t.Error("a create with a confirmation needs no right")
	}
	many := strings.Repeat(",v@sha256:a", maxTagRules)
	for text, ok := range map[string]bool{many[1:]: true, "v@sha256:a" + many: false, "v1@sha256:a": true, "v1": false, "@sha256:a": false, "v1@a": false, "v1@sha256:a,v2@sha256:b": true, "": false} {
		if refused := checkAnnotations(map[string]string{ConfirmTag: text}, nil, false) != nil; refused == ok {
			t.Errorf("%q is refused: %t", text, refused)
		}
	}
	if m := map[string]string{ConfirmTag: "v1@sha256:a, v2@sha256:b"}; !TagConfirmed(m, "v2", "sha256:b") || TagConfirmed(m, "v2", "sha256:a") || TagConfirmed(m, "v", "sha256:a") {
		t.Error("another tag or digest is confirmed")
	}
}
