package registry

import (
	"context"
	"fmt"
	"net/http"
)

// Quotas limit what clients can store. 0 means no limit.
type Quotas struct {
	// BlobBytes is the size of a blob.
	BlobBytes int64
	// Uploads is the number of uploads under way, and NamespaceUploads the number in one
	// namespace, on all replicas together. Uploads that begin at the same moment may
	// exceed a limit by their number.
	Uploads, NamespaceUploads int64
}

// checkLength refuses a body that is announced to be larger than a blob may be.
func (q Quotas) checkLength(k Kind, req *http.Request) error {
	if !k.carriesBlob() || q.BlobBytes == 0 {
		return nil
	}
	return q.checkSize(req.ContentLength)
}

func (q Quotas) checkSize(size int64) error {
	if q.BlobBytes > 0 && size > q.BlobBytes {
		return errorf(Denied, "a blob of this registry has at most %d bytes", q.BlobBytes)
	}
	return nil
}

// SetQuotas replaces the quotas while the registry serves. What is stored already stays.
func (r *Registry) SetQuotas(q Quotas) { r.quotas.Store(&q) }

// checkUploads refuses an upload if as many are under way as may be, and reports whether there
// is such a limit.
func (r *Registry) checkUploads(ctx context.Context, repository string) (limited bool, err error) {
	quotas := r.quotas.Load()
	if quotas.Uploads == 0 && quotas.NamespaceUploads == 0 {
		return false, nil
	}
	namespace := topLevel(repository)
	var all, here int64
	if _, err := r.db.Row(ctx, countUploads, []any{namespace}, &all, &here); err != nil {
		return true, fmt.Errorf("count uploads: %w", err)
	}
	if limit := quotas.Uploads; limit > 0 && all >= limit {
		return true, errorf(TooManyRequests, "%d uploads are under way, as many as this registry allows; finish or cancel them, or try again later", all)
	}
	if limit := quotas.NamespaceUploads; limit > 0 && here >= limit {
		return true, errorf(TooManyRequests, "%d uploads are under way in namespace %s, as many as this registry allows; finish or cancel them, or try again later", here, namespace)
	}
	return true, nil
}
