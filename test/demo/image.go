package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/crane"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const (
	repository = namespace + "/web"
	// layerSize is larger than the blobs that the database stores, so layers are files.
	layerSize = 256 << 10
	layers    = 3
)

var tags = []string{"v1", "v2", "v3"}

// push pushes an image for each tag, and returns them.
func (s *stage) push(ctx context.Context) (map[string]v1.Image, error) {
	images := map[string]v1.Image{}
	for _, tag := range tags {
		image, err := random.Image(layerSize, layers)
		if err != nil {
			return nil, err
		}
		// On a slow machine the registry may have collected the layers before their
		// manifest arrived; then the demo pushes them again.
		err = until(ctx, "push "+tag, func() error { return crane.Push(image, s.reference(tag), s.login, crane.WithContext(ctx)) })
		if err != nil {
			return nil, err
		}
		images[tag] = image
	}
	return images, nil
}

func (s *stage) reference(tag string) string { return s.registry + "/" + repository + ":" + tag }

// pull pulls all images and checks every byte of them.
func (s *stage) pull(ctx context.Context, images map[string]v1.Image) error {
	for _, tag := range tags {
		got, err := crane.Pull(s.reference(tag), s.login, crane.WithContext(ctx))
		if err != nil {
			return fmt.Errorf("pull %s: %w", tag, err)
		}
		is, err := got.Digest()
		was, wasErr := images[tag].Digest()
		if err := errors.Join(err, wasErr, validate.Image(got)); err != nil {
			return fmt.Errorf("pull %s: %w", tag, err)
		}
		if is != was {
			return fmt.Errorf("pull %s: it is %s and was %s", tag, is, was)
		}
	}
	return nil
}

// unreachable checks that no image can be pulled.
func (s *stage) unreachable(ctx context.Context) error {
	for _, tag := range tags {
		if _, err := crane.Pull(s.reference(tag), s.login, crane.WithContext(ctx)); err == nil || !strings.Contains(err.Error(), "NAME_UNKNOWN") {
			return fmt.Errorf("pull %s of a repository that is gone: %v", tag, err)
		}
	}
	return nil
}

// Disk is the size of the registry's files on disk.
type Disk struct {
	Files int
	Bytes int64
}

// disk measures the directory of blobs. It does not count the id file that links the
// directory to its database, nor files that vanish meanwhile.
func (s *stage) disk() (d Disk, err error) {
	err = filepath.WalkDir(filepath.Join(s.Dir, "data", "blobs"), func(_ string, entry fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() || entry.Name() == ".exeunt-id" {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		d.Files++
		d.Bytes += info.Size()
		return nil
	})
	return d, err
}
