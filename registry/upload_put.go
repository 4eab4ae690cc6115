package registry

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/opencontainers/go-digest"
)

// uploadPut appends its body, which may be empty, and makes the upload a blob.
func (r *Registry) uploadPut(w http.ResponseWriter, req *http.Request, to Request) error {
	ctx := req.Context()
	want, err := parseDigest(req.URL.Query().Get("digest"))
	if err != nil {
		return err
	}
	algorithm, err := r.empty.find(ctx, to, r.now())
	if err != nil {
		return err
	}
	if algorithm != "" && r.smallBody(req) {
		content, done, err := readSmall(req)
		if err != nil {
			return err
		}
		defer done()
		if want.Algorithm().FromBytes(content) == want {
			return r.putWithoutRow(ctx, w, to, want, content)
		}
		// It may be the end of an upload that has a row.
		req.Body = io.NopCloser(bytes.NewReader(content))
	}
	u, err := r.resume(ctx, to)
	if err != nil {
		return err
	}
	defer u.close(ctx)
	if u.writer.Size() == 0 && r.smallBody(req) {
		return u.publishSmall(ctx, w, req, want)
	}
	if u.writer.Size() == 0 {
		// Nothing is hashed yet: hash once, with the requested algorithm.
		u.algorithm, u.hash = want.Algorithm(), want.Algorithm().Hash()
	}
	if err := u.chunk(ctx, w, req); err != nil {
		return err
	}
	if err := to.permitted(); err != nil {
		return err
	}
	return u.publish(ctx, w, want)
}

// putWithoutRow is putSmall for an upload that may have no row yet. If it has one, nothing in
// it is needed, and the collector removes it as an abandoned one. After an error the
// client may retry.
func (r *Registry) putWithoutRow(ctx context.Context, w http.ResponseWriter, to Request, want digest.Digest, content []byte) error {
	err := r.putSmall(ctx, w, to, want, content)
	if err == nil {
		r.empty.end(to.Upload)
	}
	return err
}
