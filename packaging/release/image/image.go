// Package image makes the container image: an index with one image for each platform,
// from scratch, without Docker. Its content depends only on its arguments, so that two
// builds of one commit are equal.
//
// An image has two layers. The first is the same for all platforms: certificates of
// public authorities (for S3, OIDC and webhooks over TLS), the user, /tmp (SQLite puts
// large temporary results there) and the data directory. The second has the program. There
// is no shell: a health check is `exeunt status --ready`.
package image

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	// user is the id of user and group: not root, and the one that other images of this
	// kind use.
	user = 65532
	data = "/var/lib/exeunt"
)

// Build returns the index for programs, which maps a platform (linux/amd64) to the path of
// its program.
func Build(programs map[string]string, version string, date time.Time) (v1.ImageIndex, error) {
	base, err := baseLayer(date)
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return nil, fmt.Errorf("platform %q: %w", name, err)
		}
		one, err := build(*platform, base, programs[name], version, date)
		if err != nil {
			return nil, fmt.Errorf("image for %s: %w", name, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: one, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return index, nil
}

func build(platform v1.Platform, base v1.Layer, program, version string, date time.Time) (v1.Image, error) {
	layer, err := programLayer(program, date)
	if err != nil {
		return nil, err
	}
	one := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	one, err = mutate.Append(one,
		mutate.Addendum{Layer: base, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: date}, CreatedBy: "user, certificates of public authorities, directories"}},
		mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: date}, CreatedBy: "exeunt " + version}})
	if err != nil {
		return nil, err
	}
	file, err := one.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Created, file.OS, file.Architecture, file.Variant = v1.Time{Time: date}, platform.OS, platform.Architecture, platform.Variant
	file.Config = config(version)
	return mutate.ConfigFile(one, file)
}

// config has the server listen on all addresses of the container: the ports that its
// runtime publishes decide who reaches it.
func config(version string) v1.Config {
	return v1.Config{
		User:       fmt.Sprintf("%d:%d", user, user),
		Entrypoint: []string{"/usr/bin/exeunt"},
		Cmd:        []string{"serve"},
		Env: []string{
			"PATH=/usr/bin", "HOME=" + data, "KUBECONFIG=" + data + "/kubeconfig",
			"EXEUNT_DATA=" + data, "EXEUNT_LISTEN=0.0.0.0:6443", "EXEUNT_REGISTRY_LISTEN=0.0.0.0:5000",
		},
		ExposedPorts: map[string]struct{}{"6443/tcp": {}, "5000/tcp": {}},
		Volumes:      map[string]struct{}{data: {}},
		WorkingDir:   data,
		StopSignal:   "SIGTERM",
		Labels: map[string]string{
			"org.opencontainers.image.title":    "exeunt",
			"org.opencontainers.image.version":  version,
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.url":      "https://exeunt.dev",
		},
	}
}

// baseLayer returns the layer that all platforms share.
func baseLayer(date time.Time) (v1.Layer, error) {
	return layer(date, []entry{
		directory("etc", 0, 0o755), directory("etc/ssl", 0, 0o755), directory("etc/ssl/certs", 0, 0o755),
		file("etc/group", fmt.Appendf(nil, "root:x:0:\nexeunt:x:%d:\n", user), 0o644),
		file("etc/passwd", fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nexeunt:x:%d:%d:Exeunt server:%s:/sbin/nologin\n", user, user, data), 0o644),
		file("etc/ssl/certs/ca-certificates.crt", authorities(), 0o644),
		directory("tmp", 0, 0o1777),
		directory("usr", 0, 0o755), directory("usr/bin", 0, 0o755),
		directory("var", 0, 0o755), directory("var/lib", 0, 0o755), directory("var/lib/exeunt", user, 0o700),
	})
}

func programLayer(program string, date time.Time) (v1.Layer, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	return layer(date, []entry{
		file("usr/bin/exeunt", content, 0o755),
		{tar.Header{Typeflag: tar.TypeSymlink, Name: "usr/bin/kubectl-exeunt", Linkname: "exeunt", Mode: 0o777}, nil},
	})
}

// authorities returns the roots of Mozilla's list as of the version of the module, so that
// the build machine has no influence. A file of certificates cannot express "only for
// certificates until a date": roots with such a constraint are left out.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer does not fail
		}
	}
	return out.Bytes()
}

// entry is one file or directory of a layer.
type entry struct {
	header  tar.Header
	content []byte
}

func directory(name string, owner int, mode int64) entry {
	return entry{tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: owner, Gid: owner}, nil}
}

func file(name string, content []byte, mode int64) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}, content}
}

func layer(date time.Time, entries []entry) (v1.Layer, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, e := range entries {
		e.header.ModTime = date
		if err := archive.WriteHeader(&e.header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(e.content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}
