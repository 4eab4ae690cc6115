package blobstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/exeunt/exeunt/internal/durable"
)

// Marked is a store that records the id of its database.
type Marked interface {
	Store
	// Mark returns the id of the store; empty means that it has none yet.
	Mark(ctx context.Context) (id string, err error)
	// SetMark writes an id that survives a power cut. If the store has another
	// id, SetMark returns ErrMarked, unless replace is set.
	SetMark(ctx context.Context, id string, replace bool) error
	// Used reports whether the store holds bytes.
	Used(ctx context.Context) (bool, error)
}

// ErrMarked: the store has the id of another database.
var ErrMarked = errors.New("the blob store belongs to another database")

var (
	_ Marked = (*Dir)(nil)
	_ Marked = (*S3)(nil)
)

const (
	// markName is the file, or the object, whose first line is the id.
	markName = ".exeunt-id"
	markText = "\nThe database of the Exeunt server that owns these blobs has the same id. Copy this file with them.\n"
	maxMark  = 1024
)

// parseMark returns the id in the content of a mark.
func parseMark(content []byte) (string, error) {
	id, rest, _ := strings.Cut(string(content), "\n")
	if id == "" || rest == "" {
		return "", errors.New("the file is damaged: restore it from the same backup as the blobs")
	}
	return id, nil
}

// Mark is Marked.Mark.
func (d *Dir) Mark(context.Context) (string, error) {
	name := filepath.Join(d.root, markName)
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	id := ""
	if err == nil {
		id, err = parseMark(content)
	}
	return id, wrap("read the blob store's id "+name, err)
}

// SetMark is Marked.SetMark. The file appears complete: it is written under
// another name and synced first. A link, unlike a rename, replaces nothing.
func (d *Dir) SetMark(_ context.Context, id string, replace bool) error {
	return wrap("write the blob store's id", full(d.setMark(id, replace)))
}

func (d *Dir) setMark(id string, replace bool) error {
	f, err := os.CreateTemp(d.root, markName+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // no effect after a rename
	_, err = f.WriteString(id + markText)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	name := filepath.Join(d.root, markName)
	if replace {
		err = os.Rename(f.Name(), name)
	} else if err = os.Link(f.Name(), name); errors.Is(err, fs.ErrExist) {
		return ErrMarked
	}
	if err != nil {
		return err
	}
	return durable.SyncFolder(d.root)
}

// errFound ends a walk early.
var errFound = errors.New("found")

// Used is Marked.Used.
func (d *Dir) Used(ctx context.Context) (bool, error) {
	err := d.Walk(ctx, func(string, int64, time.Time) error { return errFound })
	if errors.Is(err, errFound) {
		return true, nil
	}
	return false, err
}

// Mark is Marked.Mark.
func (s *S3) Mark(ctx context.Context) (string, error) {
	id, err := s.mark(ctx)
	return id, wrap("read the blob store's id s3://"+s.config.Bucket+"/"+s.key(markName), err)
}

func (s *S3) mark(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, _, _, err := s.core.GetObject(ctx, s.config.Bucket, s.key(markName), minio.GetObjectOptions{})
	if err := s3Error(err); errors.Is(err, ErrNotFound) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	content, err := io.ReadAll(io.LimitReader(body, maxMark))
	if err := errors.Join(err, body.Close()); err != nil {
		return "", s3Error(err)
	}
	return parseMark(content)
}

// SetMark is Marked.SetMark. Servers without conditional writes ignore the
// condition. If two databases get the same empty bucket at the same moment, the
// first writer then finds the other's id at its next start.
func (s *S3) SetMark(ctx context.Context, id string, replace bool) error {
	content := []byte(id + markText)
	options := minio.PutObjectOptions{ContentType: "text/plain", DisableContentSha256: true}
	if !replace {
		options.SetMatchETagExcept("*")
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := s.core.PutObject(ctx, s.config.Bucket, s.key(markName), bytes.NewReader(content), int64(len(content)), "", checksum(content), options)
	if response, ok := errors.AsType[minio.ErrorResponse](err); ok && !replace {
		switch response.StatusCode {
		case http.StatusPreconditionFailed, http.StatusConflict:
			return fmt.Errorf("write the blob store's id: %w", ErrMarked)
		case http.StatusNotImplemented:
			return s.SetMark(ctx, id, true)
		}
	}
	return wrap("write the blob store's id", s3Error(err))
}

// Used is Marked.Used. One list request is enough: the keys outside the folders
// (the mark, and the key that each start writes) sort before them.
func (s *S3) Used(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	prefix := ""
	if s.config.Prefix != "" {
		prefix = s.config.Prefix + "/"
	}
	for object := range s.core.ListObjectsIter(ctx, s.config.Bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if object.Err != nil {
			return false, fmt.Errorf("list the blob store: %w", s3Error(object.Err))
		}
		path, _, _ := strings.Cut(s.name(object.Key), tailSuffix)
		if checkPath(path) == nil {
			return true, nil
		}
	}
	return false, nil
}
