package registry

import "net/http"

// uploadCancel discards an upload. One that has no bytes yet has no row either, and
// needs none to end.
func (r *Registry) uploadCancel(w http.ResponseWriter, req *http.Request, to Request) error {
	ctx := req.Context()
	u, _, err := r.resumeOrEmpty(ctx, to)
	if err != nil {
		return err
	}
	if u == nil {
		r.empty.end(to.Upload)
	} else {
		defer u.close(ctx)
		if err := u.discard(ctx); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
