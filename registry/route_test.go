package registry_test

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry"
)

const (
	someUpload = "0f3a3b0e-8a39-4b92-b5ad-7e4a87ea4b3c"
	someDigest = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
)

// TestRoutes checks each route in both directions.
func TestRoutes(t *testing.T) {
	d512 := digest.SHA512.FromString("x")
	for _, c := range []struct {
		method, path string
		want         registry.Request
	}{
		{"GET", "/v2/", registry.Request{Kind: registry.Ping}},
		{"GET", "/v2/_catalog", registry.Request{Kind: registry.Catalog}},
		{"GET", "/v2/a/tags/list", registry.Request{Kind: registry.TagList, Repository: "a"}},
		{"GET", "/v2/a/b/c/tags/list", registry.Request{Kind: registry.TagList, Repository: "a/b/c"}},
		{"GET", "/v2/a/referrers/" + someDigest, registry.Request{Kind: registry.Referrers, Repository: "a", Digest: someDigest}},
		{"GET", "/v2/a/blobs/" + someDigest, registry.Request{Kind: registry.BlobGet, Repository: "a", Digest: someDigest}},
		{"HEAD", "/v2/a/blobs/" + someDigest, registry.Request{Kind: registry.BlobHead, Repository: "a", Digest: someDigest}},
		{"DELETE", "/v2/a/blobs/" + d512.String(), registry.Request{Kind: registry.BlobDelete, Repository: "a", Digest: d512}},
		{"POST", "/v2/a/blobs/uploads/", registry.Request{Kind: registry.UploadStart, Repository: "a"}},
		{"GET", "/v2/a/blobs/uploads/" + someUpload, registry.Request{Kind: registry.UploadStatus, Repository: "a", Upload: someUpload}},
		{"PATCH", "/v2/a/blobs/uploads/" + someUpload, registry.Request{Kind: registry.UploadPatch, Repository: "a", Upload: someUpload}},
		{"PUT", "/v2/a/blobs/uploads/" + someUpload, registry.Request{Kind: registry.UploadPut, Repository: "a", Upload: someUpload}},
		{"DELETE", "/v2/a/blobs/uploads/" + someUpload, registry.Request{Kind: registry.UploadCancel, Repository: "a", Upload: someUpload}},
		{"GET", "/v2/a/manifests/latest", registry.Request{Kind: registry.ManifestGet, Repository: "a", Tag: "latest"}},
		{"HEAD", "/v2/a/manifests/v1.2_3-4", registry.Request{Kind: registry.ManifestHead, Repository: "a", Tag: "v1.2_3-4"}},
		{"PUT", "/v2/a/manifests/" + someDigest, registry.Request{Kind: registry.ManifestPut, Repository: "a", Digest: someDigest}},
		{"DELETE", "/v2/a/manifests/uploads", registry.Request{Kind: registry.ManifestDelete, Repository: "a", Tag: "uploads"}},
		// Names that look like routes.
		{"GET", "/v2/blobs/uploads/manifests/list", registry.Request{Kind: registry.ManifestGet, Repository: "blobs/uploads", Tag: "list"}},
		{"GET", "/v2/tags/list/tags/list", registry.Request{Kind: registry.TagList, Repository: "tags/list"}},
		{"POST", "/v2/a/blobs/uploads/blobs/uploads/", registry.Request{Kind: registry.UploadStart, Repository: "a/blobs/uploads"}},
	} {
		u, err := url.Parse(c.path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := registry.Parse(c.method, u)
		if err != nil || got != c.want {
			t.Errorf("%s %s: %+v, %v; want %+v", c.method, c.path, got, err, c.want)
		}
		if path := c.want.Path(); path != c.path {
			t.Errorf("%+v is at %s, not %s", c.want, path, c.path)
		}
	}
}

// TestRoutesOneWay: other spellings of a path.
func TestRoutesOneWay(t *testing.T) {
	for path, want := range map[string]registry.Request{
		"/v2":                                    {Kind: registry.Ping},
		"/v2/a%2Fb/tags/list":                    {Kind: registry.TagList, Repository: "a/b"},
		"/v2/a/blobs/sha256%3A" + someDigest[7:]: {Kind: registry.BlobGet, Repository: "a", Digest: someDigest},
	} {
		u, err := url.Parse(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := registry.Parse("GET", u); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", path, got, err, want)
		}
	}
}

func TestRoutesRefused(t *testing.T) {
	for _, c := range []struct {
		method, path string
		status       int
		code         registry.Code
	}{
		{"GET", "/", 404, registry.Unsupported},
		{"GET", "/v1/", 404, registry.Unsupported},
		{"GET", "/v2x", 404, registry.Unsupported},
		{"GET", "/v2/a", 404, registry.Unsupported},
		{"GET", "/v2/a/b/c", 404, registry.Unsupported},
		{"GET", "/v2/tags/list", 404, registry.Unsupported},
		{"GET", "/v2//tags/list", 400, registry.NameInvalid},
		{"GET", "/v2/../tags/list", 400, registry.NameInvalid},
		{"GET", "/v2/a/../b/tags/list", 400, registry.NameInvalid},
		{"GET", "/v2/a/%2e%2e/b/tags/list", 400, registry.NameInvalid},
		{"GET", "/v2/a//b/tags/list", 400, registry.NameInvalid},
		{"GET", "/v2/.a/tags/list", 400, registry.NameInvalid},
		{"GET", "/v2/A/tags/list", 400, registry.NameInvalid},
		{"GET", "/v2/a_-b/tags/list", 400, registry.NameInvalid},
		{"GET", "/v2/a%00/tags/list", 400, registry.NameInvalid},
		{"GET", "/v2/a%0A/tags/list", 400, registry.NameInvalid},
		{"GET", "/v2/é/tags/list", 400, registry.NameInvalid},
		{"POST", "/v2//blobs/uploads/", 400, registry.NameInvalid},
		{"GET", "/v2/" + strings.Repeat("a", 256) + "/tags/list", 400, registry.NameInvalid},
		{"GET", "/v2/a/blobs/sha256:abc", 400, registry.DigestInvalid},
		{"GET", "/v2/a/blobs/" + strings.ToUpper(someDigest), 400, registry.DigestInvalid},
		{"GET", "/v2/a/blobs/md5:d41d8cd98f00b204e9800998ecf8427e", 400, registry.DigestInvalid},
		{"GET", "/v2/a/blobs/" + digest.SHA384.FromString("").String(), 400, registry.DigestInvalid},
		{"GET", "/v2/a/blobs/..", 400, registry.DigestInvalid},
		{"GET", "/v2/a/referrers/latest", 400, registry.DigestInvalid},
		{"GET", "/v2/a/manifests/sha256:baddigeststring", 400, registry.DigestInvalid},
		{"PUT", "/v2/a/manifests/.hidden", 400, registry.ManifestInvalid},
		{"PUT", "/v2/a/manifests/" + strings.Repeat("t", 129), 400, registry.ManifestInvalid},
		{"GET", "/v2/a/manifests/.hidden", 404, registry.ManifestUnknown},
		{"DELETE", "/v2/a/manifests/", 404, registry.ManifestUnknown},
		{"PATCH", "/v2/a/blobs/uploads/..", 404, registry.BlobUploadUnknown},
		{"PATCH", "/v2/a/blobs/uploads/" + strings.ToUpper(someUpload), 404, registry.BlobUploadUnknown},
		{"POST", "/v2/", 405, registry.Unsupported},
		{"DELETE", "/v2/_catalog", 405, registry.Unsupported},
		{"PUT", "/v2/a/blobs/" + someDigest, 405, registry.Unsupported},
		{"GET", "/v2/a/blobs/uploads/", 405, registry.Unsupported},
		{"POST", "/v2/a/manifests/latest", 405, registry.Unsupported},
	} {
		u, err := url.Parse(c.path)
		if err != nil {
			t.Fatal(err)
		}
		to, err := registry.Parse(c.method, u)
		var refused *registry.Error
		if !errors.As(err, &refused) || refused.Status() != c.status || refused.Code != c.code {
			t.Errorf("%s %s: %+v, %v; want %d %s", c.method, c.path, to, err, c.status, c.code)
		}
	}
}

// FuzzParse: Path(Parse(x)) parses to the same request.
func FuzzParse(f *testing.F) {
	for _, path := range []string{"/v2/", "/v2/a/b/tags/list", "/v2/a/blobs/uploads/" + someUpload, "/v2/a/manifests/" + someDigest, "/v2/a/../b/manifests/x"} {
		for _, method := range []string{"GET", "PUT", "POST"} {
			f.Add(method, path)
		}
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		to, err := registry.Parse(method, &url.URL{Path: path})
		if err != nil {
			var refused *registry.Error
			if !errors.As(err, &refused) || refused.Status() < 400 {
				t.Errorf("error %v is not for a client", err)
			}
			return
		}
		if strings.Contains(to.Repository, "..") || strings.Contains(to.Tag, "/") {
			t.Errorf("%q is accepted as %+v", path, to)
		}
		if again, err := registry.Parse(method, &url.URL{Path: to.Path()}); err != nil || again != to {
			t.Errorf("%+v is built as %s and read as %+v, %v", to, to.Path(), again, err)
		}
	})
}

// TestUploadsFromForms: a web page can send these types to any server without a
// CORS preflight; no registry client sends them.
func TestUploadsFromForms(t *testing.T) {
	each(t, func(w *world) {
		d := sha256("content")
		for _, sent := range []string{"text/plain", "text/plain;charset=UTF-8", "Application/X-WWW-Form-Urlencoded", "multipart/form-data; boundary=x"} {
			h := headers{"Content-Type": sent}
			w.refuses(415, registry.Unsupported, "POST", "/v2/a/blobs/uploads/", h, "")
			w.refuses(415, registry.Unsupported, "POST", "/v2/a/blobs/uploads/?digest="+d, h, "content")
			at := w.want(202, "POST", "/v2/b/blobs/uploads/", nil, "").header.Get("Location")
			w.refuses(415, registry.Unsupported, "PATCH", at, h, "content")
			w.refuses(415, registry.Unsupported, "PUT", at+"?digest="+d, h, "content")
		}
		w.refuses(404, registry.NameUnknown, "GET", "/v2/a/tags/list", nil, "")
		for _, sent := range []string{"application/octet-stream", ""} {
			w.want(201, "POST", "/v2/a/blobs/uploads/?digest="+d, headers{"Content-Type": sent}, "content")
		}
	})
}

// TestTags compares the tags that routes accept with the pattern of the reference package.
func TestTags(t *testing.T) {
	t.Parallel()
	pattern := regexp.MustCompile(`^(?:` + reference.TagRegexp.String() + `)$`)
	tags := []string{strings.Repeat("a", 128), strings.Repeat("a", 129), "latest\n", "é"}
	for c := range 256 {
		if c != '/' { // another path
			s := string([]byte{byte(c)})
			tags = append(tags, s, "a"+s, s+"a", "v1"+s+"2")
		}
	}
	for _, tag := range tags {
		_, err := registry.Parse("GET", &url.URL{Path: "/v2/a/manifests/" + tag})
		if got, want := err == nil, pattern.MatchString(tag); got != want {
			t.Errorf("%q is a tag: %v, want %v", tag, got, want)
		}
	}
}
