package registry

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/exeunt/exeunt/registry/blobstore"
)

// uploadStatus says how much of an upload has arrived. If a process died between
// storing bytes and recording them, they are recorded now: the answer must be
// the offset that the next chunk is checked against.
func (r *Registry) uploadStatus(w http.ResponseWriter, req *http.Request, to Request) error {
	ctx := req.Context()
	state, found, err := r.findUpload(ctx, to)
	if err != nil {
		return err
	}
	if !found {
		algorithm, err := r.empty.find(ctx, to, r.now())
		if err != nil {
			return err
		}
		if algorithm == "" {
			return errUploadUnknown()
		}
		describe(w, to, 0)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	stored, err := r.blobs.Stat(ctx, state.path)
	if err != nil && !errors.Is(err, blobstore.ErrNotFound) {
		return fmt.Errorf("upload status: %w", err)
	}
	if stored > state.size {
		var refused *Error
		u, err := r.resume(ctx, to)
		switch {
		case err == nil:
			defer u.close(ctx)
			if err := u.save(ctx); err != nil {
				return err
			}
			state.size = u.writer.Size()
		case !errors.As(err, &refused) || refused.Status() != http.StatusConflict:
			return err
		}
		// Another request is writing: the answer is what it has recorded.
	}
	describe(w, Request{Kind: UploadStatus, Repository: to.Repository, Upload: to.Upload}, state.size)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
