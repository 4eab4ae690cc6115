package registry

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"
)

// stored is a manifest as stored in the database.
type stored struct {
	id        int64
	repo      int64
	digest    digest.Digest
	mediaType string
	payload   []byte
}

// manifestGet serves a manifest, byte for byte, or only its size. It ignores
// Accept: each manifest has one form, and a client that cannot read it gives a
// better error than 406. An answer to HEAD is a promise.
func (r *Registry) manifestGet(w http.ResponseWriter, req *http.Request, to Request) error {
	find := r.findManifest
	if to.Kind == ManifestHead {
		find = r.promiseManifest
	}
	m, found, err := find(req.Context(), to)
	if err == nil {
		var again bool
		if again, err = r.bring(req.Context(), to, found, m); again {
			m, found, err = find(req.Context(), to)
		}
	}
	if err != nil {
		return err
	}
	if !found {
		return r.manifestUnknown(req.Context(), to)
	}
	h := w.Header()
	h.Set("Docker-Content-Digest", m.digest.String())
	h.Set("ETag", etag(m.digest))
	if matches(req.Header.Values("If-None-Match"), etag(m.digest)) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", m.mediaType)
	h.Set("Content-Length", strconv.Itoa(len(m.payload)))
	if to.Kind == ManifestHead {
		return nil
	}
	if _, err = w.Write(m.payload); err == nil {
		r.pulled(w, req, to, m)
	}
	return clientGone(err)
}

// findManifest finds a manifest by tag or digest.
func (r *Registry) findManifest(ctx context.Context, to Request) (m stored, found bool, err error) {
	statement, ref := findManifest, to.Digest.String()
	if to.Tag != "" {
		statement, ref = findTagged, to.Tag
	}
	var d string
	found, err = r.db.Row(ctx, statement, []any{to.Repository, ref}, &m.id, &m.repo, &d, &m.mediaType, &m.payload)
	if err != nil {
		return stored{}, false, fmt.Errorf("find manifest: %w", err)
	}
	m.digest = digest.Digest(d)
	return m, found, nil
}

// manifestUnknown reports whether the manifest or the repository is missing.
func (r *Registry) manifestUnknown(ctx context.Context, to Request) error {
	if _, err := r.existing(ctx, to.Repository); err != nil {
		return err
	}
	if to.Tag != "" {
		return errorf(ManifestUnknown, "the repository has no tag %s", to.Tag)
	}
	return errorf(ManifestUnknown, "the repository has no manifest %s", to.Digest)
}

// matches reports whether If-None-Match names a tag. Some registry clients send the
// digest without quotes.
func matches(headers []string, tag string) bool {
	for _, header := range headers {
		for candidate := range strings.SplitSeq(header, ",") {
			candidate = strings.TrimPrefix(strings.TrimSpace(candidate), "W/")
			if candidate == "*" || candidate == tag || candidate == strings.Trim(tag, `"`) {
				return true
			}
		}
	}
	return false
}
