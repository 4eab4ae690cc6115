package blobstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3Config says where a bucket is. Credentials are not part of it: they come
// from the environment (AWS_ACCESS_KEY_ID and so on), from ~/.aws/credentials,
// or from the cloud's metadata service.
type S3Config struct {
	Bucket string
	// Prefix begins every key, so that a bucket can be shared. Default: none.
	Prefix string
	// Endpoint is the server's URL. Default: Amazon's.
	Endpoint string
	// Region is the bucket's. Default: $AWS_REGION, then the region that the
	// server reports.
	Region string
	// PartSize is the size of the parts of large uploads, 16 MiB by default. An
	// upload has at most 10,000 parts, and at most two of them in memory.
	PartSize int64
}

const (
	minPartSize = 5 << 20 // S3 refuses smaller parts, except the last
	maxPartSize = 1 << 30
	maxParts    = 10_000

	// A request with all its retries fails after callTimeout. That is shorter
	// than the lease of an upload, so no request of a writer that lost its lease
	// arrives after the next writer has started. Joining parts can take S3
	// minutes; there the tags of the parts keep the writers apart.
	callTimeout     = 40 * time.Second
	completeTimeout = 5 * time.Minute
	openTimeout     = 20 * time.Second // at start-up, while an operator waits
	tries           = 4

	// redirectFor is how long a URL from Redirect is valid.
	redirectFor = 15 * time.Minute
)

// S3 is a store in a bucket of S3 or of a server that speaks its protocol:
//
//	<prefix>/3f/3f9c…        the bytes of an upload, once it is finished
//	<prefix>/3f/3f9c….tail0  the bytes after the last part of an unfinished upload
//	<prefix>/3f/3f9c….tail1
//	<prefix>/.exeunt         written at each start, to see that it can be
//
// An upload smaller than one part is one object, rewritten when more bytes come.
// A larger one is a multipart upload, which cannot be read before it is
// complete. Its bytes after the last whole part wait in a tail object between
// two requests, because S3 requires all parts but the last to be large.
//
// The database stores the state of an upload: ids and entity tags. Each request
// that builds on stored bytes names their tag. So a writer that lost its lease
// cannot add bytes: the upload fails with ErrGone.
//
// ErrBusy covers the writers of one process. The registry keeps processes apart
// by leases.
type S3 struct {
	config  S3Config
	core    minio.Core
	writers claims
	buffers sync.Pool // of *[]byte, each with the capacity of one part
}

var (
	_ Store      = (*S3)(nil)
	_ Walker     = (*S3)(nil)
	_ Redirector = (*S3)(nil)
)

// OpenS3 opens a bucket as a store. It checks that the bucket exists and can be
// written to.
func OpenS3(ctx context.Context, c S3Config) (*S3, error) {
	s, err := openS3(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open blob store s3://%s/%s at %s: %w", c.Bucket, c.Prefix, c.Endpoint, err)
	}
	return s, nil
}

func openS3(ctx context.Context, c S3Config) (*S3, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Path != "" && u.Path != "/" {
		return nil, errors.New("the endpoint is not http://HOST or https://HOST")
	}
	core, err := minio.NewCore(u.Host, &minio.Options{
		Creds: findCredentials(), Secure: u.Scheme == "https", Region: c.Region, MaxRetries: tries, Transport: transport(),
	})
	if err != nil {
		return nil, err
	}
	s := &S3{config: c, core: *core}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return s, s.check(ctx)
}

// PartSize is the size of the parts of uploads. Chunks smaller than that are
// written more than once.
func (s *S3) PartSize() int64 { return s.config.PartSize }

// findCredentials tries these sources in order.
func findCredentials() *credentials.Credentials {
	return credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{},
		&credentials.EnvMinio{},
		&credentials.FileAWSCredentials{},
		&credentials.IAM{Client: &http.Client{Timeout: 5 * time.Second}},
	})
}

// transport keeps idle connections: a push of many small blobs reuses them.
func transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	t.DisableCompression = true
	return t
}

// check makes the requests that fail when a setting is wrong.
func (s *S3) check(ctx context.Context) error {
	if v, err := s.core.GetCreds(); err != nil || v.AccessKeyID == "" {
		return errors.Join(errors.New("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"), err)
	}
	there, err := s.core.BucketExists(ctx, s.config.Bucket)
	if err != nil {
		return err
	}
	if !there {
		return errors.New("there is no such bucket: make it first")
	}
	_, err = s.put(ctx, s.key(".exeunt"), []byte("blobs of an Exeunt registry; do not change by hand\n"))
	if errors.Is(err, ErrFull) {
		return nil // deletions must work on a full bucket
	}
	return err
}

func (s *S3) key(name string) string {
	if s.config.Prefix == "" {
		return name
	}
	return s.config.Prefix + "/" + name
}

// put writes a whole object and returns its entity tag.
func (s *S3) put(ctx context.Context, key string, content []byte) (etag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := s.core.PutObject(ctx, s.config.Bucket, key, bytes.NewReader(content), int64(len(content)), "", checksum(content),
		minio.PutObjectOptions{ContentType: "application/octet-stream", DisableContentSha256: true})
	return info.ETag, s3Error(err)
}

// checksum is the checksum that S3 verifies for the received content. The library's
// own streaming checksum (see DisableContentSha256) is not used: some servers
// store its encoding with the object.
func checksum(content []byte) string {
	h := sha256.Sum256(content)
	return hex.EncodeToString(h[:])
}

// Open is Store.Open.
func (s *S3) Open(ctx context.Context, path string, offset int64) (io.ReadCloser, error) {
	if err := checkPath(path); err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	body, err := s.open(ctx, path, offset)
	return body, wrap("open blob", err)
}

func (s *S3) open(ctx context.Context, path string, offset int64) (io.ReadCloser, error) {
	if offset < 0 {
		return nil, fmt.Errorf("offset %d: %w", offset, ErrRange)
	}
	var o minio.GetObjectOptions
	if offset > 0 {
		if err := o.SetRange(offset, 0); err != nil {
			return nil, err
		}
	}
	body, _, _, err := s.core.GetObject(ctx, s.config.Bucket, s.key(path), o)
	if response, ok := errors.AsType[minio.ErrorResponse](err); ok && response.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		// S3 refuses a range that begins at the end.
		size, err := s.Stat(ctx, path)
		if err == nil && offset > size {
			err = fmt.Errorf("offset %d of %d bytes: %w", offset, size, ErrRange)
		}
		return http.NoBody, err
	}
	if err != nil {
		return nil, s3Error(err)
	}
	return body, nil
}

// Stat is Store.Stat.
func (s *S3) Stat(ctx context.Context, path string) (int64, error) {
	if err := checkPath(path); err != nil {
		return 0, fmt.Errorf("stat blob: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := s.core.StatObject(ctx, s.config.Bucket, s.key(path), minio.StatObjectOptions{})
	return info.Size, wrap("stat blob", s3Error(err))
}

// Redirect is Redirector.Redirect.
func (s *S3) Redirect(ctx context.Context, path string) (string, error) {
	if err := checkPath(path); err != nil {
		return "", fmt.Errorf("redirect to blob: %w", err)
	}
	u, err := s.core.PresignedGetObject(ctx, s.config.Bucket, s.key(path), redirectFor, nil)
	if err != nil {
		return "", fmt.Errorf("redirect to blob: %w", s3Error(err))
	}
	return u.String(), nil
}

// s3Error wraps an error of S3 with the matching error of this package.
func s3Error(err error) error {
	if err == nil {
		return nil
	}
	kind := ErrUnavailable // also without a response
	response, answered := errors.AsType[minio.ErrorResponse](err)
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case !answered:
	case response.Code == "NoSuchUpload" || response.Code == "InvalidPart" || response.StatusCode == http.StatusPreconditionFailed:
		kind = ErrGone
	case response.Code == "NoSuchKey" || response.StatusCode == http.StatusNotFound && response.Code != "NoSuchBucket":
		return ErrNotFound
	case response.Code == "SlowDown" || response.StatusCode == http.StatusTooManyRequests:
		kind = ErrOverloaded
	case response.StatusCode == http.StatusInsufficientStorage || response.Code == "QuotaExceeded" || response.Code == "XMinioAdminBucketQuotaExceeded":
		kind = ErrFull
	case response.StatusCode < http.StatusInternalServerError:
		return err // the request is forbidden or invalid
	}
	return fmt.Errorf("%w: %w", kind, err)
}

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
	return wrap("remove blob", err)
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
