package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"slices"
	"testing"

	"helm.sh/helm/v3/pkg/registry"

	"github.com/exeunt/exeunt/test/harness"
)

// TestHelm pushes charts with helm's library, lists their versions, and pulls
// one, with its provenance.
func TestHelm(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		client, err := registry.NewClient(registry.ClientOptPlainHTTP(), registry.ClientOptWriter(io.Discard),
			registry.ClientOptBasicAuth(harness.RegistryUser, s.RegistryToken()))
		if err != nil {
			t.Fatal(err)
		}
		at := s.Registry() + "/shop/charts/web"
		var last []byte
		for _, version := range []string{"0.9.0", "1.0.0", "1.1.0+build.7"} {
			last = chart(t, "web", version)
			if _, err := client.Push(last, at+":"+version, registry.PushOptProvData([]byte("signed"))); err != nil {
				t.Fatalf("push %s: %v", version, err)
			}
		}
		tags, err := client.Tags(at)
		if want := []string{"1.1.0+build.7", "1.0.0", "0.9.0"}; err != nil || !slices.Equal(tags, want) {
			t.Errorf("versions %q, want %q: %v", tags, want, err)
		}
		pulled, err := client.Pull(at+":1.1.0+build.7", registry.PullOptWithProv(true))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(pulled.Chart.Data, last) || string(pulled.Prov.Data) != "signed" || pulled.Chart.Meta.Name != "web" {
			t.Errorf("pulled %d bytes of %+v, provenance %q", len(pulled.Chart.Data), pulled.Chart.Meta, pulled.Prov.Data)
		}
		if _, err := client.Pull(at + ":2.0.0"); err == nil {
			t.Error("pulled a version that was not pushed")
		}
		if s.Engine == harness.SQLite {
			applyChart(t, s)
		}
	})
}

// chart returns the archive of a chart that has only a name.
func chart(t *testing.T, name, version string) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	content := "apiVersion: v2\nname: " + name + "\nversion: " + version + "\n"
	err := archive.WriteHeader(&tar.Header{Name: name + "/Chart.yaml", Mode: 0o644, Size: int64(len(content))})
	if err == nil {
		_, err = io.WriteString(archive, content)
	}
	for _, step := range []func() error{archive.Close, compressed.Close} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
