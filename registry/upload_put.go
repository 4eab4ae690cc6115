package registry

import (
	"net/http"
)

// uploadPut adds what its body holds, if anything, and makes the upload a blob.
func (r *Registry) uploadPut(w http.ResponseWriter, req *http.Request, to Request) error {
	ctx := req.Context()
	want, err := parseDigest(req.URL.Query().Get("digest"))
	if err != nil {
		return err
	}
	u, err := r.resume(ctx, to)
	if err != nil {
		return err
	}
	defer u.close(ctx)
	if u.smallBody(req) {
		return u.publishSmall(ctx, w, req, want)
	}
	if u.writer.Size() == 0 {
		// Nothing has been hashed yet: hash once, with what is asked for.
		u.algorithm, u.hash = want.Algorithm(), want.Algorithm().Hash()
	}
	if err := u.chunk(ctx, w, req); err != nil {
		return err
	}
	return u.publish(ctx, w, want)
}
