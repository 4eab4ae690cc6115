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
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	return body, nil
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
	if err != nil {
		return 0, fmt.Errorf("stat blob: %w", s3Error(err))
	}
	return info.Size, nil
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
	case response.Code == "QuotaExceeded" || response.StatusCode == http.StatusInsufficientStorage:
		kind = ErrFull
	case response.StatusCode < http.StatusInternalServerError:
		return err // the request is forbidden or invalid
	}
	return fmt.Errorf("%w: %w", kind, err)
}
