package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

func objectsOf(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	objects, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// TestLeft: what left the directory is what no file names any more, in whichever version of its kind, and whether or not a
// file says the default namespace. It is deleted in the order opposite to that of the files.
func TestLeft(t *testing.T) {
	const (
		hpa     = "{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: a}}\n---\n"
		newer   = "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: a, namespace: default}}\n---\n"
		moved   = "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: a, namespace: other}}\n---\n"
		other   = "{apiVersion: example.org/v1, kind: HorizontalPodAutoscaler, metadata: {name: a}}\n---\n"
		renamed = "{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: b}}\n---\n"
		config  = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n"
	)
	for name, c := range map[string]struct {
		was, is string
		left    string // names of kinds, in order
	}{
		"nothing changed":        {hpa + config, config + hpa, ""},
		"another version":        {hpa, newer, ""},
		"and back":               {newer, hpa, ""},
		"another namespace":      {newer, moved, "HorizontalPodAutoscaler"},
		"another group":          {hpa, other, "HorizontalPodAutoscaler"},
		"another name":           {hpa, renamed, "HorizontalPodAutoscaler"},
		"all but one":            {config + hpa + other, other, "HorizontalPodAutoscaler ConfigMap"},
		"nothing applied before": {"", hpa, ""},
	} {
		lines, _ := compare("", objectsOf(t, c.was))
		_, left := compare(strings.Join(lines, "\n"), objectsOf(t, c.is))
		var kinds []string
		for _, l := range left {
			kinds = append(kinds, parse(l).GetKind())
		}
		if got := strings.Join(kinds, " "); got != c.left {
			t.Errorf("%s: %q left, want %q", name, got, c.left)
		}
	}
}

// TestHostileDirectory: no file makes the reader wait or takes more memory than the bound.
func TestHostileDirectory(t *testing.T) {
	for name, create := range map[string]func(file string) error{
		"a pipe":       func(file string) error { return exec.Command("mkfifo", file).Run() },
		"a device":     func(file string) error { return os.Symlink("/dev/zero", file) },
		"a directory":  func(file string) error { return os.Symlink(filepath.Dir(file), file) },
		"a large file": func(file string) error { return os.WriteFile(file, bytes.Repeat([]byte("#"), mostBytes+1), 0o600) },
		"a gap": func(file string) error { // a file that says it has a terabyte
			return errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 1<<40))
		},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "a.yaml")
		if err := create(file); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(dir); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}

// TestRemoveOne: what is deleted is the object that was read. Another one that has its name meanwhile stays.
func TestRemoveOne(t *testing.T) {
	var asked metav1.DeleteOptions
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api":
			fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
		case "/apis":
			fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1"}`)
		case "/api/v1":
			fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"configmaps","kind":"ConfigMap","namespaced":true}]}`)
		default:
			if r.Method == http.MethodDelete {
				if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
					t.Error(err)
				}
			}
			fmt.Fprintf(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","uid":"read","managedFields":[{"manager":%q}]}}`, Manager)
		}
	}))
	defer server.Close()
	c, err := NewClient(&rest.Config{Host: server.URL})
	if err == nil {
		err = c.remove(t.Context(), objectsOf(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")[0])
	}
	if err != nil || asked.Preconditions == nil || asked.Preconditions.UID == nil || *asked.Preconditions.UID != "read" {
		t.Errorf("%v, asked with %+v", err, asked)
	}
}
