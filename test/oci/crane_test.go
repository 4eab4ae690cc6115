package oci

import (
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/exeunt/exeunt/test/harness"
)

// TestCrane pushes, pulls, tags, copies, lists and deletes images and indexes with crane's
// library.
func TestCrane(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		c := craneFlow{t: t, at: s.Registry() + "/"}
		pushed := c.images()
		c.index()
		c.tags(pushed)
		c.deletes(pushed)
		if s.Engine == harness.SQLite {
			c.ownImage() // hundreds of megabytes: once
		}
	})
}

// loggedIn has calls of crane's inner library log in as its outer one does.
func loggedIn() remote.Option { return remote.WithAuthFromKeychain(authn.DefaultKeychain) }

type craneFlow struct {
	t  *testing.T
	at string
}

func (c craneFlow) ref(at string) name.Reference {
	c.t.Helper()
	ref, err := name.ParseReference(c.at + at)
	c.check(err)
	return ref
}

func (c craneFlow) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// images pushes an image, pulls it again and verifies every byte of it.
func (c craneFlow) images() v1.Image {
	img, err := random.Image(64<<10, 3)
	c.check(err)
	c.check(crane.Push(img, c.at+"shop/web:v1"))
	pulled, err := crane.Pull(c.at + "shop/web:v1")
	c.check(err)
	c.check(validate.Image(pulled))
	c.same(img, "shop/web:v1")
	c.check(crane.Copy(c.at+"shop/web:v1", c.at+"shop/mirror/web:copied"))
	c.same(img, "shop/mirror/web:copied")
	return img
}

// index pushes an index of two images, and validates it as pulled.
func (c craneFlow) index() {
	index, err := random.Index(4<<10, 2, 2)
	c.check(err)
	c.check(remote.WriteIndex(c.ref("shop/multi:latest"), index, loggedIn()))
	pulled, err := remote.Index(c.ref("shop/multi:latest"), loggedIn())
	c.check(err)
	c.check(validate.Index(pulled))
	c.check(crane.Copy(c.at+"shop/multi:latest", c.at+"backup/multi:latest"))
}

func (c craneFlow) tags(img v1.Image) {
	for _, tag := range []string{"v2", "v3", "stable"} {
		c.check(crane.Tag(c.at+"shop/web:v1", tag))
		c.same(img, "shop/web:"+tag)
	}
	tags, err := crane.ListTags(c.at + "shop/web")
	c.check(err)
	if want := []string{"stable", "v1", "v2", "v3"}; !slices.Equal(tags, want) {
		c.t.Errorf("tags %q, want %q", tags, want)
	}
	repositories, err := crane.Catalog(c.at[:len(c.at)-1])
	c.check(err)
	if want := []string{"backup/multi", "shop/mirror/web", "shop/multi", "shop/web"}; !slices.Equal(repositories, want) {
		c.t.Errorf("repositories %q, want %q", repositories, want)
	}
}

// deletes removes a tag, which keeps the other tags, then the manifest, which removes all
// its tags.
func (c craneFlow) deletes(img v1.Image) {
	c.check(crane.Delete(c.at + "shop/web:v3"))
	c.gone("shop/web:v3")
	c.same(img, "shop/web:v2")
	digest, err := img.Digest()
	c.check(err)
	c.check(crane.Delete(c.at + "shop/web@" + digest.String()))
	c.gone("shop/web:v2")
	c.gone("shop/web@" + digest.String())
	c.same(img, "shop/mirror/web:copied")
	// The blobs still exist until their review, so a second push is quick and complete.
	c.check(crane.Push(img, c.at+"shop/web:again"))
	c.same(img, "shop/web:again")
}

func (c craneFlow) same(img v1.Image, at string) {
	c.t.Helper()
	want, err := img.Digest()
	c.check(err)
	got, err := crane.Digest(c.at + at)
	c.check(err)
	if got != want.String() {
		c.t.Errorf("%s is %s, want %s", at, got, want)
	}
}

func (c craneFlow) gone(at string) {
	c.t.Helper()
	_, err := crane.Manifest(c.at + at)
	var answer *transport.Error
	if !errors.As(err, &answer) || answer.StatusCode != http.StatusNotFound {
		c.t.Errorf("%s: %v, want 404", at, err)
	}
}

// TestReferrersByCrane attaches an artifact to an image, and finds it.
func TestReferrersByCrane(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		c := craneFlow{t: t, at: s.Registry() + "/"}
		img, err := random.Image(1<<10, 1)
		c.check(err)
		c.check(crane.Push(img, c.at+"app:v1"))
		subject, err := remote.Get(c.ref("app:v1"), loggedIn())
		c.check(err)
		signature := mutate.Subject(mutate.ConfigMediaType(empty.Image, "application/vnd.example.signature"), subject.Descriptor).(v1.Image)
		c.check(crane.Push(signature, c.at+"app:signature"))
		index, err := remote.Referrers(c.ref("app:v1").Context().Digest(subject.Digest.String()), loggedIn())
		c.check(err)
		manifest, err := index.IndexManifest()
		c.check(err)
		want, err := signature.Digest()
		c.check(err)
		if len(manifest.Manifests) != 1 || manifest.Manifests[0].Digest != want || manifest.Manifests[0].ArtifactType != "application/vnd.example.signature" {
			t.Errorf("referrers %+v, want %s", manifest.Manifests, want)
		}
	})
}
