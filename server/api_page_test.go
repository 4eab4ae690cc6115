package server

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const apiPage = "../docs/reference/api.md"

const apiHeader = `# The API

` + "`go generate ./server`" + ` writes this page from what a new server announces to its clients (discovery). ` + "`kubectl api-resources`" + ` shows the same with the custom kinds that you
added, and ` + "`kubectl explain KIND`" + ` every field. Where the behaviour differs from Kubernetes, [kubernetes.md](../kubernetes.md) says so. The kinds in groups of
` + "`exeunt.dev`" + ` are ours: [deletion](../second-thoughts.md), [access](../access.md), [registry](../registry.md), [provisioning and mesh](../broker.md).

Every kind has the verbs that Kubernetes gives it, and besides those listed ` + "`history`" + ` if the server keeps its
[earlier versions](../history.md). A kind with only ` + "`create`" + ` is a question: it is answered and not stored.
`

// TestAPIPage: docs/reference/api.md has every kind, verb and subresource that a new server
// serves.
func TestAPIPage(t *testing.T) {
	t.Parallel()
	r := start(t, Config{Data: filepath.Join(t.TempDir(), "data"), RegistryListen: "127.0.0.1:0"})
	defer r.stop()
	if *update {
		writeAPIPage(t, r)
	}
	old, err := os.ReadFile(apiPage)
	if err != nil {
		t.Fatal(err)
	}
	// Some of our own kinds are stored definitions, which a new server establishes in its
	// first moments.
	page := announced(t, r)
	for deadline := time.Now().Add(patience); page != string(old) && time.Now().Before(deadline); page = announced(t, r) {
		time.Sleep(50 * time.Millisecond)
	}
	if diff := cmp.Diff(page, string(old)); diff != "" {
		t.Errorf("docs/reference/api.md is stale: run go generate ./server (-want +got):\n%s", diff)
	}
}

// writeAPIPage writes the page when it has been the same for two seconds.
func writeAPIPage(t *testing.T, r *running) {
	t.Helper()
	page, since := "", time.Now()
	for time.Since(since) < 2*time.Second {
		if now := announced(t, r); now != page {
			page, since = now, time.Now()
		}
	}
	if err := os.WriteFile(apiPage, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
}

// announced returns the page of what the server announces now.
func announced(t *testing.T, r *running) string {
	t.Helper()
	_, lists, err := r.client.Discovery().ServerGroupsAndResources()
	if err != nil {
		return err.Error() // a kind comes or goes
	}
	slices.SortFunc(lists, func(a, b *metav1.APIResourceList) int { return strings.Compare(a.GroupVersion, b.GroupVersion) })
	page := apiHeader
	for _, list := range lists {
		page += apiSection(list)
	}
	return page
}

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
