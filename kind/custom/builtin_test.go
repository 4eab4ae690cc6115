package custom

import (
	"encoding/json"
	"io/fs"
	"os"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"
)

// TestBuiltIn: each definition of this repository that is built in has the same kind as if its schemas were
// compiled at once, and they can be compiled.
func TestBuiltIn(t *testing.T) {
	root, found := os.DirFS("../.."), 0
	err := fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		top, _, _ := strings.Cut(path, "/")
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".yaml") || top == "test" || top == "examples" || top == "packaging" || top == "bin" {
			return err
		}
		text, err := fs.ReadFile(root, path)
		if err != nil || !strings.Contains(string(text), "openAPIV3Schema:") {
			return err
		}
		found++
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		crd.Name, crd.Generation, crd.Status.AcceptedNames = crd.Spec.Names.Plural+"."+crd.Spec.Group, 1, crd.Spec.Names
		want, err := New(crd, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		got, err := BuiltIn(text)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if len(got.Versions) != len(want.Versions) || got.Storage != want.Storage || got.StoredAs != want.StoredAs || got.Namespaced != want.Namespaced {
			t.Errorf("%s: %+v, not %+v", path, got, want)
		}
		for i, v := range got.Versions {
			is, err := json.Marshal(v.Schema())
			should, wrong := json.Marshal(want.Versions[i].Schema())
			if err != nil || wrong != nil || v.GVK != want.Versions[i].GVK || v.Raw != want.Versions[i].Raw || string(is) != string(should) {
				t.Errorf("%s: version %s is another", path, v.GVK.Version)
			}
		}
		header := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(withoutSchemas(text), header); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Schema = nil
		}
		if !equality.Semantic.DeepEqual(header.Spec, crd.Spec) {
			t.Errorf("%s: without its schemas the definition is %+v", path, header.Spec)
		}
		return nil
	})
	if err != nil || found < 8 {
		t.Errorf("%d definitions, %v", found, err)
	}
}
