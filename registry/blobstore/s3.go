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

// S3Config says where a bucket is. Credentials are not part of it: they are
// looked for in the environment (AWS_ACCESS_KEY_ID and so on), in
// ~/.aws/credentials, and at the cloud's own service for its machines.
type S3Config struct {
	Bucket string
	// Prefix is what the keys begin with, so that a bucket can be shared.
	// Default: nothing.
	Prefix string
	// Endpoint is the server's URL. Default Amazon's.
	Endpoint string
	// Region is the bucket's. Default $AWS_REGION, then whatever the server
	// says.
	Region string
	// PartSize is the size of the parts of large uploads, 16 MiB by default. An
	// upload may have 10,000 of them, and has at most two in memory.
	PartSize int64
}

const (
	minPartSize = 5 << 20 // S3 refuses smaller parts, but for the last
	maxPartSize = 1 << 30
	maxParts    = 10_000

	// A request that takes longer than callTimeout, with all its repetitions,
	// has failed. It is less than the time that the registry leaves to a writer
	// between two signs of life, so no request of a writer that was given up
	// arrives when another has gone on. Joining parts can take S3 minutes; the
	// tags of the parts keep writers apart there.
	callTimeout     = 40 * time.Second
	completeTimeout = 5 * time.Minute
	openTimeout     = 20 * time.Second // at the start, with a person waiting
	tries           = 4

	// redirectFor is how long an address from Redirect is good.
	redirectFor = 15 * time.Minute
)

// S3 is a store in a bucket of S3 or of a server that speaks its protocol:
//
//	<prefix>/3f/3f9c…        the bytes of an upload, once it is finished
//	<prefix>/3f/3f9c….tail0  of an upload that goes on: what is no part yet
//	<prefix>/3f/3f9c….tail1
//	<prefix>/.exeunt         written at each start, to see that it can be
//
// An upload of less than one part is one object, written again when more comes.
// A larger one is a multipart upload, which nobody can read before it is
// complete. What it has besides whole parts waits in an object of its own
// between two requests, because S3 wants all parts but the last to be large.
//
// The state of an upload is with the caller: ids and entity tags. Each request
// that builds on what is stored names its tag, so a writer that was given up
// and writes all the same cannot slip in bytes: the upload fails with ErrGone.
//
// ErrBusy is about the writers of one process. The registry keeps processes
// apart.
type S3 struct {
	config  S3Config
	core    minio.Core
	writers claims
	buffers sync.Pool // of *[]byte, each with the capacity of a part
}

var (
	_ Store      = (*S3)(nil)
	_ Walker     = (*S3)(nil)
	_ Redirector = (*S3)(nil)
)

// OpenS3 opens a bucket as a store. It looks whether the bucket is there and
// can be written to.
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

// PartSize is that of uploads. Chunks that are smaller are written more than
// once.
func (s *S3) PartSize() int64 { return s.config.PartSize }

// findCredentials asks whoever may know, in this order.
func findCredentials() *credentials.Credentials {
	return credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{},
		&credentials.EnvMinio{},
		&credentials.FileAWSCredentials{},
		&credentials.IAM{Client: &http.Client{Timeout: 5 * time.Second}},
	})
}

// transport keeps connections: a push of many small blobs uses them over and
// over.
func transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	t.DisableCompression = true
	return t
}

// check asks what a wrong setting would answer with an error.
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

// put writes a whole object and returns its tag.
func (s *S3) put(ctx context.Context, key string, content []byte) (etag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := s.core.PutObject(ctx, s.config.Bucket, key, bytes.NewReader(content), int64(len(content)), "", sum(content),
		minio.PutObjectOptions{ContentType: "application/octet-stream", DisableContentSha256: true})
	return info.ETag, s3Error(err)
}

// sum is what S3 holds the content against that it receives. The library's own
// way (which DisableContentSha256 is about) is not used: some servers keep its
// encoding with the object.
func sum(content []byte) string {
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
		// The end itself cannot be asked for.
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

// s3Error says which of our errors one of S3 is.
func s3Error(err error) error {
	if err == nil {
		return nil
	}
	kind := ErrUnavailable // also when there was no answer
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
		return err // we asked for something that we may not, or that is wrong
	}
	return fmt.Errorf("%w: %w", kind, err)
}
