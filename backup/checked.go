package backup

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
)

// ErrDamaged: bytes of a backup are missing, or do not match their checksum.
var ErrDamaged = errors.New("the backup is damaged")

// checked reads content and reports ErrDamaged, in place of the end, if its size or
// checksum is wrong.
type checked struct {
	io.ReadCloser
	name string
	hash hash.Hash
	want string // in hex
	left int64  // bytes until the end
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.hash.Write(p[:n])
	c.left -= int64(n)
	if c.left < 0 {
		return n, fmt.Errorf("%s is too long: %w", c.name, ErrDamaged)
	}
	if errors.Is(err, io.EOF) {
		if c.left > 0 {
			return n, fmt.Errorf("%s is %d bytes too short: %w", c.name, c.left, ErrDamaged)
		}
		if hex.EncodeToString(c.hash.Sum(nil)) != c.want {
			return n, fmt.Errorf("%s does not match its checksum: %w", c.name, ErrDamaged)
		}
	}
	return n, err
}

// withContext ends a copy when the context does.
func withContext(ctx context.Context, r io.Reader) io.Reader { return contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}
