package api

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

var (
	jsonContentType = []string{"application/json"}
	noCache         = []string{"no-cache, private"}
)

const (
	// spillAt is how many bytes of an answer are buffered before they are written.
	spillAt = 64 << 10
	// gzipAt is the size, in bytes, from which an answer is compressed.
	gzipAt = 128 << 10
)

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

func getBuffer() *[]byte { return buffers.Get().(*[]byte) }

// putBuffer keeps buffers of at most 256 KiB, so that a huge list is freed.
func putBuffer(b *[]byte) {
	if cap(*b) <= 256<<10 {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}

// packer compresses an answer. The compressor writes some 250 bytes at a time, and each
// write goes through every limit on the way to the client: the buffer gathers them.
type packer struct {
	gz  *gzip.Writer
	out *bufio.Writer
}

var packers = sync.Pool{New: func() any {
	p := &packer{out: bufio.NewWriterSize(io.Discard, spillAt)}
	p.gz, _ = gzip.NewWriterLevel(p.out, gzip.BestSpeed) // a constant level: cannot fail
	return p
}}

func (p *packer) reset(w io.Writer) {
	p.out.Reset(w)
	p.gz.Reset(p.out)
}

func (p *packer) close() error { return errors.Join(p.gz.Close(), p.out.Flush()) }

// stream is an answer of unknown size. It is buffered up to gzipAt bytes, and
// compressed from there on if the client accepts gzip.
type stream struct {
	w       http.ResponseWriter
	shared  *[]byte
	buf     []byte // not written yet; users append to it
	canGzip bool
	packed  *packer // set once the answer is compressed
	begun   bool
	code    int
}

func newStream(w http.ResponseWriter, req *http.Request) *stream {
	shared := getBuffer()
	return &stream{
		w: w, shared: shared, buf: (*shared)[:0], code: http.StatusOK,
		canGzip: strings.Contains(req.Header.Get("Accept-Encoding"), "gzip"),
	}
}

func (s *stream) header(code int) { s.code = code }

// spill writes the buffer if it is large enough.
func (s *stream) spill() error {
	limit := spillAt
	if !s.begun && s.canGzip {
		limit = gzipAt
	}
	if len(s.buf) < limit {
		return nil
	}
	return s.flush(s.canGzip)
}

func (s *stream) flush(compress bool) error {
	if !s.begun {
		s.begun = true
		h := s.w.Header()
		h["Content-Type"] = jsonContentType
		h["Cache-Control"] = noCache
		if compress {
			h.Set("Content-Encoding", "gzip")
			h.Add("Vary", "Accept-Encoding")
			s.packed = packers.Get().(*packer)
			s.packed.reset(s.w)
		}
		s.w.WriteHeader(s.code)
	}
	var err error
	if s.packed != nil {
		_, err = s.packed.gz.Write(s.buf)
	} else {
		_, err = s.w.Write(s.buf)
	}
	s.buf = s.buf[:0]
	if err != nil {
		return fmt.Errorf("%w: %w", errSinkClosed, err)
	}
	return nil
}

// close writes the rest of the buffer.
func (s *stream) close() error {
	if err := s.flush(s.canGzip && len(s.buf) >= gzipAt); err != nil {
		return err
	}
	if s.packed != nil {
		if err := s.packed.close(); err != nil {
			return fmt.Errorf("%w: %w", errSinkClosed, err)
		}
	}
	return nil
}

func (s *stream) release() {
	if s.packed != nil {
		s.packed.reset(io.Discard)
		packers.Put(s.packed)
	}
	*s.shared = s.buf
	putBuffer(s.shared)
}
