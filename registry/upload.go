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
	// lease is how long a request holds an upload without a renewal; it renews
	// after renewAfter. The difference is how long a process may pause between
	// the renewal and the next write.
	lease      = time.Minute
	renewAfter = 15 * time.Second
	// touchAfter is how often an upload without a lease updates its row, so
	// that it does not count as abandoned.
	touchAfter = 10 * time.Minute
	// copyBuffer is half of an upload's memory.
	copyBuffer = 256 << 10
)

var buffers = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

// upload is an upload that only this request writes to.
//
// The blob store keeps the writers of one process apart. With PostgreSQL there
// may be other processes, so the request also claims the row: two writers at one
// path could store bytes that neither of them hashed.
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
	dirty     bool // written bytes are not synced yet
	sealed    bool // the blob store has finished it
	discarded bool // its row was deleted
	fetched   bool // it comes from an upstream
}

// errTruncated: the client sent less than it announced.
var errTruncated = errors.New("the body ended early")

// begin creates an upload, and claims it if this request writes to it. The row
// is written before the first byte, so a crash leaves no bytes that the database
// does not know.
func (r *Registry) begin(ctx context.Context, to Request, algorithm digest.Algorithm, keep bool) (*upload, error) {
	repo, err := r.ensure(ctx, to)
	if err != nil {
		return nil, err
	}
	w, err := r.blobs.Create(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin upload: %w", err)
	}
	u := &upload{
		r: r, id: to.Upload, name: to.Repository, repo: repo, renewed: r.now(),
		algorithm: algorithm, hash: algorithm.Hash(), writer: w,
	}
	if keep {
		u.token = r.newToken()
	}
	inserted := false
	err = r.writer.do(ctx, func(tx *sqldb.Tx) (err error) {
		var n int64
		token, until := u.claim(u.renewed)
		inserted, err = sqldb.First(ctx, tx, []any{&n}, insertUpload, u.id, u.repo.id, u.writer.Path(), string(algorithm), u.renewed.UnixMilli(), token, until)
		return err
	})
	if err == nil && !inserted {
		err = errUploadBusy() // another request has begun it
	}
	if err != nil && r.removed(ctx, u.repo) {
		return nil, withCleanup(errDeletedDuringPush(u.name), u.writer.Close())
	}
	if err != nil {
		return nil, withCleanup(wrapInternal("begin upload", err), u.writer.Close())
	}
	return u, nil
}

// newToken is empty on SQLite, where the blob store alone keeps writers apart.
func (r *Registry) newToken() string {
	if r.oneProcess() {
		return ""
	}
	return uuid.NewString()
}

// claim returns the values of the row's claim columns.
func (u *upload) claim(now time.Time) (token, until any) {
	if u.token == "" {
		return nil, nil
	}
	return u.token, now.Add(lease).UnixMilli()
}

// resume takes an upload for this request, at the end of the stored bytes. If it has
// no bytes yet, resume writes its row.
func (r *Registry) resume(ctx context.Context, to Request) (*upload, error) {
	u, algorithm, err := r.resumeOrEmpty(ctx, to)
	if err != nil || u != nil {
		return u, err
	}
	if _, err := r.checkUploads(ctx, to.Repository); err != nil { // the limit may be newer than the id
		return nil, err
	}
	return r.begin(ctx, to, algorithm, true)
}

// resumeOrEmpty takes an upload for this request, or returns the algorithm of one that
// has no bytes yet.
func (r *Registry) resumeOrEmpty(ctx context.Context, to Request) (*upload, digest.Algorithm, error) {
	u, unknown := r.resumeRow(ctx, to)
	var refused *Error
	if !errors.As(unknown, &refused) || refused.Code != BlobUploadUnknown {
		return u, "", unknown
	}
	algorithm, err := r.empty.find(ctx, to, r.now())
	if err == nil && algorithm == "" {
		err = unknown
	}
	return nil, algorithm, err
}

func (r *Registry) resumeRow(ctx context.Context, to Request) (*upload, error) {
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

// open opens the writer and then reads the row again: meanwhile another request
// could have made the upload a blob, and a write would append to that blob. A
// request ends an upload only while it holds the writer.
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
		return u.storeFailed(ctx, "resume", err)
	}
	again, found, err := u.r.findUpload(ctx, to)
	if err == nil && !found {
		err = errUploadUnknown()
	}
	if err == nil && !bytes.Equal(again.store, state.store) {
		err = errUploadBusy() // another request has continued it meanwhile
	}
	if err != nil {
		return withCleanup(err, w.Close())
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
	store     []byte // state of the blob store's writer
}

func (r *Registry) findUpload(ctx context.Context, to Request) (s uploadState, found bool, err error) {
	var algorithm string
	found, err = r.db.Row(ctx, findUpload, []any{to.Upload, to.Repository},
		&s.repo.id, &s.repo.namespace, &s.path, &algorithm, &s.size, &s.hash, &s.store)
	if err != nil {
		return s, false, fmt.Errorf("find upload: %w", err)
	}
	s.algorithm = digest.Algorithm(algorithm)
	if found && !Supported(s.algorithm) {
		return s, false, fmt.Errorf("upload %s has the unknown hash algorithm %q", to.Upload, algorithm)
	}
	return s, found, nil
}

// renew claims the upload, or extends the claim. It runs before each write,
// never after.
func (u *upload) renew(ctx context.Context) error {
	now := u.r.now()
	token, until := u.claim(now)
	after := renewAfter
	if u.token == "" {
		after = touchAfter
	}
	if now.Sub(u.renewed) < after {
		return nil
	}
	var held bool
	err := u.r.writer.do(ctx, func(tx *sqldb.Tx) (err error) {
		var n int64
		held, err = sqldb.First(ctx, tx, []any{&n}, claimUpload, u.id, u.name, token, until, now.UnixMilli())
		return err
	})
	if err != nil {
		return fmt.Errorf("claim upload: %w", err)
	}
	if !held {
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

// restore brings the hash up to the stored bytes. There are more of them than
// the row records when a process died between writing and recording.
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
	u.dirty = true // the bytes were written, but perhaps not synced
	return u.rehash(ctx, state.size)
}

// rehash hashes the stored bytes from an offset on.
func (u *upload) rehash(ctx context.Context, offset int64) error {
	content, err := u.r.blobs.Open(ctx, u.writer.Path(), offset)
	if err != nil {
		return err
	}
	_, err = io.Copy(u.hash, io.LimitReader(content, u.writer.Size()-offset))
	return errors.Join(err, content.Close())
}

// append stores and hashes what the client sends. It returns errTruncated when
// the client stopped early; the received bytes are stored. After any other error
// the hash may be ahead of the bytes, and the upload cannot be saved.
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
		if errors.Is(readErr, io.EOF) {
			return nil
		}
		if readErr != nil {
			return fmt.Errorf("%w: %w", errTruncated, readErr)
		}
	}
}

// fill reads until the buffer is full. Unlike io.ReadFull it returns io.EOF at
// the announced end, and io.ErrUnexpectedEOF before it.
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
	if err := u.r.quotas.Load().checkSize(u.writer.Size() + int64(len(p))); err != nil {
		return err
	}
	u.dirty = true
	if _, err := u.writer.Write(p); err != nil {
		return u.storeFailed(ctx, "store", err)
	}
	return nil
}

// hashing hashes the buffers of an upload in a goroutine, while they are written
// and the next one is read. Hashing takes about as long as everything else
// together.
type hashing struct {
	todo chan []byte            // slices of the buffers
	free chan *[copyBuffer]byte // buffers to read into
	held []*[copyBuffer]byte    // all buffers
	done chan struct{}          // closed when all bytes are hashed
}

// startHashing starts the goroutine; end must follow.
func startHashing(to hash.Hash) *hashing {
	const inTurn = 2 // one is hashed, one is read
	h := &hashing{
		todo: make(chan []byte, inTurn), free: make(chan *[copyBuffer]byte, inTurn), done: make(chan struct{}),
	}
	for range inTurn {
		buffer := buffers.Get().(*[copyBuffer]byte)
		h.held = append(h.held, buffer)
		h.free <- buffer
	}
	go h.run(to)
	return h
}

func (h *hashing) run(to hash.Hash) {
	defer close(h.done)
	for p := range h.todo {
		_, _ = to.Write(p) // a hash never fails
		h.free <- (*[copyBuffer]byte)(p[:copyBuffer])
	}
}

// end waits until all bytes are hashed.
func (h *hashing) end() {
	close(h.todo)
	<-h.done
	for _, buffer := range h.held {
		buffers.Put(buffer)
	}
}
