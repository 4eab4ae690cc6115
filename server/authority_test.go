package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/access"
)

// TestTakeAuthority: a replica gets the authority of the others at its first start, also
// after a crash between the two files, and never loses another one.
func TestTakeAuthority(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	if err := access.CreateAuthority(shared, time.Now()); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	c := Config{Data: t.TempDir(), AuthorityDir: shared}
	own := filepath.Join(c.Data, "pki")
	for _, missing := range []string{"", "ca.crt", "ca.key"} {
		if missing != "" {
			if err := os.Remove(filepath.Join(own, missing)); err != nil {
				t.Fatal(err)
			}
		}
		if err := takeAuthority(c); err != nil {
			t.Fatalf("without %q: %v", missing, err)
		}
		for _, name := range []string{"ca.crt", "ca.key"} {
			if read(filepath.Join(own, name)) != read(filepath.Join(shared, name)) {
				t.Errorf("without %q: %s differs", missing, name)
			}
		}
	}
	identity, err := access.Open(own, []string{"localhost"}, time.Now())
	if err != nil || string(identity.AuthorityPEM()) != read(filepath.Join(shared, "ca.crt")) {
		t.Errorf("the server does not use the authority: %v", err)
	}
	other := t.TempDir()
	if err := access.CreateAuthority(other, time.Now()); err != nil {
		t.Fatal(err)
	}
	before := read(filepath.Join(own, "ca.key"))
	if err := takeAuthority(Config{Data: c.Data, AuthorityDir: other}); err == nil || !strings.Contains(err.Error(), "differs from") {
		t.Errorf("another authority: %v", err)
	}
	if read(filepath.Join(own, "ca.key")) != before {
		t.Error("the key of the authority was replaced")
	}
	if err := takeAuthority(Config{Data: t.TempDir(), AuthorityDir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "ca.crt") {
		t.Errorf("an empty directory: %v", err)
	}
}

// TestRotation: after a rotation the old kubeconfig works, the new one and the ConfigMaps
// have both authorities; after its end the old one is refused and gone.
func TestRotation(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	authorities := func(r *running) (kubeconfig, roots, clients int) {
		t.Helper()
		root, err := r.client.CoreV1().ConfigMaps("default").Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		extension, err := r.client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		count := func(text string) int { return strings.Count(text, "BEGIN CERTIFICATE") }
		return count(string(r.http.CAData)), count(root.Data["ca.crt"]), count(extension.Data["client-ca-file"])
	}
	works := func(config *rest.Config, at *running) error {
		t.Helper()
		config = rest.CopyConfig(config)
		config.Host = at.http.Host
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		return err
	}
	before := start(t, Config{Data: data})
	before.stop()
	if err := access.RotateAuthority(filepath.Join(data, "pki"), time.Now()); err != nil {
		t.Fatal(err)
	}
	between := start(t, Config{Data: data})
	if a, b, c := authorities(between); a != 2 || b != 2 || c != 2 {
		t.Errorf("during the rotation the kubeconfig has %d authorities, kube-root-ca.crt %d, extension-apiserver-authentication %d", a, b, c)
	}
	if err := works(before.http, between); err != nil {
		t.Errorf("the old kubeconfig during the rotation: %v", err)
	}
	between.stop()
	if err := access.FinishRotation(filepath.Join(data, "pki")); err != nil {
		t.Fatal(err)
	}
	after := start(t, Config{Data: data})
	if a, b, c := authorities(after); a != 1 || b != 1 || c != 1 {
		t.Errorf("after the rotation the kubeconfig has %d authorities, kube-root-ca.crt %d, extension-apiserver-authentication %d", a, b, c)
	}
	if err := works(before.http, after); err == nil {
		t.Error("the old kubeconfig works after the rotation")
	}
	if err := works(between.http, after); err != nil {
		t.Errorf("the kubeconfig of the rotation after its end: %v", err)
	}
	after.stop()
}
