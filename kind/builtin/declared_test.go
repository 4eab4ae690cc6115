package builtin

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestUndeclared reads the rules that Kubernetes declares for the kinds that do not compute them: they are
// rules of metadata only, and all of those are alpha, which nothing enforces.
func TestUndeclared(t *testing.T) {
	t.Parallel()
	rule := regexp.MustCompile(`(?m)^.*\bvalidate\.\w+\(.*$`)
	for _, line := range rule.FindAllString(generated(t, "k8s.io/apimachinery/pkg/apis/meta/v1/validation"), -1) {
		if !strings.Contains(line, "MarkAlpha()") && !strings.Contains(line, "validate.EachVal") {
			t.Errorf("an enforced rule of metadata: %s", strings.TrimSpace(line))
		}
	}
	for _, group := range [][]def{coreDefs(), networkDefs()} {
		for _, d := range group {
			if !d.undeclared {
				continue
			}
			gvk := gvkOf(d.obj)
			source := generated(t, "k8s.io/kubernetes/pkg/apis/"+packageOf(gvk.Group)+"/"+gvk.Version)
			_, body, ok := strings.Cut(source, "func Validate_"+gvk.Kind+"(")
			body, _, ended := strings.Cut(body, "\n}\n")
			if !ok || !ended {
				t.Fatalf("%v has no declared rules at all", gvk)
			}
			if rule.MatchString(body) || strings.Count(body, "Validate_") != 1 || !strings.Contains(body, "validation.Validate_ObjectMeta(") {
				t.Errorf("Kubernetes declares rules for %v", gvk)
			}
		}
	}
}

func packageOf(group string) string {
	if group == "" {
		return "core"
	}
	return strings.TrimSuffix(group, ".k8s.io")
}

// generated returns the declared rules of a package of Kubernetes, as Go.
func generated(t *testing.T, path string) string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "zz_generated.validations.go"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
