package archive

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
)

func TestPlan(t *testing.T) {
	for name, test := range map[string]struct {
		objects string // "name@life<owner,owner" in order of removal; names as in keyOf
		want    string
	}{
		"nothing":                      {"", ""},
		"children of one level":        {"p:/c<p:/o p:/b<p:/o p:/o", "p:/o | p:/c p:/b"},
		"the longest way counts":       {"p:/o p:/a<p:/o p:/b<p:/o,p:/a", "p:/o | p:/a | p:/b"},
		"owners elsewhere are nothing": {"p:/a<p:/gone", "p:/a"},
		"the namespace first":          {"p:/x p:n/a p:n/b<p:n/a namespaces:/n", "p:/x namespaces:/n | p:n/a | p:n/b"},
		"the definition first": {"w.example.com:n/a customresourcedefinitions.apiextensions.k8s.io:/w.example.com",
			"customresourcedefinitions.apiextensions.k8s.io:/w.example.com | w.example.com:n/a"},
		"a circle is cut":     {"p:/a<p:/c p:/b<p:/a p:/c<p:/b", "p:/b | p:/c | p:/a"},
		"one's own owner":     {"p:/a<p:/a", "p:/a"},
		"the first of a name": {"p:/a p:/a@2", "p:/a p:/a@2(late)"},
		"what late ones own": {"p:/a p:/a@2 p:/b<p:/a@2 p:/c<p:/b p:/d<p:/a,p:/a@2 p:/e<p:/a@2,p:/gone",
			"p:/a p:/a@2(late) | p:/b(late) p:/d p:/e | p:/c(late)"},
		"quotas last":           {"p:n/a resourcequotas:n/q p:n/b<p:n/a namespaces:/n", "namespaces:/n | p:n/a | p:n/b | resourcequotas:n/q"},
		"a pair in a namespace": {"p:n/a<p:n/b p:n/b<p:n/a", "p:n/b | p:n/a"},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*candidate
			for i, text := range strings.Fields(test.objects) {
				name, owners, _ := strings.Cut(text, "<")
				key, _, _ := strings.Cut(name, "@")
				c := &candidate{id: int64(i), uid: types.UID(name), key: keyOf(key)}
				for _, o := range strings.FieldsFunc(owners, func(r rune) bool { return r == ',' }) {
					c.owners = append(c.owners, types.UID(o))
				}
				all = append(all, c)
			}
			var levels []string
			for _, level := range plan(all) {
				var names []string
				for _, c := range level {
					text := string(c.uid)
					if c.recreated {
						text += "(late)"
					}
					names = append(names, text)
				}
				levels = append(levels, strings.Join(names, " "))
			}
			if got := strings.Join(levels, " | "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestPlanDeep: a very long chain of owners is planned in linear time.
func TestPlanDeep(t *testing.T) {
	const length = 100_000
	all := make([]*candidate, length)
	for i := range all {
		all[i] = &candidate{id: int64(i), uid: types.UID(fmt.Sprint(i)), key: keyOf(fmt.Sprintf("p:n/%d", i)), owners: []types.UID{types.UID(fmt.Sprint(i + 1))}}
	}
	levels := plan(all)
	if len(levels) != length || levels[0][0].key.Name != fmt.Sprint(length-1) {
		t.Errorf("%d levels", len(levels))
	}
}

// TestWithoutDefaults: an unchanged ServiceAccount "default" comes back with its
// namespace; a changed one, and one that was deleted alone, is restored.
func TestWithoutDefaults(t *testing.T) {
	namespace := &candidate{key: object.Key{Kind: object.Namespaces, Name: "shop"}}
	account := func(namespace, body string) *candidate {
		return newCandidate(&row{Kind: object.ServiceAccounts, Namespace: namespace, Name: "default", Body: []byte(body)})
	}
	unchanged, changed := account("shop", `{"metadata":{"name":"default","uid":"u"}}`), account("shop", `{"metadata":{"name":"default"},"imagePullSecrets":[{"name":"s"}]}`)
	elsewhere := account("other", `{"metadata":{"name":"default"}}`)
	if got := withoutDefaults([]*candidate{namespace, unchanged, changed, elsewhere}); !slices.Equal(got, []*candidate{namespace, changed, elsewhere}) {
		t.Errorf("left are %v", got)
	}
	if got := withoutDefaults([]*candidate{unchanged}); len(got) != 1 {
		t.Error("one that was deleted alone is left out")
	}
}
