package custom_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/test/harness"
)

// manifest writes a file of the directory whole, as a tool that ships it does.
func manifest(t *testing.T, dir, name, content string) {
	t.Helper()
	temporary := filepath.Join(dir, "."+name)
	if err := os.WriteFile(temporary, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

const gadgets = `# the order of the files is not that in which they are needed
apiVersion: example.org/v1
kind: Gadget
metadata: {name: first, namespace: shipped}
spec: {size: 1}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ResourceQuota, metadata: {name: small, namespace: shipped}, spec: {hard: {pods: "5"}}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: shipped}, data: {a: "1"}}
`

const gadgetKind = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shipped}}
`

// TestManifests: a server has what its directory has, in any order of files, from the first start on and after each change;
// what leaves the directory is deleted, also if that was while no server ran. Nothing else is deleted: neither what others
// made, nor anything while a file cannot be read or the directory is empty. What fails is tried again, and is a problem of
// the status. exeunt diff says before what a change would do, and nothing when all is applied.
func TestManifests(t *testing.T) {
	for _, engine := range harness.Engines(t.Name()) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			manifest(t, dir, "a.yaml", gadgets)
			manifest(t, dir, "b.yml", gadgetKind)
			s := harness.Start(t, engine, "--manifests", dir)
			has := func(want bool, objects ...string) {
				t.Helper()
				harness.Until(t, fmt.Sprintf("%v: %v", objects, want), func() error {
					for _, o := range objects {
						if r := s.Kubectl(t, append([]string{"get"}, strings.Fields(o)...)...); (r.Code == 0) != want {
							return fmt.Errorf("%s: %s%s", o, r.Stdout, r.Stderr)
						}
					}
					return nil
				})
			}
			diff := func(code int, says ...string) {
				t.Helper()
				harness.Until(t, fmt.Sprintf("a diff of %v", says), func() error {
					r := s.Exeunt(t, "diff", "-f", dir)
					for _, want := range says {
						if r.Code != code || !strings.Contains(r.Stdout+r.Stderr, want) {
							return fmt.Errorf("exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
						}
					}
					return nil
				})
			}
			has(true, "gadget/first -n shipped", "quota/small -n shipped", "configmap/shipped -n default")
			diff(0, "nothing would change")

			s.Kubectl(t, "create", "configmap", "other")
			changed := strings.Replace(strings.Replace(gadgets, "size: 1", "size: 2", 1), "name: small", "name: smaller", 1)
			elsewhere := t.TempDir()
			manifest(t, elsewhere, "a.yaml", changed)
			r := s.Exeunt(t, "diff", "-f", elsewhere)
			if r.Code != 1 || !strings.Contains(r.Stdout, "shipped gadget/first: spec.size: 1 → 2") || !strings.Contains(r.Stdout, "shipped resourcequota/smaller would be created") {
				t.Errorf("the diff, exit code %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
			}
			if engine == harness.Postgres { // another replica, with the same files
				s.Replica(t)
			}
			manifest(t, dir, "a.yaml", changed)
			has(true, "quota/smaller -n shipped")
			has(false, "quota/small -n shipped")
			diff(0, "nothing would change")
			if r := s.Kubectl(t, "get", "gadget/first", "-n", "shipped", "-o", "jsonpath={.metadata.generation}"); r.Stdout != "2" {
				t.Errorf("the generation after one change is %s%s", r.Stdout, r.Stderr)
			}

			manifest(t, dir, "a.yaml", "{")
			harness.Until(t, "the problem", func() error {
				if r := s.Exeunt(t, "status"); !strings.Contains(r.Stdout, "manifests: ") || !strings.Contains(r.Stdout, "a.yaml") {
					return fmt.Errorf("%s%s", r.Stdout, r.Stderr)
				}
				return nil
			})
			has(true, "quota/smaller -n shipped")

			refused := strings.Replace(changed, "name: smaller, namespace: shipped", "name: Not_A_Name, namespace: shipped", 1)
			manifest(t, dir, "a.yaml", refused)
			harness.Until(t, "an event", func() error {
				r := s.Kubectl(t, "get", "events", "-n", "kube-system", "--field-selector", "reason=NotApplied")
				if !strings.Contains(r.Stdout, "Not_A_Name") {
					return fmt.Errorf("%s%s", r.Stdout, r.Stderr)
				}
				return nil
			})
			has(false, "quota/smaller -n shipped")

			s.Stop()
			if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
				t.Fatal(err)
			}
			s.Start()
			has(false, "gadget/first -n shipped", "configmap/shipped -n default")
			has(true, "crd/gadgets.example.org", "namespace/shipped", "configmap/other")
			if err := os.Remove(filepath.Join(dir, "b.yml")); err != nil {
				t.Fatal(err)
			}
			harness.Until(t, "the problem", func() error {
				if r := s.Exeunt(t, "status"); !strings.Contains(r.Stdout, "has no objects") {
					return fmt.Errorf("%s%s", r.Stdout, r.Stderr)
				}
				return nil
			})
			has(true, "crd/gadgets.example.org", "namespace/shipped")
		})
	}
}
