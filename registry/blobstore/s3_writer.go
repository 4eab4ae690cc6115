package blobstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"

	"github.com/minio/minio-go/v7"
)

// s3State is what Resume needs to continue an upload to S3.
type s3State struct {
	Size     int64    `json:"size"`
	PartSize int64    `json:"partSize"`
	Upload   string   `json:"upload,omitempty"` // id of the multipart upload; empty means that the upload is one object
	Parts    []string `json:"parts,omitempty"`  // their tags; each has PartSize bytes
	Tail     string   `json:"tail,omitempty"`   // tag of the bytes after the parts; empty means that there are none
	Slot     int      `json:"slot,omitempty"`   // which of the two tails holds them
}

// rest is the number of bytes after the parts.
func (s *s3State) rest() int64 { return s.Size - int64(len(s.Parts))*s.PartSize }

// s3Writer is an upload to S3. Its buffer holds the last bytes until they fill a
// part, or until Sync or Finish. One part is sent while the next one is filled.
//
// The two tails are written in turn. So a process that dies after it has written
// one leaves the tail that the database has recorded.
type s3Writer struct {
	store  *S3
	path   string
	ctx    context.Context // cancelled by Close
	cancel context.CancelFunc

	synced s3State // state at the last Sync
	next   s3State // Size and Parts, including what was written since
	buffer []byte  // if loaded: the bytes after the last part
	loaded bool    // whether the buffer holds the bytes after the parts of synced
	sent   chan sentPart
	tails  bool // there may be tails to delete
	closed bool
	failed error // the first failure; after it the stored bytes are uncertain
}

// sentPart is the result of sending a part.
type sentPart struct {
	buffer []byte
	etag   string
	err    error
}

// Create is Store.Create. S3 spreads load by key prefix, so the folder is
// random.
func (s *S3) Create(ctx context.Context) (Writer, error) {
	return s.Resume(ctx, newPath(byte(rand.Uint32())), nil)
}

// Resume is Store.Resume. It sends no request: the first write does.
func (s *S3) Resume(ctx context.Context, path string, state []byte) (Writer, error) {
	if err := checkPath(path); err != nil {
		return nil, fmt.Errorf("resume blob: %w", err)
	}
	synced := s3State{PartSize: s.config.PartSize}
	if state != nil {
		synced = s3State{}
		if err := json.Unmarshal(state, &synced); err != nil || synced.PartSize <= 0 || synced.rest() < 0 {
			return nil, fmt.Errorf("resume blob: the recorded state %.100q is not valid: %w", state, ErrGone)
		}
	}
	if !s.writers.take(path) {
		return nil, fmt.Errorf("resume blob: %w", ErrBusy)
	}
	w := &s3Writer{store: s, path: path, synced: synced, next: synced, tails: synced.Upload != ""}
	// The writer outlives the request: bytes that arrived before the client
	// disconnected are kept.
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.loaded = synced.rest() == 0
	return w, nil
}

func (w *s3Writer) Path() string { return w.path }
func (w *s3Writer) Size() int64  { return w.next.Size }

func (w *s3Writer) State() []byte {
	if w.synced.Tail == "" && len(w.synced.Parts) == 0 {
		return nil
	}
	state, err := json.Marshal(w.synced)
	if err != nil {
		panic(err) // numbers and strings can always be marshalled
	}
	return state
}

func (w *s3Writer) Write(p []byte) (n int, err error) {
	err = w.do("write", func() error {
		if err := w.load(); err != nil {
			return err
		}
		for len(p) > 0 {
			m := min(len(p), int(w.next.PartSize)-len(w.buffer))
			w.fill(p[:m])
			n, p = n+m, p[m:]
			if len(w.buffer) == int(w.next.PartSize) {
				if err := w.send(); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return n, err
}

// do runs a step unless an earlier one failed.
func (w *s3Writer) do(what string, step func() error) error {
	if w.closed {
		return fmt.Errorf("%s blob: %w", what, fs.ErrClosed)
	}
	if w.failed == nil {
		w.failed = step()
	}
	if w.failed != nil {
		return fmt.Errorf("%s blob: %w", what, w.failed)
	}
	return nil
}

// fill appends to the buffer. The buffer grows with the upload, up to one part:
// most blobs are small.
func (w *s3Writer) fill(p []byte) {
	need, size := len(w.buffer)+len(p), int(w.next.PartSize)
	if need > cap(w.buffer) {
		grown := w.store.buffer(min(max(2*cap(w.buffer), need), size), size)
		grown = append(grown, w.buffer...)
		w.store.recycle(w.buffer, size)
		w.buffer = grown
	}
	w.buffer = append(w.buffer, p...)
	w.next.Size += int64(len(p))
}

// buffer returns an empty buffer with a capacity. Buffers of a whole part are
// pooled.
func (s *S3) buffer(capacity, part int) []byte {
	if capacity == part {
		if b, ok := s.buffers.Get().(*[]byte); ok && cap(*b) == part {
			return (*b)[:0]
		}
	}
	return make([]byte, 0, capacity)
}

func (s *S3) recycle(b []byte, part int) {
	if cap(b) == part {
		s.buffers.Put(&b)
	}
}

// load reads the bytes after the parts back into the buffer, before more are
// appended.
func (w *s3Writer) load() error {
	if w.loaded {
		return nil
	}
	rest := w.synced.rest()
	if w.synced.Tail == "" || rest > w.synced.PartSize {
		return fmt.Errorf("%d bytes after the parts were recorded without a tail: %w", rest, ErrGone)
	}
	ctx, cancel := context.WithTimeout(w.ctx, callTimeout)
	defer cancel()
	var o minio.GetObjectOptions
	if err := o.SetMatchETag(w.synced.Tail); err != nil {
		return err
	}
	body, _, _, err := w.store.core.GetObject(ctx, w.store.config.Bucket, w.store.key(w.tail(w.synced.Slot)), o)
	err = s3Error(err)
	if errors.Is(err, ErrNotFound) {
		err = ErrGone
	}
	if err != nil {
		return err
	}
	// Leave room for more bytes, or for a whole part if it is nearly full.
	size := int(w.synced.PartSize)
	w.buffer = w.store.buffer(min(2*int(rest), size), size)[:rest]
	_, err = io.ReadFull(body, w.buffer)
	if err := errors.Join(err, body.Close()); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	w.loaded = true
	return nil
}

// tail is the key of the bytes after the parts between two requests.
func (w *s3Writer) tail(slot int) string {
	if w.synced.Upload == "" {
		return w.path
	}
	return tails(w.path)[slot]
}

// send sends the buffer as the next part, after the previous part was sent.
func (w *s3Writer) send() error {
	if err := w.awaitPart(); err != nil {
		return err
	}
	if len(w.next.Parts) >= maxParts {
		return fmt.Errorf("more than %d parts of %d MiB: use a larger part-size: %w", maxParts, w.next.PartSize>>20, ErrFull)
	}
	if w.next.Upload == "" {
		if err := w.begin(); err != nil {
			return err
		}
	}
	sending, number := w.buffer, len(w.next.Parts)+1
	w.buffer = nil
	w.sent = make(chan sentPart, 1)
	go func() {
		etag, err := w.part(number, sending)
		w.sent <- sentPart{sending, etag, err}
	}()
	return nil
}

// awaitPart waits until the part in flight was sent.
func (w *s3Writer) awaitPart() error {
	if w.sent == nil {
		return nil
	}
	part := <-w.sent
	w.sent = nil
	w.store.recycle(part.buffer, int(w.next.PartSize))
	if part.err != nil {
		return part.err
	}
	w.next.Parts = append(w.next.Parts, part.etag)
	return nil
}

// begin begins the multipart upload. If a process dies before its id is
// recorded, Remove aborts it.
func (w *s3Writer) begin() (err error) {
	ctx, cancel := context.WithTimeout(w.ctx, callTimeout)
	defer cancel()
	w.next.Upload, err = w.store.core.NewMultipartUpload(ctx, w.store.config.Bucket, w.store.key(w.path),
		minio.PutObjectOptions{ContentType: "application/octet-stream"})
	return s3Error(err)
}

func (w *s3Writer) part(number int, content []byte) (etag string, err error) {
	ctx, cancel := context.WithTimeout(w.ctx, callTimeout)
	defer cancel()
	part, err := w.store.core.PutObjectPart(ctx, w.store.config.Bucket, w.store.key(w.path), w.next.Upload, number,
		bytes.NewReader(content), int64(len(content)), minio.PutObjectPartOptions{Sha256Hex: checksum(content), DisableContentSha256: true})
	err = s3Error(err)
	if errors.Is(err, ErrNotFound) {
		err = ErrGone
	}
	return part.ETag, err
}

// Sync is Writer.Sync. Whatever S3 has acknowledged survives a power cut.
func (w *s3Writer) Sync() error {
	return w.do("sync", func() error {
		if err := w.awaitPart(); err != nil {
			return err
		}
		if w.next.Size == w.synced.Size {
			return nil
		}
		return w.saveBuffer()
	})
}

// saveBuffer writes the buffer to the object where Resume finds it.
func (w *s3Writer) saveBuffer() (err error) {
	state := w.next
	state.Tail, state.Slot = "", 1-w.synced.Slot
	if len(w.buffer) > 0 {
		at := w.path
		if state.Upload != "" {
			at, w.tails = tails(w.path)[state.Slot], true
		}
		if state.Tail, err = w.store.put(w.ctx, w.store.key(at), w.buffer); err != nil {
			return err
		}
	}
	w.synced = state
	return nil
}

// Finish is Writer.Finish.
func (w *s3Writer) Finish() error {
	return w.do("finish", func() error {
		if err := w.awaitPart(); err != nil {
			return err
		}
		if w.next.Upload != "" {
			return w.complete()
		}
		if w.next.Size > 0 && w.next.Size == w.synced.Size {
			return nil // Sync has written the object
		}
		_, err := w.store.put(w.ctx, w.store.key(w.path), w.buffer)
		return err
	})
}

// complete joins the parts and deletes the tails. A tail that cannot be deleted
// now is deleted with the blob.
func (w *s3Writer) complete() error {
	if err := w.load(); err != nil {
		return err
	}
	if len(w.buffer) > 0 {
		if err := errors.Join(w.send(), w.awaitPart()); err != nil {
			return err
		}
	}
	parts := make([]minio.CompletePart, len(w.next.Parts))
	for i, etag := range w.next.Parts {
		parts[i] = minio.CompletePart{PartNumber: i + 1, ETag: etag}
	}
	ctx, cancel := context.WithTimeout(w.ctx, completeTimeout)
	defer cancel()
	_, err := w.store.core.CompleteMultipartUpload(ctx, w.store.config.Bucket, w.store.key(w.path), w.next.Upload, parts, minio.PutObjectOptions{})
	if err = s3Error(err); errors.Is(err, ErrNotFound) {
		err = ErrGone
	}
	if err != nil || !w.tails {
		return err
	}
	for _, name := range tails(w.path) {
		_ = w.store.delete(w.ctx, name)
	}
	return nil
}

// Close is Writer.Close. It cancels the part in flight.
func (w *s3Writer) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	w.cancel()
	if w.sent != nil {
		part := <-w.sent
		w.store.recycle(part.buffer, int(w.next.PartSize))
	}
	w.store.recycle(w.buffer, int(w.next.PartSize))
	w.buffer = nil
	w.store.writers.free(w.path)
	return nil
}
