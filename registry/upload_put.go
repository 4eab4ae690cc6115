package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry/blobstore"
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

// uploadPatch adds a chunk to an upload.
func (r *Registry) uploadPatch(w http.ResponseWriter, req *http.Request, to Request) error {
	ctx := req.Context()
	u, err := r.resume(ctx, to)
	if err != nil {
		return err
	}
	defer u.close(ctx)
	if err := u.chunk(ctx, w, req); err != nil {
		return err
	}
	if err := u.save(ctx); err != nil {
		return err
	}
	u.describe(w)
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// chunk appends the body of a request. Without Content-Range it goes to the end;
// with it, it must begin there. If the chunk breaks off, the received part is
// saved: the client asks how much that is, and continues from there.
func (u *upload) chunk(ctx context.Context, w http.ResponseWriter, req *http.Request) error {
	body := io.Reader(req.Body)
	length := int64(-1)
	if header := req.Header.Get("Content-Range"); header != "" {
		first, last, ok := parseRange(header)
		if !ok {
			return errorf(BlobUploadInvalid, "Content-Range %q is not FIRST-LAST", header)
		}
		if first != u.writer.Size() {
			u.describe(w)
			return errorf(BlobUploadInvalid, "the chunk begins at %d, but the upload has %d bytes", first, u.writer.Size()).
				as(http.StatusRequestedRangeNotSatisfiable)
		}
		length = last - first + 1
		if req.ContentLength >= 0 && req.ContentLength != length {
			return errorf(SizeInvalid, "Content-Range is for %d bytes, Content-Length for %d", length, req.ContentLength)
		}
		body = io.LimitReader(body, length)
	}
	before := u.writer.Size()
	err := u.append(ctx, body)
	if errors.Is(err, errTruncated) {
		return withCleanup(truncated(err), u.save(ctx))
	}
	if err != nil {
		return err
	}
	if got := u.writer.Size() - before; length >= 0 && got != length {
		return withCleanup(errorf(SizeInvalid, "Content-Range is for %d bytes, %d came", length, got), u.save(ctx))
	}
	if n, _ := io.ReadFull(req.Body, make([]byte, 1)); n > 0 {
		return withCleanup(errorf(SizeInvalid, "Content-Range is for %d bytes, and more came", length), u.save(ctx))
	}
	return nil
}

var contentRange = regexp.MustCompile(`^([0-9]{1,18})-([0-9]{1,18})$`)

// parseRange parses the Content-Range of a chunk, which unlike HTTP's has no
// unit and no total.
func parseRange(header string) (first, last int64, ok bool) {
	parts := contentRange.FindStringSubmatch(header)
	if parts == nil {
		return 0, 0, false
	}
	// At most 18 digits, so these cannot fail.
	first, _ = strconv.ParseInt(parts[1], 10, 64)
	last, _ = strconv.ParseInt(parts[2], 10, 64)
	return first, last, first <= last
}

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
