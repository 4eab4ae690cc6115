package oci

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/crane"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/random"

	"github.com/exeunt/exeunt/test/harness"
)

// TestImport imports the storage of a distribution registry twice: first one layer is
// missing, then it is back. Then crane pulls every image.
func TestImport(t *testing.T) {
	eachRepositoryFlow(t, func(f repositoryFlow) {
		old := storage{f.T, f.TempDir()}
		img, err := random.Image(300<<10, 3)
		if err != nil {
			f.Fatal(err)
		}
		old.tag("shop/web", "v1", old.image("shop/web", img))
		old.tag("mirror/of/web", "v1", old.image("mirror/of/web", img))
		index, err := random.Index(4<<10, 2, 2)
		if err != nil {
			f.Fatal(err)
		}
		children, err := partial.Manifests(index)
		if err != nil {
			f.Fatal(err)
		}
		for _, child := range children {
			old.image("multi", child.(v1.Image))
		}
		old.tag("multi", "latest", old.manifest("multi", index))
		broken, err := random.Image(1<<10, 1)
		if err != nil {
			f.Fatal(err)
		}
		old.tag("shop/broken", "v1", old.image("shop/broken", broken))
		lost := old.lose(broken)

		out, err := f.importFrom(old.dir)
		if err == nil || !strings.Contains(out, lost.String()+": its bytes are missing") || !strings.Contains(out, "NOT imported: 2 items") {
			f.Errorf("import with a lost layer: %v\n%s", err, out)
		}
		f.pulls("shop/web:v1", img)
		f.pulls("mirror/of/web:v1", img)
		pulled, err := crane.Digest(f.at + "multi:latest")
		if want, _ := index.Digest(); err != nil || pulled != want.String() {
			f.Errorf("multi:latest is %s, not %s: %v", pulled, want, err)
		}
		old.image("shop/broken", broken)
		if out, err = f.importFrom(old.dir); err != nil || !strings.Contains(out, "sent: 1 manifest, 1 tag, 1 blob") {
			f.Errorf("import again: %v\n%s", err, out)
		}
		f.pulls("shop/broken:v1", broken)
		if got := f.kubectl("get", "repository", "web", "-n", "shop", "-o", "jsonpath={.spec.path}"); got != "shop/web" {
			f.Errorf("the imported Repository has path %q", got)
		}
	})
}

// importFrom runs the command and returns its output.
func (f repositoryFlow) importFrom(dir string) (string, error) {
	f.Helper()
	plugins, err := harness.PluginDir()
	if err != nil {
		f.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(plugins, "exeunt"), "registry", "import", dir, "--registry", "http://"+f.s.Registry(), "--kubeconfig", f.s.Kubeconfig).CombinedOutput()
	return string(out), err
}

// storage writes files as a distribution registry stores them.
type storage struct {
	t   *testing.T
	dir string // its rootdirectory
}

func (s storage) write(path string, content []byte) {
	s.t.Helper()
	path = filepath.Join(s.dir, "docker/registry/v2", path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// data returns the path of a blob's bytes.
func (s storage) data(h v1.Hash) string {
	return "blobs/" + h.Algorithm + "/" + h.Hex[:2] + "/" + h.Hex + "/data"
}

// lose removes the bytes of an image's layer.
func (s storage) lose(img v1.Image) v1.Hash {
	s.t.Helper()
	layers, err := img.Layers()
	if err != nil {
		s.t.Fatal(err)
	}
	h, err := layers[0].Digest()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(s.dir, "docker/registry/v2", s.data(h))); err != nil {
		s.t.Fatal(err)
	}
	return h
}

// keep stores bytes and links them to a repository.
func (s storage) keep(repo, kind string, h v1.Hash, content []byte) {
	s.write(s.data(h), content)
	s.write("repositories/"+repo+"/"+kind+"/"+h.Algorithm+"/"+h.Hex+"/link", []byte(h.String()))
}

func (s storage) tag(repo, tag string, h v1.Hash) {
	at := "repositories/" + repo + "/_manifests/tags/" + tag
	s.write(at+"/current/link", []byte(h.String()))
	s.write(at+"/index/"+h.Algorithm+"/"+h.Hex+"/link", []byte(h.String()))
}

func (s storage) image(repo string, img v1.Image) v1.Hash {
	s.t.Helper()
	layers, err := img.Layers()
	if err != nil {
		s.t.Fatal(err)
	}
	config, err := partial.ConfigLayer(img)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, layer := range append(layers, config) {
		h, err := layer.Digest()
		if err != nil {
			s.t.Fatal(err)
		}
		content, err := layer.Compressed()
		if err != nil {
			s.t.Fatal(err)
		}
		all, err := io.ReadAll(content)
		if err != nil {
			s.t.Fatal(err)
		}
		s.keep(repo, "_layers", h, all)
	}
	return s.manifest(repo, img)
}

// manifest stores a manifest or index.
func (s storage) manifest(repo string, m interface {
	Digest() (v1.Hash, error)
	RawManifest() ([]byte, error)
}) v1.Hash {
	s.t.Helper()
	h, err := m.Digest()
	if err != nil {
		s.t.Fatal(err)
	}
	raw, err := m.RawManifest()
	if err != nil {
		s.t.Fatal(err)
	}
	s.keep(repo, "_manifests/revisions", h, raw)
	return h
}
