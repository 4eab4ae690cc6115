package oci

import (
	"archive/tar"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/exeunt/exeunt/packaging/release/image"
	"github.com/exeunt/exeunt/test/harness"
)

// ownImage pushes the container image of this server (make image) to its own registry, and
// checks what it pulls back: both platforms, every byte, the configuration, and the files
// that a program without a distribution needs. Then it runs this machine's.
func (c craneFlow) ownImage() {
	dir, err := harness.PluginDir()
	c.check(err)
	other := filepath.Join(c.t.TempDir(), "exeunt") // stands for the program of the other platform, which takes minutes to build
	c.check(os.WriteFile(other, []byte("a program"), 0o755))
	programs := map[string]string{"linux/amd64": other, "linux/arm64": other}
	programs["linux/"+runtime.GOARCH] = filepath.Join(dir, "exeunt")
	index, err := image.Build(programs, "v1.2.3", time.Unix(1700000000, 0).UTC())
	c.check(err)
	c.check(remote.WriteIndex(c.ref("exeunt/exeunt:v1.2.3"), index, loggedIn()))
	for _, processor := range []string{"amd64", "arm64"} {
		pulled, err := remote.Image(c.ref("exeunt/exeunt:v1.2.3"), loggedIn(), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: processor}))
		c.check(err)
		checkImageConfig(c.t, pulled, processor)
		c.check(validate.Image(pulled))
		checkImageFiles(c.t, pulled)
		if processor == runtime.GOARCH {
			c.runImage(pulled)
		}
	}
}

// checkImageConfig: the image runs the server as a user that is not root.
func checkImageConfig(t *testing.T, pulled v1.Image, processor string) {
	t.Helper()
	file, err := pulled.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config := file.Config
	_, api := config.ExposedPorts["6443/tcp"]
	_, registry := config.ExposedPorts["5000/tcp"]
	_, data := config.Volumes["/var/lib/exeunt"]
	if file.Architecture != processor || file.OS != "linux" || config.User != "65532:65532" || !slices.Equal(config.Entrypoint, []string{"/usr/bin/exeunt"}) ||
		!slices.Equal(config.Cmd, []string{"serve"}) || !api || !registry || !data || config.Labels["org.opencontainers.image.version"] != "v1.2.3" ||
		!slices.Contains(config.Env, "EXEUNT_DATA=/var/lib/exeunt") {
		t.Errorf("the image for %s has %s/%s and %+v", processor, file.OS, file.Architecture, config)
	}
}

// checkImageFiles: modes and owners, and authorities that crypto/x509 reads.
func checkImageFiles(t *testing.T, pulled v1.Image) {
	t.Helper()
	type about struct {
		mode  int64
		owner int
	}
	found := map[string]about{}
	content := mutate.Extract(pulled)
	defer content.Close()
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		found[filepath.Clean(header.Name)] = about{header.Mode, header.Uid}
		if header.Name == "etc/ssl/certs/ca-certificates.crt" {
			text, err := io.ReadAll(archive)
			if pool := x509.NewCertPool(); err != nil || !pool.AppendCertsFromPEM(text) {
				t.Errorf("%s has no certificates: %v", header.Name, err)
			}
		}
	}
	for name, want := range map[string]about{
		"usr/bin/exeunt": {0o755, 0}, "tmp": {0o1777, 0}, "var/lib/exeunt": {0o700, 65532}, "etc/passwd": {0o644, 0}, "etc/ssl/certs/ca-certificates.crt": {0o644, 0},
	} {
		if found[name] != want {
			t.Errorf("%s has mode and owner %o, want %o", name, found[name], want)
		}
	}
}
