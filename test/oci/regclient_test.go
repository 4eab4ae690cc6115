package oci

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/regclient/regclient"
	"github.com/regclient/regclient/config"
	"github.com/regclient/regclient/types/descriptor"
	"github.com/regclient/regclient/types/errs"
	"github.com/regclient/regclient/types/ref"

	"github.com/exeunt/exeunt/test/harness"
)

// TestRegclient pushes in chunks, mounts, copies by digest, exports and imports, lists and
// deletes tags, with regctl's library.
func TestRegclient(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		// Small limits make every blob a chunked upload.
		rc := regclient.New(
			regclient.WithConfigHost(config.Host{Name: s.Registry(), TLS: config.TLSDisabled, User: harness.RegistryUser, Pass: s.RegistryToken()}),
			regclient.WithBlobSize(16<<10, 16<<10))
		f := regFlow{t: t, rc: rc, at: s.Registry() + "/"}
		f.chunks()
		f.copies()
		f.tags()
	})
}

type regFlow struct {
	t  *testing.T
	rc *regclient.RegClient
	at string
}

func (f regFlow) check(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f regFlow) ref(at string) ref.Ref {
	f.t.Helper()
	r, err := ref.New(f.at + at)
	f.check(err)
	return r
}

// chunks pushes a blob in pieces, mounts it in another repository and reads it there.
func (f regFlow) chunks() {
	data := bytes.Repeat([]byte("chunk by chunk. "), 8<<10)
	d, err := f.rc.BlobPut(f.t.Context(), f.ref("chunked/here"), descriptor.Descriptor{}, bytes.NewReader(data))
	f.check(err)
	f.check(f.rc.BlobMount(f.t.Context(), f.ref("chunked/here"), f.ref("chunked/there"), d))
	reader, err := f.rc.BlobGet(f.t.Context(), f.ref("chunked/there"), d)
	f.check(err)
	defer reader.Close()
	got, err := io.ReadAll(reader)
	f.check(err)
	if !bytes.Equal(got, data) {
		f.t.Errorf("read %d bytes back, want the %d that were pushed", len(got), len(data))
	}
}

// copies copies an image directly, and through an exported file.
func (f regFlow) copies() {
	img, err := random.Image(40<<10, 2)
	f.check(err)
	f.check(crane.Push(img, f.at+"reg/web:v1"))
	f.check(f.rc.ImageCopy(f.t.Context(), f.ref("reg/web:v1"), f.ref("reg/copy:v1")))
	var file bytes.Buffer
	f.check(f.rc.ImageExport(f.t.Context(), f.ref("reg/copy:v1"), &file))
	f.check(f.rc.ImageImport(f.t.Context(), f.ref("reg/loaded:v1"), bytes.NewReader(file.Bytes())))
	want, err := img.Digest()
	f.check(err)
	for _, at := range []string{"reg/copy:v1", "reg/loaded:v1"} {
		m, err := f.rc.ManifestHead(f.t.Context(), f.ref(at))
		f.check(err)
		if got := m.GetDescriptor().Digest.String(); got != want.String() {
			f.t.Errorf("%s is %s, want %s", at, got, want)
		}
	}
}

func (f regFlow) tags() {
	f.check(f.rc.ImageCopy(f.t.Context(), f.ref("reg/web:v1"), f.ref("reg/web:v2")))
	f.check(f.rc.TagDelete(f.t.Context(), f.ref("reg/web:v1")))
	list, err := f.rc.TagList(f.t.Context(), f.ref("reg/web"))
	f.check(err)
	if !slices.Equal(list.Tags, []string{"v2"}) {
		f.t.Errorf("tags %q, want only v2", list.Tags)
	}
	if _, err := f.rc.ManifestHead(f.t.Context(), f.ref("reg/web:v1")); !errors.Is(err, errs.ErrNotFound) {
		f.t.Errorf("a deleted tag answers %v", err)
	}
}
