package blobstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// tailSuffix follows the path in the keys of tails; a digit follows it.
const tailSuffix = ".tail"

// tails returns the keys where a writer may have left the end of its upload.
func tails(path string) [2]string {
	return [2]string{path + tailSuffix + "0", path + tailSuffix + "1"}
}

// Remove is Store.Remove. It aborts multipart uploads before it deletes objects:
// a writer that lost its lease fails from then on, and leaves nothing behind.
func (s *S3) Remove(ctx context.Context, path string) error {
	if err := checkPath(path); err != nil {
		return fmt.Errorf("remove blob: %w", err)
	}
	if !s.writers.take(path) {
		return fmt.Errorf("remove blob: %w", ErrBusy)
	}
	defer s.writers.free(path)
	err := s.eachMultipart(ctx, path, func(at, id string, _ time.Time) error {
		if at != path {
			return nil
		}
		return s.abort(ctx, path, id)
	})
	for _, name := range append([]string{path}, tailsOf(path)...) {
		if err == nil {
			err = s.delete(ctx, name)
		}
	}
	if err != nil {
		return fmt.Errorf("remove blob: %w", err)
	}
	return nil
}

func tailsOf(path string) []string {
	t := tails(path)
	return t[:]
}

func (s *S3) abort(ctx context.Context, path, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := s3Error(s.core.AbortMultipartUpload(ctx, s.config.Bucket, s.key(path), id))
	if errors.Is(err, ErrGone) || errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func (s *S3) delete(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := s3Error(s.core.RemoveObject(ctx, s.config.Bucket, s.key(name), minio.RemoveObjectOptions{}))
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// stored is what Walk has found at a path.
type stored struct {
	size    int64
	written time.Time
}

// Walk is Walker.Walk. It lists folder by folder, because a path can have an
// object, tails and parts, and is reported once. The parts of an upload do not
// count in its size. Some servers list parts only for one given upload: they
// clean up abandoned parts themselves.
func (s *S3) Walk(ctx context.Context, fn func(path string, size int64, written time.Time) error) error {
	for i := range folders {
		found, err := s.folder(ctx, folderName(byte(i))+"/")
		if err != nil {
			return fmt.Errorf("walk blobs: %w", err)
		}
		for path, at := range found {
			if err := fn(path, at.size, at.written); err != nil {
				return err
			}
		}
	}
	return nil
}

// folder lists the stored paths below a folder.
func (s *S3) folder(ctx context.Context, folder string) (map[string]stored, error) {
	found := map[string]stored{}
	add := func(path string, size int64, written time.Time) {
		if checkPath(path) != nil {
			return // not a path of this store
		}
		at := found[path]
		at.size += size
		if written.After(at.written) {
			at.written = written
		}
		found[path] = at
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	objects := s.core.ListObjectsIter(ctx, s.config.Bucket, minio.ListObjectsOptions{Prefix: s.key(folder), Recursive: true})
	for object := range objects {
		if object.Err != nil {
			return nil, s3Error(object.Err)
		}
		path, _, _ := strings.Cut(s.name(object.Key), tailSuffix)
		add(path, object.Size, object.LastModified)
	}
	err := s.eachMultipart(ctx, folder, func(path, _ string, begun time.Time) error {
		add(path, 0, begun)
		return nil
	})
	return found, err
}

// name is the inverse of key.
func (s *S3) name(key string) string {
	if s.config.Prefix == "" {
		return key
	}
	return strings.TrimPrefix(key, s.config.Prefix+"/")
}

// eachMultipart calls fn for the multipart uploads whose path begins with
// prefix.
func (s *S3) eachMultipart(ctx context.Context, prefix string, fn func(path, id string, begun time.Time) error) error {
	keyMarker, idMarker := "", ""
	for {
		page, err := s.multiparts(ctx, prefix, keyMarker, idMarker)
		if err != nil {
			return err
		}
		for _, upload := range page.Uploads {
			if err := fn(s.name(upload.Key), upload.UploadID, upload.Initiated); err != nil {
				return err
			}
		}
		if !page.IsTruncated || page.NextKeyMarker == "" {
			return nil
		}
		keyMarker, idMarker = page.NextKeyMarker, page.NextUploadIDMarker
	}
}

func (s *S3) multiparts(ctx context.Context, prefix, keyMarker, idMarker string) (minio.ListMultipartUploadsResult, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	page, err := s.core.ListMultipartUploads(ctx, s.config.Bucket, s.key(prefix), keyMarker, idMarker, "", 1000)
	return page, s3Error(err)
}
