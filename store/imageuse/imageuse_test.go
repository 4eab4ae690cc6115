package imageuse

import (
	"fmt"
	"strings"
	"testing"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// TestParse: any host is left out, a tag and a digest are two, and what is no image is none.
func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"web":                                 "[{web latest}]",
		"shop/web":                            "[{shop/web latest}]",
		"shop/web:v1":                         "[{shop/web v1}]",
		"localhost/shop/web:v1":               "[{shop/web v1}]",
		"127.0.0.1:5000/shop/team/web:v1":     "[{shop/team/web v1}]",
		"registry.example/web@" + digest:      "[{web " + digest + "}]",
		"registry.example/web:v1@" + digest:   "[{web v1} {web " + digest + "}]",
		"docker-pullable://h:1/web@" + digest: "[{web " + digest + "}]",
		"":                                    "[]", "Web:v1": "[]", "a b": "[]", "web:": "[]", "web@sha256:12": "[]", "h:1/": "[]",
		strings.Repeat("a", 256): "[]",
	} {
		if got := fmt.Sprint(Parse(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// FuzzParse: what is parsed fits the columns, and parses to itself.
func FuzzParse(f *testing.F) {
	f.Add("127.0.0.1:5000/shop/web:v1@" + digest)
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range Parse(text) {
			separator := ":"
			if strings.Contains(r.Reference, ":") {
				separator = "@"
			}
			again := Parse("h.example/" + r.Path + separator + r.Reference)
			if len(r.Path) > 255 || len(again) != 1 || again[0] != r {
				t.Errorf("%q: %v, and again %v", text, r, again)
			}
		}
	})
}

// TestOf: images of containers of all sorts, of volumes, of templates, and what runs.
func TestOf(t *testing.T) {
	t.Parallel()
	const template = `{"metadata":{"annotations":{"image":"no:1"}},"spec":{"initContainers":[{"name":"image","image":"init:1"}],"containers":[{"image":"a:1"},{"image":"a:1"}],
		"ephemeralContainers":[{"image":"e:1"}],"volumes":[{"name":"v","image":{"reference":"vol:1","pullPolicy":"Always"}}]}}`
	const all = "[{a 1} {e 1} {init 1} {vol 1}]"
	for kind, body := range map[string]string{
		"deployments.apps":         `{"metadata":{"name":"image"},"spec":{"template":` + template + `}}`,
		"cronjobs.batch":           `{"spec":{"jobTemplate":{"spec":{"template":` + template + `}}}}`,
		"podtemplates":             `{"template":` + template + `}`,
		"controllerrevisions.apps": `{"data":{"spec":{"template":` + template + `}}}`,
	} {
		if got := fmt.Sprint(Of(kind, []byte(body))); got != strings.Replace(all, "{vol", "{no 1} {vol", 1) {
			t.Errorf("%s: %s", kind, got)
		}
	}
	pod := `{"spec":{"containers":[{"image":"a:1"}]},"status":{"containerStatuses":[{"image":"a:1","imageID":"h.example/a@` + digest + `"}]}}`
	if got := fmt.Sprint(Of("pods", []byte(pod))); got != "[{a 1} {a "+digest+"}]" {
		t.Errorf("pod: %s", got)
	}
	for _, kind := range []string{"secrets", "configmaps"} {
		if got := Of(kind, []byte(pod)); got != nil {
			t.Errorf("%s: %v", kind, got)
		}
	}
	if got := Of("pods", []byte(`{"spec":{"containers":[`+strings.Repeat(`{"image":"a"},`, 3*maxRefs)+`{"image":"z"}]}}`)); fmt.Sprint(got) != "[{a latest} {z latest}]" {
		t.Errorf("%d images", len(got))
	}
}
