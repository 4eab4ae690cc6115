package registry

import "net/http"

// uploadCancel discards an upload.
func (r *Registry) uploadCancel(w http.ResponseWriter, req *http.Request, to Request) error {
	ctx := req.Context()
	u, err := r.resume(ctx, to)
	if err != nil {
		return err
	}
	defer u.close(ctx)
	if err := u.discard(ctx); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
