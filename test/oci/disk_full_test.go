//go:build linux

package oci

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/crane"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"golang.org/x/sys/unix"

	"github.com/exeunt/exeunt/test/harness"
)

const (
	diskSize  = 24 << 20
	layerSize = 14 << 20 // one fits, two do not
)

// TestDiskFull: a push without enough disk space fails with an error that says so, in
// every upload mode, and leaves nothing behind. Pulls still work, and after an image is
// deleted the next push uses its space.
func TestDiskFull(t *testing.T) {
	for _, engine := range []string{harness.SQLite, harness.Postgres} {
		t.Run(engine, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "disk")
			mounted := mountSmall(t, dir)
			s := harness.Start(t, engine, "--registry-storage", dir, soon)
			d := smallDisk{craneFlow{t: t, at: s.Registry() + "/"}, s, dir}
			first, second := layerSize, layerSize
			if !mounted {
				// Without the right to mount, limit the size of files instead: another
				// errno, from the same system calls.
				first, second = 1<<20, diskSize+1
				d.limit(diskSize)
			}
			one, two := d.image(first), d.image(second)
			d.check(crane.Push(one, d.at+"shop/one:v1"))
			used := d.used()
			for range 2 {
				d.refused(remote.Write(d.ref("shop/two:v1"), two, loggedIn(), remote.WithRetryBackoff(remote.Backoff{Steps: 1})))
			}
			d.refusedWhole(second)
			// The client may have begun to upload a configuration, and given up because of
			// the layer: the upload is abandoned, and removed a day later.
			const begun = 4 << 10
			harness.Until(t, "what was refused to go", func() error {
				if now := d.used(); now > used+begun {
					return fmt.Errorf("%d bytes are stored, not %d", now, used)
				}
				return nil
			})
			pulled, err := crane.Pull(d.at + "shop/one:v1")
			d.check(err)
			d.check(validate.Image(pulled))
			t.Log(d.s.VerifyRegistry(t, "--registry-storage", dir))

			digest, err := one.Digest()
			d.check(err)
			d.check(crane.Delete(d.at + "shop/one@" + digest.String()))
			if !mounted {
				d.limit(unix.RLIM_INFINITY)
			}
			harness.Until(t, "space for the second image", func() error { return crane.Push(two, d.at+"shop/two:v1") })
			pulled, err = crane.Pull(d.at + "shop/two:v1")
			d.check(err)
			d.check(validate.Image(pulled))
			t.Log(d.s.VerifyRegistry(t, "--registry-storage", dir))
		})
	}
}

// smallDisk is a registry whose blobs are on a small file system.
type smallDisk struct {
	craneFlow
	s   *harness.Server
	dir string
}

// mountSmall mounts a small file system, if permitted.
func mountSmall(t *testing.T, dir string) bool {
	t.Helper()
	if err := unix.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", diskSize))
	if errors.Is(err, syscall.EPERM) {
		t.Log("cannot mount a file system: limiting the size of files instead")
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return true
}

// limit limits the size of the files that the server writes.
func (d smallDisk) limit(size uint64) {
	d.t.Helper()
	d.check(unix.Prlimit(d.s.Pid(), unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: unix.RLIM_INFINITY}, nil))
}

func (d smallDisk) image(size int) v1.Image {
	d.t.Helper()
	img, err := random.Image(int64(size), 1)
	d.check(err)
	return img
}

// used returns the number of bytes in the store.
func (d smallDisk) used() (sum int64) {
	d.t.Helper()
	err := filepath.WalkDir(d.dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		sum += info.Size()
		return err
	})
	d.check(err)
	return sum
}

// refused expects the answer of a registry whose storage is full.
func (d smallDisk) refused(err error) {
	d.t.Helper()
	var answer *transport.Error
	if !errors.As(err, &answer) || answer.StatusCode != http.StatusServiceUnavailable ||
		len(answer.Errors) != 1 || answer.Errors[0].Code != "UNAVAILABLE" || !strings.Contains(answer.Errors[0].Message, "storage is full") {
		d.t.Errorf("pushed to a full disk: %v", err)
	}
}

// refusedWhole sends a blob in one request, which must be refused.
func (d smallDisk) refusedWhole(size int) {
	d.t.Helper()
	content := bytes.Repeat([]byte("whole"), size/5)
	digest, _, err := v1.SHA256(bytes.NewReader(content))
	d.check(err)
	answer, err := d.s.RegistryHTTP().Post("http://"+d.at+"v2/shop/two/blobs/uploads/?digest="+digest.String(), "application/octet-stream", bytes.NewReader(content))
	d.check(err)
	defer answer.Body.Close()
	d.refused(transport.CheckError(answer, http.StatusCreated))
	if answer.Header.Get("Retry-After") == "" {
		d.t.Error("no Retry-After")
	}
}
