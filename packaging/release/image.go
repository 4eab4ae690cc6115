package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/exeunt/exeunt/packaging/release/image"
)

// image writes the container image as an OCI layout in a tar archive, which podman load,
// docker load and skopeo (oci-archive:) read. Without a program for Linux there is none.
func (r *release) image() error {
	if len(r.linux) == 0 {
		return nil
	}
	index, err := image.Build(r.linux, r.version, r.date)
	if err != nil {
		return err
	}
	return r.writeImage(index)
}

func (r *release) layout() string { return filepath.Join(r.into, "image") }

func (r *release) writeImage(index v1.ImageIndex) (err error) {
	dir, err := layout.Write(r.layout(), empty.Index)
	if err != nil {
		return err
	}
	// One entry, the index of platforms: clients that load the archive choose among those
	// by platform, and refuse several entries. podman load takes the name from the annotation.
	if err := dir.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "exeunt:" + r.version})); err != nil {
		return err
	}
	var files []packed
	err = filepath.WalkDir(r.layout(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		as, err := filepath.Rel(r.layout(), path)
		files = append(files, packed{path, filepath.ToSlash(as), 0o644})
		return err
	})
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(r.into, "exeunt-"+r.version+"-image.tar"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	digest, err := index.Digest()
	log.Printf("image %s", digest)
	return errors.Join(err, r.tar(out, files))
}

// push sends the image to a registry, with the credentials that docker login or crane auth
// stored.
func (r *release) push(to string) error {
	ref, err := name.ParseReference(to)
	if err != nil {
		return err
	}
	index, err := r.readImage()
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(ref, index, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return err
	}
	digest, err := index.Digest()
	log.Printf("pushed %s@%s", ref, digest)
	return err
}

// readImage returns what writeImage wrote.
func (r *release) readImage() (v1.ImageIndex, error) {
	all, err := layout.ImageIndexFromPath(r.layout())
	if err != nil {
		return nil, err
	}
	list, err := all.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(list.Manifests) != 1 {
		return nil, fmt.Errorf("%s has %d images, want one index", r.layout(), len(list.Manifests))
	}
	return all.ImageIndex(list.Manifests[0].Digest)
}
