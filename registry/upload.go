package registry

import (
	"bytes"
	"context"
	"encoding"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/sqldb"
)

const (
	// lease is how long an upload stays with a request that gives no sign of
	// life; renewAfter is when the sign is given. The difference is how long a
	// process may be paused between the sign and the write that follows it.
	lease      = time.Minute
	renewAfter = 15 * time.Second
	// livelyAfter is how often an upload that needs no lease gives a sign of
	// life, so that it is not taken for abandoned.
	livelyAfter = 10 * time.Minute
	// copyBuffer is half the memory of an upload.
	copyBuffer = 256 << 10
)

var buffers = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

// upload is an upload that this request writes to. No other request does.
//
// The blob store keeps the writers of one process apart. On PostgreSQL there
// may be other processes, so there the row is claimed as well: two writers at
// one path could store bytes that neither of them hashed.
type upload struct {
	r         *Registry
	id        string
	name      string // of the repository
	repo      repository
	token     string // of the claim; empty on SQLite
	renewed   time.Time
	algorithm digest.Algorithm
	hash      hash.Hash // of all bytes so far
	writer    blobstore.Writer
	dirty     bool // something was written that is not synced
	sealed    bool // it is finished in the blob store
	rowless   bool // it begins and ends with this request; until then nothing is stored, and repo is not set
	discarded bool // it has no row any more
}

// errTruncated: the caller sent less than it announced.
var errTruncated = errors.New("the body ended early")

// begin makes an upload, and keeps it if this request will write to it. The row
// is written before the first byte, so a crash leaves no bytes that nobody
// knows of.
func (r *Registry) begin(ctx context.Context, to Request, algorithm digest.Algorithm, keep bool) (*upload, error) {
	repo, err := r.ensure(ctx, to.Repository)
	if err != nil {
		return nil, err
	}
	u, err := r.prepare(ctx, to, algorithm)
	if err != nil {
		return nil, err
	}
	u.repo = repo
	if keep {
		u.token = r.newToken()
	}
	err = r.writer.do(ctx, func(tx *sqldb.Tx) error {
		token, until := u.claim(u.renewed)
		return exec(ctx, tx, insertUpload, u.id, u.repo.id, u.writer.Path(), string(algorithm), u.renewed.UnixMilli(), token, until)
	})
	if err != nil && r.removed(ctx, u.repo) {
		return nil, also(errDeletedAtOnce(u.name), u.writer.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("begin upload: %w", err), u.writer.Close())
	}
	return u, nil
}

// prepare is begin without a row and a repository.
func (r *Registry) prepare(ctx context.Context, to Request, algorithm digest.Algorithm) (*upload, error) {
	w, err := r.blobs.Create(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin upload: %w", err)
	}
	return &upload{
		r: r, id: to.Upload, name: to.Repository, renewed: r.now(),
		algorithm: algorithm, hash: algorithm.Hash(), writer: w,
	}, nil
}

// newToken is empty where the blob store is enough.
func (r *Registry) newToken() string {
	if r.oneProcess() {
		return ""
	}
	return uuid.NewString()
}

// claim is what the row's claim columns are set to.
func (u *upload) claim(now time.Time) (token, until any) {
	if u.token == "" {
		return nil, nil
	}
	return u.token, now.Add(lease).UnixMilli()
}

// resume takes an upload for this request, at the end of what is stored of it.
func (r *Registry) resume(ctx context.Context, to Request) (*upload, error) {
	if f, ok := r.fresh.take(to); ok {
		return r.begin(ctx, to, f.algorithm, true)
	}
	u := &upload{r: r, id: to.Upload, name: to.Repository, token: r.newToken()}
	if u.token == "" {
		u.renewed = r.now()
	}
	if err := u.renew(ctx); err != nil {
		return nil, err
	}
	if err := u.open(ctx, to); err != nil {
		u.release(ctx)
		return nil, err
	}
	return u, nil
}

// open takes the writer, and then reads the row again: before, another request
// could have made the upload a blob, and what is written now would be added to
// that. Nobody ends an upload while another has its writer.
func (u *upload) open(ctx context.Context, to Request) error {
	state, found, err := u.r.findUpload(ctx, to)
	if err != nil {
		return err
	}
	if !found {
		return errUploadUnknown()
	}
	w, err := u.r.blobs.Resume(ctx, state.path, state.store)
	if errors.Is(err, blobstore.ErrBusy) {
		return errUploadBusy()
	}
	if err != nil {
		return u.broken(ctx, "resume", err)
	}
	again, found, err := u.r.findUpload(ctx, to)
	if err == nil && !found {
		err = errUploadUnknown()
	}
	if err == nil && !bytes.Equal(again.store, state.store) {
		err = errUploadBusy() // somebody has gone on with it meanwhile, and ended
	}
	if err != nil {
		return also(err, w.Close())
	}
	state = again
	u.repo, u.algorithm, u.writer = state.repo, state.algorithm, w
	if err := u.restore(ctx, state); err != nil {
		return errors.Join(fmt.Errorf("resume upload %s: %w", u.id, err), w.Close())
	}
	return nil
}

func errUploadUnknown() error {
	return errorf(BlobUploadUnknown, "this repository has no such upload")
}

func errUploadBusy() error {
	return errorf(BlobUploadInvalid, "another request is writing to this upload").as(http.StatusConflict)
}

// uploadState is the row of an upload.
type uploadState struct {
	repo      repository
	path      string
	algorithm digest.Algorithm
	size      int64
	hash      []byte
	store     []byte // the blob store's own
}

func (r *Registry) findUpload(ctx context.Context, to Request) (s uploadState, found bool, err error) {
	var algorithm string
	found, err = r.db.Row(ctx, findUpload, []any{to.Upload, to.Repository},
		&s.repo.id, &s.repo.namespace, &s.path, &algorithm, &s.size, &s.hash, &s.store)
	if err != nil {
		return s, false, fmt.Errorf("find upload: %w", err)
	}
	s.algorithm = digest.Algorithm(algorithm)
	if found && !supported(s.algorithm) {
		return s, false, fmt.Errorf("upload %s is hashed with %q", to.Upload, algorithm)
	}
	return s, found, nil
}

// renew claims the upload, for the first time or again. It must come before
// writing, never after.
func (u *upload) renew(ctx context.Context) error {
	now := u.r.now()
	token, until := u.claim(now)
	after := renewAfter
	if u.token == "" {
		after = livelyAfter
	}
	if now.Sub(u.renewed) < after {
		return nil
	}
	var ours bool
	err := u.r.writer.do(ctx, func(tx *sqldb.Tx) (err error) {
		var n int64
		ours, err = one(ctx, tx, claimUpload, []any{u.id, u.name, token, until, now.UnixMilli()}, &n)
		return err
	})
	if err != nil {
		return fmt.Errorf("claim upload: %w", err)
	}
	if !ours {
		_, found, err := u.r.findUpload(ctx, Request{Repository: u.name, Upload: u.id})
		if err != nil {
			return err
		}
		if found {
			return errUploadBusy()
		}
		return errUploadUnknown()
	}
	u.renewed = now
	return nil
}

// restore brings the hash to where the bytes are. They are ahead of the row
// when a process died between writing and recording.
func (u *upload) restore(ctx context.Context, state uploadState) error {
	u.hash = u.algorithm.Hash()
	if state.hash != nil {
		h, ok := u.hash.(encoding.BinaryUnmarshaler)
		if !ok {
			return fmt.Errorf("the state of %s cannot be restored", u.algorithm)
		}
		if err := h.UnmarshalBinary(state.hash); err != nil {
			return fmt.Errorf("restore the hash: %w", err)
		}
	}
	stored := u.writer.Size()
	if stored < state.size {
		return fmt.Errorf("%d bytes are stored, but %d were recorded", stored, state.size)
	}
	if stored == state.size {
		return nil
	}
	u.dirty = true // written, and perhaps never synced
	return u.rehash(ctx, state.size)
}

// rehash adds the stored bytes from an offset on to the hash.
func (u *upload) rehash(ctx context.Context, offset int64) error {
	content, err := u.r.blobs.Open(ctx, u.writer.Path(), offset)
	if err != nil {
		return err
	}
	_, err = io.Copy(u.hash, io.LimitReader(content, u.writer.Size()-offset))
	return errors.Join(err, content.Close())
}

// append stores what the caller sends, and hashes it meanwhile. It returns
// errTruncated when the caller stopped early; what came is stored. After any
// other error the hash may be ahead of the bytes, and the upload cannot be saved.
func (u *upload) append(ctx context.Context, body io.Reader) error {
	h := startHashing(u.hash)
	defer h.end()
	for {
		buffer := <-h.free
		n, readErr := fill(body, buffer[:])
		if n > 0 {
			h.todo <- buffer[:n]
			if err := u.write(ctx, buffer[:n]); err != nil {
				return err
			}
		}
		if readErr == io.EOF {
			return nil
		}
		if readErr != nil {
			return fmt.Errorf("%w: %w", errTruncated, readErr)
		}
	}
}

// fill reads until the buffer is full. Other than with io.ReadFull, io.EOF is
// the end that was announced, and io.ErrUnexpectedEOF one that was not.
func fill(body io.Reader, buffer []byte) (n int, err error) {
	for n < len(buffer) && err == nil {
		var m int
		m, err = body.Read(buffer[n:])
		n += m
	}
	return n, err
}

func (u *upload) write(ctx context.Context, p []byte) error {
	if err := u.renew(ctx); err != nil {
		return err
	}
	u.dirty = true
	if _, err := u.writer.Write(p); err != nil {
		return u.broken(ctx, "store", err)
	}
	return nil
}
