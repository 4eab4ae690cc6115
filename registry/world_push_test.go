package registry_test

import (
	"fmt"
	"strings"

	"github.com/opencontainers/go-digest"
)

func sha256(content string) string { return digest.FromString(content).String() }

func sha512(content string) string { return digest.SHA512.FromString(content).String() }

// begin begins an upload and returns its location.
func (w *world) begin(repo string) string {
	w.Helper()
	return w.want(202, "POST", "/v2/"+repo+"/blobs/uploads/", nil, nil).header.Get("Location")
}

// push pushes a blob and returns its digest.
func (w *world) push(repo, content string) string {
	w.Helper()
	d := sha256(content)
	w.want(201, "POST", "/v2/"+repo+"/blobs/uploads/?digest="+d, nil, content)
	return d
}

// blob expects a blob to exist, with its bytes.
func (w *world) blob(repo, d, content string) {
	w.Helper()
	path := "/v2/" + repo + "/blobs/" + d
	for _, method := range []string{"GET", "HEAD"} {
		a := w.want(200, method, path, nil, nil)
		if method == "GET" && a.body != content {
			w.Errorf("GET %s: %d bytes, not the %d that were pushed", path, len(a.body), len(content))
		}
		if a.header.Get("Docker-Content-Digest") != d || a.header.Get("Content-Length") != fmt.Sprint(len(content)) {
			w.Errorf("%s %s: headers %v", method, path, a.header)
		}
	}
}

// absent expects a blob not to exist.
func (w *world) absent(repo, d string) {
	w.Helper()
	w.want(404, "HEAD", "/v2/"+repo+"/blobs/"+d, nil, nil)
}

const (
	ociManifest    = "application/vnd.oci.image.manifest.v1+json"
	ociIndex       = "application/vnd.oci.image.index.v1+json"
	ociConfig      = "application/vnd.oci.image.config.v1+json"
	ociLayer       = "application/vnd.oci.image.layer.v1.tar+gzip"
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
)

// descriptor returns a descriptor as JSON.
func descriptor(mediaType, d string, size int) string {
	return fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":%d}`, mediaType, d, size)
}

// manifestOf returns a manifest with one layer. more is inserted before its end.
func manifestOf(config, layer, more string) string {
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":%s,"layers":[%s]%s}`, ociManifest,
		descriptor(ociConfig, sha256(config), len(config)), descriptor(ociLayer, sha256(layer), len(layer)), more)
}

// indexOf returns a list of manifests.
func indexOf(more string, manifests ...string) string {
	var list []string
	for _, m := range manifests {
		list = append(list, descriptor(ociManifest, sha256(m), len(m)))
	}
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[%s]%s}`, ociIndex, strings.Join(list, ","), more)
}

// image pushes a manifest with its blobs, under a tag or, if that is empty, its
// digest. It returns the manifest.
func (w *world) image(repo, tag, layer, more string) string {
	w.Helper()
	w.push(repo, "{}")
	w.push(repo, layer)
	m := manifestOf("{}", layer, more)
	w.tag(repo, tag, ociManifest, m)
	return m
}

// tag pushes a manifest under a tag, or its digest.
func (w *world) tag(repo, tag, mediaType, manifest string) answer {
	w.Helper()
	if tag == "" {
		tag = sha256(manifest)
	}
	return w.want(201, "PUT", "/v2/"+repo+"/manifests/"+tag, headers{"Content-Type": mediaType}, manifest)
}
