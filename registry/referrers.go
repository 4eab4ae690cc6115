package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	// maxReferrers and maxReferrersBytes bound one answer: clients refuse an
	// index larger than a manifest may be. Most of its bytes are annotations.
	maxReferrers      = 1_000
	maxReferrersBytes = 3 << 20
)

// referrers lists the manifests whose subject is a digest. The subject need not
// exist. Every pushed manifest is found by its subject. So the answer includes
// the manifests that a client also listed under the fallback tag, as the
// specification requires.
//
// A missing repository has no referrers either: for clients a 404 means that the
// registry has no referrers API.
func (r *Registry) referrers(w http.ResponseWriter, req *http.Request, to Request) error {
	query := req.URL.Query()
	p, err := parsePage(query, maxReferrers)
	if err != nil {
		return err
	}
	filter := query.Get("artifactType")
	index := v1.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{},
	}
	repo, found, err := r.repository(req.Context(), to.Repository)
	if err != nil {
		return err
	}
	if filter != "" && !checkMediaType(filter) {
		found = false // no manifest has an invalid type
	}
	if found && p.size > 0 {
		more := false
		if index.Manifests, more, err = r.listReferrers(req.Context(), repo, to.Digest, filter, p); err != nil {
			return fmt.Errorf("list referrers: %w", err)
		}
		if more {
			link(w, to, query, index.Manifests[len(index.Manifests)-1].Digest.String(), p.size)
		}
	}
	body, err := json.Marshal(index)
	if err != nil {
		return fmt.Errorf("list referrers: %w", err)
	}
	if filter != "" {
		w.Header().Set("OCI-Filters-Applied", "artifactType")
	}
	w.Header().Set("Content-Type", v1.MediaTypeImageIndex)
	_, err = w.Write(body)
	return clientGone(err)
}

// listReferrers reads a page, in digest order, and one manifest more, to know
// whether the list continues.
func (r *Registry) listReferrers(ctx context.Context, repo repository, subject digest.Digest, filter string, p page) (list []v1.Descriptor, more bool, err error) {
	list = []v1.Descriptor{}
	rows, err := r.db.Query(ctx, listReferrers, repo.id, subject.String(), p.last, filter, p.size+1)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = rows.Close() }()
	size := 0
	for rows.Next() {
		var d v1.Descriptor
		var payload []byte
		if err := rows.Scan(&d.Digest, &d.MediaType, &d.ArtifactType, &payload); err != nil {
			return nil, false, err
		}
		if d.Annotations, err = annotations(payload); err != nil {
			return nil, false, fmt.Errorf("manifest %s: %w", d.Digest, err)
		}
		d.Size = int64(len(payload))
		before := size
		for key, value := range d.Annotations {
			size += len(key) + len(value) + 8
		}
		size += len(d.Digest) + len(d.MediaType) + len(d.ArtifactType) + 80
		if len(list) == p.size || before > 0 && size > maxReferrersBytes {
			return list, true, nil
		}
		list = append(list, d)
	}
	return list, false, rows.Err()
}

// annotations reads the annotations of a stored manifest.
func annotations(payload []byte) (map[string]string, error) {
	var doc struct {
		Annotations map[string]string `json:"annotations"`
	}
	err := json.Unmarshal(payload, &doc)
	return doc.Annotations, err
}
