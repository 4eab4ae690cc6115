package past

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// answers is a Session whose server has these documents, by their paths. An empty one has expired.
type answers struct {
	Session
	documents map[string]string
}

func (a answers) Find([]string) (string, error) { return "/api/v1/namespaces/shop", nil }

func (a answers) Send(_ context.Context, _, path string, _ map[string]string, into any) error {
	switch text, found := a.documents[path]; {
	case !found:
		return apierrors.NewNotFound(schema.GroupResource{}, path)
	case text == "":
		return apierrors.NewResourceExpired("its history begins later")
	default:
		return json.Unmarshal([]byte(text), into)
	}
}

// TestCompareNamespace: what changed in a namespace names objects of kinds whose definition is gone since, and those of two groups
// that have one name of a kind. A kind that cannot be read at one of the times is left out of both, with one note.
func TestCompareNamespace(t *testing.T) {
	t.Parallel()
	resources := func(of ...string) string {
		var all []string
		for _, r := range of {
			name, kind, _ := strings.Cut(r, " ")
			all = append(all, `{"name":"`+name+`","kind":"`+kind+`","namespaced":true,"verbs":["list","history"]}`)
		}
		return `{"resources":[` + strings.Join(all, ",") + `,{"name":"wholes","kind":"Whole","verbs":["history"]}]}`
	}
	list := func(revision string, items ...string) string {
		return `{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":"` + revision + `"},"items":[` + strings.Join(items, ",") + `]}`
	}
	object := func(name, value string) string {
		return `{"apiVersion":"v1","kind":"Item","metadata":{"name":"` + name + `","namespace":"shop"},"spec":"` + value + `","status":{"at":"` + value + `"}}`
	}
	const then, later, namespace = "/at/2026-11-17T10:00:00Z", "/at/7", "/api/v1/namespaces/shop"
	space := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`
	s := answers{documents: map[string]string{
		then + namespace: space, namespace: space,
		then + "/api/v1": resources("services Service"), "/api/v1": resources("services Service"),
		then + "/apis": `{"groups":[{"name":"x.dev","preferredVersion":{"version":"v1"}},{"name":"y.dev","preferredVersion":{"version":"v1"}},{"name":"gone.dev","preferredVersion":{"version":"v1"}}]}`, "/apis": `{"groups":[{"name":"x.dev","preferredVersion":{"version":"v1"}},{"name":"y.dev","preferredVersion":{"version":"v2"}}]}`,
		then + "/apis/x.dev/v1": resources("services Service"),
		"/apis/x.dev/v1":        resources("services Service", "late Late"),
		then + "/apis/y.dev/v1": resources("unkept Unkept"), "/apis/y.dev/v2": resources("unkept Unkept"), // another version is preferred
		then + "/apis/gone.dev/v1":                resources("parts Part"),
		namespace + "/services":                   list("9", object("a", "1"), object("b", "1")),
		"/apis/x.dev/v1/namespaces/shop/services": list("9", object("a", "2")),
		"/apis/x.dev/v1/namespaces/shop/late":     list("9", object("l", "1")),
		"/apis/y.dev/v2/namespaces/shop/unkept":   list("9", object("u", "1")),
	}}
	for _, at := range []string{then, later} { // the lists after the first are of its version
		s.documents[at+namespace+"/services"] = list("7", object("a", "1"))
		s.documents[at+"/apis/x.dev/v1/namespaces/shop/services"] = list("7", object("a", "1"))
		s.documents[at+"/apis/y.dev/v1/namespaces/shop/unkept"] = ""
		s.documents[at+"/apis/gone.dev/v1/namespaces/shop/parts"] = list("7", object("p", "1"))
	}
	var notes strings.Builder
	found, err := Compare(t.Context(), s, nil, "2026-11-17T10:00:00Z", "now", &notes)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	Write(lines{&text}, found, "was", "nothing")
	want := `shop late/l was created, shop part/p was deleted, shop service/a: spec: "1" → "2", shop service/b was created`
	if got := strings.ReplaceAll(strings.TrimSpace(text.String()), "\n", ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := notes.String(); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "unkept are left out: ") {
		t.Errorf("notes: %s", got)
	}
}
