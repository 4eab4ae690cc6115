package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

const manifestType = "application/vnd.oci.image.manifest.v1+json"

// image is an image to push.
type image struct {
	tag      string
	blobs    []blob // the config first
	manifest []byte
}

type blob struct {
	digest string
	data   []byte
}

// newImage makes an image that differs from those of other runs and numbers.
func newImage(run string, n, layerSize int) image {
	img := image{tag: fmt.Sprintf("%s-%d", run, n)}
	config, _ := json.Marshal(map[string]any{ // of strings: cannot fail
		"architecture": "amd64", "os": "linux", "author": img.tag,
		"config": map[string]any{}, "rootfs": map[string]any{"type": "layers", "diff_ids": []string{}},
	})
	img.blobs = append(img.blobs, newBlob(config))
	for i := range 3 {
		img.blobs = append(img.blobs, newBlob(noise(hash64(fmt.Sprint(img.tag, "/", i)), layerSize)))
	}
	type descriptor struct {
		MediaType string `json:"mediaType"`
		Digest    string `json:"digest"`
		Size      int    `json:"size"`
	}
	describe := func(b blob, mediaType string) descriptor {
		return descriptor{mediaType, b.digest, len(b.data)}
	}
	var layers []descriptor
	for _, b := range img.blobs[1:] {
		layers = append(layers, describe(b, "application/vnd.oci.image.layer.v1.tar"))
	}
	img.manifest, _ = json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": describe(img.blobs[0], "application/vnd.oci.image.config.v1+json"), "layers": layers,
	})
	return img
}

func newBlob(data []byte) blob {
	sum := sha256.Sum256(data)
	return blob{digest: "sha256:" + hex.EncodeToString(sum[:]), data: data}
}

func hash64(s string) uint64 {
	sum := sha256.Sum256([]byte(s))
	return binary.LittleEndian.Uint64(sum[:])
}

// registryClient is a client of one repository.
type registryClient struct {
	base       *url.URL
	repository string
	password   string // empty if there is none
	http       *http.Client
}

func (c *registryClient) send(ctx context.Context, method, target, contentType string, body io.Reader, size int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", userAgent)
	if c.password != "" {
		req.SetBasicAuth("bench", c.password)
	}
	req.Header.Set("Accept", manifestType)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.ContentLength = size
	return c.http.Do(req)
}

// want reads the response to its end and fails unless it has the code.
func want(answer *http.Response, code int) (int64, error) {
	defer answer.Body.Close()
	if answer.StatusCode != code {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 300)) // the beginning is enough for an error
		return 0, fmt.Errorf("%s %s answers %s: %s", answer.Request.Method, answer.Request.URL.Path, answer.Status, text)
	}
	return copyAll(io.Discard, answer.Body)
}

func (c *registryClient) url(rest string) string {
	return c.base.String() + "/v2/" + c.repository + "/" + rest
}

func (c *registryClient) get(ctx context.Context, rest string) (int64, error) {
	answer, err := c.send(ctx, http.MethodGet, c.url(rest), "", nil, 0)
	if err != nil {
		return 0, err
	}
	return want(answer, http.StatusOK)
}

func (c *registryClient) head(ctx context.Context, rest string) (bool, error) {
	answer, err := c.send(ctx, http.MethodHead, c.url(rest), "", nil, 0)
	if err != nil {
		return false, err
	}
	if answer.StatusCode == http.StatusNotFound {
		return false, answer.Body.Close()
	}
	_, err = want(answer, http.StatusOK)
	return err == nil, err
}

func (c *registryClient) upload(ctx context.Context, b blob) error {
	return c.uploadFrom(ctx, bytes.NewReader(b.data), int64(len(b.data)), b.digest)
}

// mount makes a blob of another repository part of this one.
func (c *registryClient) mount(ctx context.Context, digest, from string) error {
	query := url.Values{"mount": {digest}, "from": {from}}
	answer, err := c.send(ctx, http.MethodPost, c.url("blobs/uploads/?"+query.Encode()), "", nil, 0)
	if err != nil {
		return err
	}
	_, err = want(answer, http.StatusCreated)
	return err
}

// uploadFrom starts an upload and sends all of it in one PUT.
func (c *registryClient) uploadFrom(ctx context.Context, from io.Reader, size int64, digest string) error {
	answer, err := c.send(ctx, http.MethodPost, c.url("blobs/uploads/"), "", nil, 0)
	if err != nil {
		return err
	}
	if _, err := want(answer, http.StatusAccepted); err != nil {
		return err
	}
	location, err := answer.Location()
	if err != nil {
		return fmt.Errorf("POST of an upload: %w", err)
	}
	query := location.Query()
	query.Set("digest", digest)
	location.RawQuery = query.Encode()
	answer, err = c.send(ctx, http.MethodPut, location.String(), "application/octet-stream", from, size)
	if err != nil {
		return err
	}
	_, err = want(answer, http.StatusCreated)
	return err
}

func (c *registryClient) putManifest(ctx context.Context, img *image, tag string) error {
	answer, err := c.send(ctx, http.MethodPut, c.url("manifests/"+tag), manifestType, bytes.NewReader(img.manifest), int64(len(img.manifest)))
	if err != nil {
		return err
	}
	_, err = want(answer, http.StatusCreated)
	return err
}
