package registry

import (
	"errors"
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
	if r.smallBody(req) {
		if f, ok := r.fresh.take(to); ok {
			return r.putFresh(w, req, to, want, f)
		}
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
	return u.publish(ctx, w, want)
}

// putFresh is putSmall for an upload that has begun and has no row yet. If the
// content does not match the digest, the upload ends; after any other error the
// client may retry.
func (r *Registry) putFresh(w http.ResponseWriter, req *http.Request, to Request, want digest.Digest, f freshUpload) error {
	err := r.putSmall(w, req, to, want)
	var refused *Error
	if err != nil && (!errors.As(err, &refused) || refused.Code != DigestInvalid) {
		r.fresh.add(to.Upload, f)
	}
	return err
}
