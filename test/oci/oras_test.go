package oci

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/exeunt/exeunt/test/harness"
)

const sbom = "application/vnd.example.sbom"

// TestOras pushes an artifact, attaches another one to it, discovers it, copies both, and
// deletes, with oras' library.
func TestOras(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		ctx := t.Context()
		repo := orasRepository(t, s, "artifacts/report")
		report := pack(t, repo, "application/vnd.example.report", []byte("all is well"), nil)
		if err := repo.Tag(ctx, report, "v1"); err != nil {
			t.Fatal(err)
		}
		attached := pack(t, repo, sbom, []byte("flour, water, salt"), &report)
		referrers(t, repo, report, attached)

		elsewhere := orasRepository(t, s, "artifacts/mirror")
		copied, err := oras.ExtendedCopy(ctx, repo, "v1", elsewhere, "v1", oras.DefaultExtendedCopyOptions)
		if err != nil {
			t.Fatal(err)
		}
		if copied.Digest != report.Digest {
			t.Errorf("copied %s, want %s", copied.Digest, report.Digest)
		}
		referrers(t, elsewhere, report, attached)

		if err := elsewhere.Delete(ctx, attached); err != nil {
			t.Fatal(err)
		}
		referrers(t, elsewhere, report)
		referrers(t, repo, report, attached)
		if err := elsewhere.Delete(ctx, report); err != nil {
			t.Fatal(err)
		}
		if _, err := elsewhere.Resolve(ctx, "v1"); !errors.Is(err, errdef.ErrNotFound) {
			t.Errorf("resolve a deleted manifest: %v", err)
		}
	})
}

func orasRepository(t *testing.T, s *harness.Server, name string) *remote.Repository {
	t.Helper()
	repo, err := remote.NewRepository(s.Registry() + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	repo.PlainHTTP = true
	repo.Client = &auth.Client{Credential: credentials.Credential(orasLogin(t, s))}
	return repo
}

// orasLogin does what "oras login" does, and returns the credentials that it keeps. A wrong
// password is refused and not kept.
func orasLogin(t *testing.T, s *harness.Server) credentials.Store {
	t.Helper()
	store := credentials.NewMemoryStore()
	images, err := remote.NewRegistry(s.Registry())
	if err != nil {
		t.Fatal(err)
	}
	images.PlainHTTP = true
	wrong := auth.Credential{Username: harness.RegistryUser, Password: "wrong"}
	if err := credentials.Login(t.Context(), store, images, wrong); err == nil {
		t.Fatal("oras logged in with a wrong password")
	}
	if kept, err := store.Get(t.Context(), s.Registry()); err != nil || kept != auth.EmptyCredential {
		t.Fatalf("oras kept %v, %v", kept, err)
	}
	right := auth.Credential{Username: harness.RegistryUser, Password: s.RegistryToken()}
	if err := credentials.Login(t.Context(), store, images, right); err != nil {
		t.Fatal(err)
	}
	return store
}

// pack pushes an artifact of one layer, and reads it back.
func pack(t *testing.T, repo *remote.Repository, artifactType string, layer []byte, subject *ocispec.Descriptor) ocispec.Descriptor {
	t.Helper()
	blob, err := oras.PushBytes(t.Context(), repo, "application/octet-stream", layer)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := oras.PackManifest(t.Context(), repo, oras.PackManifestVersion1_1, artifactType,
		oras.PackManifestOptions{Layers: []ocispec.Descriptor{blob}, Subject: subject})
	if err != nil {
		t.Fatal(err)
	}
	got, err := content.FetchAll(t.Context(), repo, blob)
	if err != nil || !bytes.Equal(got, layer) {
		t.Fatalf("read back %q, %v", got, err)
	}
	return manifest
}

// referrers checks the referrers of a subject.
func referrers(t *testing.T, repo *remote.Repository, subject ocispec.Descriptor, want ...ocispec.Descriptor) {
	t.Helper()
	var found []ocispec.Descriptor
	err := repo.Referrers(t.Context(), subject, sbom, func(page []ocispec.Descriptor) error {
		found = append(found, page...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != len(want) || len(want) == 1 && (found[0].Digest != want[0].Digest || found[0].ArtifactType != sbom) {
		t.Errorf("referrers of %s: %+v, want %+v", subject.Digest, found, want)
	}
}

// TestOrasResumesARead reads a blob from an offset in its middle.
func TestOrasResumesARead(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		repo := orasRepository(t, s, "artifacts/large")
		data := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
		blob, err := oras.PushBytes(t.Context(), repo, "application/octet-stream", data)
		if err != nil {
			t.Fatal(err)
		}
		if got := readFrom(t.Context(), t, repo, blob, 100_001); !bytes.Equal(got, data[100_001:]) {
			t.Errorf("read %d bytes from the middle, want the last %d", len(got), len(data)-100_001)
		}
	})
}

func readFrom(ctx context.Context, t *testing.T, repo *remote.Repository, blob ocispec.Descriptor, offset int64) []byte {
	t.Helper()
	reader, err := repo.Blobs().Fetch(ctx, blob)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	seeker, ok := reader.(io.ReadSeeker)
	if !ok {
		t.Fatal("the registry does not offer ranges")
	}
	if _, err := seeker.Seek(offset, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(seeker)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
