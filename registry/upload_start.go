package registry

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/google/uuid"
	"github.com/opencontainers/go-digest"
)

// uploadStart begins an upload. With mount it first tries to link an existing
// blob, with digest it takes the whole blob from the body.
func (r *Registry) uploadStart(w http.ResponseWriter, req *http.Request, to Request) error {
	ctx, query := req.Context(), req.URL.Query()
	if query.Has("mount") {
		mounted, err := r.mount(ctx, to, query.Get("from"), query.Get("mount"))
		if err != nil {
			return err
		}
		if mounted != "" {
			created(w, Request{Kind: BlobGet, Repository: to.Repository, Digest: mounted}, mounted)
			return nil
		}
	}
	limited, err := r.checkUploads(ctx, to.Repository)
	if err != nil {
		return err
	}
	if query.Has("digest") {
		want, err := parseDigest(query.Get("digest"))
		if err != nil {
			return err
		}
		return r.uploadWhole(w, req, to, want)
	}
	algorithm := digest.Canonical
	if query.Has("digest-algorithm") {
		if algorithm = digest.Algorithm(query.Get("digest-algorithm")); !Supported(algorithm) {
			return errorf(DigestInvalid, "digest algorithm %q is not supported: want sha256 or sha512", algorithm)
		}
	}
	to.Upload, err = r.start(ctx, to, algorithm, limited)
	if err != nil {
		return err
	}
	if r.chunkMin > 0 {
		w.Header().Set("OCI-Chunk-Min-Length", strconv.FormatInt(r.chunkMin, 10))
	}
	describe(w, Request{Kind: UploadStatus, Repository: to.Repository, Upload: to.Upload}, 0)
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// start begins an upload that later requests write to, and returns its id. A counted one
// has a row from the beginning.
func (r *Registry) start(ctx context.Context, to Request, algorithm digest.Algorithm, counted bool) (string, error) {
	if !counted {
		if _, err := r.ensure(ctx, to); err != nil {
			return "", err
		}
		return r.empty.newID(ctx, to.Repository, algorithm, r.now())
	}
	to.Upload = uuid.NewString()
	u, err := r.begin(ctx, to, algorithm, false)
	if err != nil {
		return "", err
	}
	u.close(ctx)
	return to.Upload, nil
}

// uploadWhole is an upload in one request. After a failure there is nothing to
// resume.
func (r *Registry) uploadWhole(w http.ResponseWriter, req *http.Request, to Request, want digest.Digest) error {
	ctx := req.Context()
	to.Upload = uuid.NewString()
	if r.smallBody(req) {
		content, done, err := readSmall(req)
		if err != nil {
			return err
		}
		defer done()
		if got := want.Algorithm().FromBytes(content); got != want {
			return errDigest(got, want)
		}
		return r.putSmall(ctx, w, to, want, content)
	}
	u, err := r.begin(ctx, to, want.Algorithm(), true)
	if err != nil {
		return err
	}
	defer u.close(ctx)
	if err := u.append(ctx, req.Body); err != nil {
		return withCleanup(truncated(err), u.discard(ctx))
	}
	if err := to.permitted(); err != nil {
		return withCleanup(err, u.discard(ctx))
	}
	return u.publish(ctx, w, want)
}

// publish finishes the upload and sends the blob's location.
func (u *upload) publish(ctx context.Context, w http.ResponseWriter, want digest.Digest) error {
	if err := u.finish(ctx, want); err != nil {
		return err
	}
	created(w, Request{Kind: BlobGet, Repository: u.name, Digest: want}, want)
	return nil
}

// created sends the location of new content. Locations have no host: the client
// knows one that works for it.
func created(w http.ResponseWriter, at Request, d digest.Digest) {
	w.Header().Set("Location", at.Path())
	w.Header().Set("Docker-Content-Digest", d.String())
	w.WriteHeader(http.StatusCreated)
}

// describe sends the location and the size of the upload.
func (u *upload) describe(w http.ResponseWriter) {
	describe(w, Request{Kind: UploadStatus, Repository: u.name, Upload: u.id}, u.writer.Size())
}

func describe(w http.ResponseWriter, at Request, size int64) {
	w.Header().Set("Location", at.Path())
	w.Header().Set("Docker-Upload-UUID", at.Upload)
	// The header cannot express "no bytes": clients read 0-0 as that.
	w.Header().Set("Range", "0-"+strconv.FormatInt(max(size-1, 0), 10))
}

// truncated turns errTruncated into an error for the client.
func truncated(err error) error {
	if errors.Is(err, errTruncated) {
		return errorf(SizeInvalid, "the body ended before the length that was announced")
	}
	return err
}
