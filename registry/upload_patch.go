package registry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
)

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
