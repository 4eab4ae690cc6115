package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/sqldb"
)

// blob is a blob that a repository may serve.
type blob struct {
	path  string
	size  int64
	small bool // the database has its bytes
}

// blobGet serves a blob, a range of it, or only its size.
//
// A client that finds a blob with HEAD does not push it, so the answer is a
// promise.
func (r *Registry) blobGet(w http.ResponseWriter, req *http.Request, to Request) error {
	find := r.findBlob
	if to.Kind == BlobHead {
		find = r.promiseBlob
	}
	b, found, err := find(req.Context(), to)
	if err == nil {
		var up Upstream
		if up, err = r.upstreamOf(req.Context(), to.Repository); up != nil && found {
			up.Served(false, nil)
		} else if up != nil {
			one, streams, failed := r.fetch(req.Context(), to, up, false, stored{}, to.Kind == BlobGet && req.Header.Get("Range") == "")
			if streams {
				return r.serveLive(w, req, to, one)
			}
			if err = failed; err == nil {
				b, found, err = find(req.Context(), to)
			}
		}
	}
	if err != nil {
		return err
	}
	if !found {
		return r.blobUnknown(req.Context(), to)
	}
	h := w.Header()
	h.Set("Docker-Content-Digest", to.Digest.String())
	if r.redirect != nil && to.Kind == BlobGet && !b.small {
		return r.redirectTo(w, req, b)
	}
	content, err := r.content(req, to, b)
	if err != nil {
		return err
	}
	defer content.Close()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("ETag", etag(to.Digest))
	// The content of a digest never changes.
	h.Set("Cache-Control", "max-age=31536000, immutable")
	if to.Kind == BlobHead {
		h.Set("Accept-Ranges", "bytes")
		h.Set("Content-Length", strconv.FormatInt(b.size, 10))
	}
	http.ServeContent(w, req, "", time.Time{}, content)
	return nil
}

// redirectTo sends the client to the blob store. The bytes outlive their row by
// the delay of blob_delete, which leaves the client time to follow.
func (r *Registry) redirectTo(w http.ResponseWriter, req *http.Request, b blob) error {
	target, err := r.redirect.Redirect(req.Context(), b.path)
	if err != nil {
		return err
	}
	w.Header().Set("Location", target)
	w.Header().Set("Cache-Control", "no-store") // the URL expires
	w.WriteHeader(http.StatusTemporaryRedirect)
	return nil
}

// findBlob finds a blob in its repository.
func (r *Registry) findBlob(ctx context.Context, to Request) (b blob, found bool, err error) {
	found, err = r.db.Row(ctx, findBlob, []any{to.Repository, to.Digest.String()}, &b.path, &b.size, &b.small)
	if err != nil {
		return blob{}, false, fmt.Errorf("find blob: %w", err)
	}
	return b, found, nil
}

// blobUnknown reports whether the blob, its bytes or the repository is missing.
// HEAD has no body for that.
func (r *Registry) blobUnknown(ctx context.Context, to Request) error {
	damaged := false
	if to.Kind != BlobHead {
		if _, err := r.existing(ctx, to.Repository); err != nil {
			return err
		}
		var one int64
		var err error
		if damaged, err = r.db.Row(ctx, blobDamaged, []any{to.Repository, to.Digest.String()}, &one); err != nil {
			return fmt.Errorf("find blob: %w", err)
		}
	}
	e := errorf(BlobUnknown, "the repository has no such blob")
	if damaged {
		e = errorf(BlobUnknown, "the bytes of this blob were lost or damaged: push it again")
	}
	e.Details = []any{map[string]digest.Digest{"digest": to.Digest}}
	return e
}

// content opens a blob's bytes, as a file if possible, so that the kernel can
// send them (sendfile).
func (r *Registry) content(req *http.Request, to Request, b blob) (io.ReadSeekCloser, error) {
	lazy := &lazyContent{ctx: req.Context(), blobs: r.blobs, blob: b}
	if to.Kind == BlobHead {
		return lazy, nil
	}
	f, err := r.open(req.Context(), to.Digest, b)
	if errors.Is(err, blobstore.ErrNotFound) {
		// The blob was collected between the two reads: its row is gone too, or
		// there is a new row.
		again, found, lookup := r.findBlob(req.Context(), to)
		switch {
		case lookup != nil:
			return nil, lookup
		case !found:
			return nil, r.blobUnknown(req.Context(), to)
		}
		lazy.blob = again
		f, err = r.open(req.Context(), to.Digest, again)
	}
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", to.Digest, err)
	}
	if seeker, ok := f.(io.ReadSeekCloser); ok {
		return seeker, nil
	}
	lazy.open = f
	return lazy, nil
}

// open opens the bytes of a blob, in the database or in the blob store.
func (r *Registry) open(ctx context.Context, d digest.Digest, b blob) (io.ReadCloser, error) {
	if !b.small {
		return r.blobs.Open(ctx, b.path, 0)
	}
	var content []byte
	found, err := r.db.Row(ctx, statement.FindSmall, []any{d.String()}, &content)
	if err == nil && !found {
		err = blobstore.ErrNotFound
	}
	return inMemory{bytes.NewReader(content)}, err
}

// inMemory is the bytes of a small blob.
type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

// lazyContent is the bytes of a blob in a store that only reads forward. The
// first Read opens them at the current offset.
type lazyContent struct {
	ctx    context.Context
	blobs  blobstore.Store
	blob   blob
	offset int64
	open   io.ReadCloser // at offset; nil means not open
}

func (c *lazyContent) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.offset
	case io.SeekEnd:
		offset += c.blob.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the beginning")
	}
	if offset != c.offset {
		if err := c.Close(); err != nil {
			return 0, err
		}
		c.offset = offset
	}
	return offset, nil
}

func (c *lazyContent) Read(p []byte) (int, error) {
	if c.offset >= c.blob.size {
		return 0, io.EOF
	}
	if c.open == nil {
		f, err := c.blobs.Open(c.ctx, c.blob.path, c.offset)
		if err != nil {
			return 0, err
		}
		c.open = f
	}
	n, err := c.open.Read(p)
	c.offset += int64(n)
	return n, err
}

func (c *lazyContent) Close() error {
	if c.open == nil {
		return nil
	}
	err := c.open.Close()
	c.open = nil
	return err
}

func etag(d digest.Digest) string { return `"` + d.String() + `"` }

// blobDelete removes a blob from a repository. The bytes stay while a manifest
// of any repository uses them.
func (r *Registry) blobDelete(w http.ResponseWriter, req *http.Request, to Request) error {
	ctx := req.Context()
	var found bool
	var repo int64
	err := r.writer.do(ctx, func(tx *sqldb.Tx) (err error) {
		found, err = sqldb.First(ctx, tx, []any{&repo}, statement.UnlinkBlob, to.Repository, to.Digest.String())
		return err
	})
	if err != nil {
		return fmt.Errorf("delete blob: %w", err)
	}
	if !found {
		return r.blobUnknown(ctx, to)
	}
	r.touched(repo)
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// A client that learns that something exists does not push it, and refers to it
// a little later. If the collector removed it in between, that push would fail.
// So the registry postpones a review that is due soon before it answers. The
// usual existence check finds no such review and only reads.
//
// The delay of existence_check says how long something stays after the answer.
// Operators may change it, so each statement reads it.

// promiseBlob finds a blob and makes sure that it stays.
func (r *Registry) promiseBlob(ctx context.Context, to Request) (b blob, found bool, err error) {
	due := false
	found, err = r.db.Row(ctx, findBlobDue, []any{to.Repository, to.Digest.String(), r.now().UnixMilli()}, &b.path, &b.size, &b.small, &due)
	if err == nil && found && due {
		err = r.writer.do(ctx, func(tx *sqldb.Tx) (err error) {
			found, err = sqldb.First(ctx, tx, []any{&b.path, &b.size, &b.small}, statement.KeepBlob, to.Digest.String(), to.Repository)
			return err
		})
	}
	if err != nil {
		return blob{}, false, fmt.Errorf("find blob: %w", err)
	}
	return b, found, nil
}

// promiseManifest finds a manifest and makes sure that it stays.
func (r *Registry) promiseManifest(ctx context.Context, to Request) (m stored, found bool, err error) {
	m, found, err = r.findManifest(ctx, to)
	if err != nil || !found {
		return m, found, err
	}
	var n int64
	key := strconv.FormatInt(m.repo, 10) + "@" + m.digest.String()
	due, err := r.db.Row(ctx, manifestDue, []any{key, r.now().UnixMilli()}, &n)
	if err == nil && !due {
		// No review is due, or a review has just deleted the manifest: check
		// that it exists.
		found, err = r.db.Row(ctx, statement.ManifestThere, []any{m.id}, &n)
	}
	if err == nil && due {
		err = r.writer.do(ctx, func(tx *sqldb.Tx) (err error) {
			found, err = sqldb.First(ctx, tx, []any{&n}, statement.KeepManifest, m.id)
			return err
		})
	}
	if err == nil && found {
		// The answer may be the end of the client's work, so the postponement
		// must be durable. A client that asks for a blob pushes a manifest next,
		// and that commit makes both durable.
		err = r.writer.flush()
	}
	if err != nil {
		return stored{}, false, fmt.Errorf("find manifest: %w", err)
	}
	return m, found, nil
}

// mount links a blob of another repository to this one. It returns no digest if
// there is no such blob: the client then uploads it. Without from, any
// repository may be the source: a client that knows the digest has seen the
// content.
func (r *Registry) mount(ctx context.Context, to Request, from, what string) (digest.Digest, error) {
	want, err := parseDigest(what)
	if err != nil {
		return "", err
	}
	if from != "" {
		if err := checkName(from); err != nil {
			return "", err
		}
	}
	repo, err := r.ensure(ctx, to)
	if err != nil {
		return "", err
	}
	found, err := r.mountTo(ctx, repo, want, from)
	if overQuota(err) {
		return "", r.explainQuota(ctx, to.Repository, err)
	}
	if err != nil && r.removed(ctx, repo) {
		return "", nil // an upload creates the repository
	}
	if err != nil {
		return "", fmt.Errorf("mount blob: %w", err)
	}
	if !found {
		return "", nil
	}
	r.touched(repo.id)
	return want, nil
}

// mountTo links a blob to a repository, if there is such a blob, and makes sure that it
// stays: like promiseBlob it only reads the blob unless its review is due soon.
//
// A client that mounts a blob pushes a manifest next. That push finds the link or is refused,
// and its commit makes both durable. So the mount does not wait for the disk.
func (r *Registry) mountTo(ctx context.Context, repo repository, want digest.Digest, from string) (found bool, err error) {
	now := r.now().UnixMilli()
	err = r.writer.doSoon(ctx, func(tx *sqldb.Tx) error {
		var b sqldb.Batch
		b.Found(&found, mountBlob, repo.namespace, repo.id, want.String(), now, from)
		return tx.SendLast(ctx, &b)
	})
	if err == nil && found || overQuota(err) {
		return found, err
	}
	// The review is due soon or has just removed the blob, the blob is linked already, or there
	// is none.
	err = r.writer.doSoon(ctx, func(tx *sqldb.Tx) (err error) {
		var b blob
		found, err = sqldb.First(ctx, tx, []any{&b.path, &b.size, &b.small}, statement.KeepBlob, want.String(), from)
		if err != nil || !found {
			return err
		}
		var link sqldb.Batch
		link.Exec(statement.LinkBlob, repo.namespace, repo.id, want.String(), now)
		return tx.SendLast(ctx, &link)
	})
	return found, err
}
