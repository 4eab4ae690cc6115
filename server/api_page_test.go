package server

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const apiPage = "../docs/reference/api.md"

const apiHeader = `# The API

` + "`go generate ./server`" + ` writes this page from what a new server announces to its clients (discovery). ` + "`kubectl api-resources`" + ` shows the same with the custom kinds that you
added, and ` + "`kubectl explain KIND`" + ` every field. Where the behaviour differs from Kubernetes, [kubernetes.md](../kubernetes.md) says so. The kinds in groups of
` + "`exeunt.dev`" + ` are ours: [deletion](../second-thoughts.md), [access](../access.md), [registry, provisioning and mesh](../operating.md).

Every kind has the verbs that Kubernetes gives it. A kind with only ` + "`create`" + ` is a question: it is answered and not stored.
`

// TestAPIPage: docs/reference/api.md has every kind, verb and subresource that a new server
// serves.
func TestAPIPage(t *testing.T) {
	t.Parallel()
	r := start(t, Config{Data: filepath.Join(t.TempDir(), "data"), RegistryListen: "127.0.0.1:0"})
	var lists []*metav1.APIResourceList
	until(t, "the server establishes its own kinds", func() bool {
		var err error
		if _, lists, err = r.client.Discovery().ServerGroupsAndResources(); err != nil {
			return false
		}
		found := 0
		for _, list := range lists {
			if strings.Contains(list.GroupVersion, ".exeunt.dev/") {
				found += len(list.APIResources)
			}
		}
		return found >= ownResources
	})
	page := apiHeader
	slices.SortFunc(lists, func(a, b *metav1.APIResourceList) int { return strings.Compare(a.GroupVersion, b.GroupVersion) })
	for _, list := range lists {
		page += apiSection(list)
	}
	r.stop()
	if *update {
		if err := os.WriteFile(apiPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	old, err := os.ReadFile(apiPage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(page, string(old)); diff != "" {
		t.Errorf("docs/reference/api.md is stale: run go generate ./server (-want +got):\n%s", diff)
	}
}

// ownResources is how many resources and subresources our own groups have. Some are stored
// definitions, which a new server establishes in its first moments.
const ownResources = 13

// apiSection returns the table of one group and version.
func apiSection(list *metav1.APIResourceList) string {
	below := map[string][]string{}
	var kinds []metav1.APIResource
	for _, resource := range list.APIResources {
		if name, sub, ok := strings.Cut(resource.Name, "/"); ok {
			below[name] = append(below[name], sub)
		} else {
			kinds = append(kinds, resource)
		}
	}
	slices.SortFunc(kinds, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	text := fmt.Sprintf("\n## %s\n\n| kind | resource | in | verbs | subresources |\n|---|---|---|---|---|\n", list.GroupVersion)
	for _, kind := range kinds {
		in := "cluster"
		if kind.Namespaced {
			in = "namespace"
		}
		name := "`" + kind.Name + "`"
		for _, short := range kind.ShortNames {
			name += ", `" + short + "`"
		}
		verbs := slices.Sorted(slices.Values(kind.Verbs))
		if subs := below[kind.Name]; subs != nil {
			slices.Sort(subs)
		}
		text += fmt.Sprintf("| %s | %s | %s | %s | %s |\n", kind.Kind, name, in, strings.Join(verbs, " "), strings.Join(below[kind.Name], " "))
	}
	return text
}
