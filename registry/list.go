package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/exeunt/exeunt/sqldb"
)

// The longest lists in one answer.
const (
	mostTags         = 10_000
	mostRepositories = 1_000
)

// tagList lists a repository's tags, in the order of their bytes.
func (r *Registry) tagList(w http.ResponseWriter, req *http.Request, to Request) error {
	query := req.URL.Query()
	p, err := parsePage(query, mostTags)
	if err != nil {
		return err
	}
	repo, err := r.existing(req.Context(), to.Repository)
	if err != nil {
		return err
	}
	if query.Get("details") == "true" {
		return r.tagDetails(w, req, to, repo, p)
	}
	names, more, err := r.names(req.Context(), p, listTags, repo.id, p.last, p.size+1)
	if err != nil {
		return fmt.Errorf("list tags: %w", err)
	}
	if more {
		link(w, to, query, names[len(names)-1], p.size)
	}
	// Names and tags have no characters that JSON escapes.
	body := append(make([]byte, 0, 64+32*len(names)), `{"name":"`+to.Repository+`","tags":[`...)
	return writeNames(w, body, names)
}

// tagDetail is a tag with what people choose tags by.
type tagDetail struct {
	Name      string     `json:"name"`
	Digest    string     `json:"digest"`
	MediaType string     `json:"mediaType"`
	Size      int64      `json:"size"`      // of configuration and layers, of all its manifests
	Manifests int        `json:"manifests"` // that it holds; 0: it is no list
	PushedAt  time.Time  `json:"pushedAt"`
	PulledAt  *time.Time `json:"pulledAt,omitempty"` // to the hour; nil: not since this is recorded
}

// tagDetails is tagList with a tagDetail for each tag, which other registries do not have.
func (r *Registry) tagDetails(w http.ResponseWriter, req *http.Request, to Request, repo repository, p page) error {
	all := struct {
		Name    string      `json:"name"`
		Tags    []string    `json:"tags"`
		Details []tagDetail `json:"details"`
	}{to.Repository, []string{}, []tagDetail{}}
	err := sqldb.Each(req.Context(), r.db, func(row sqldb.Row) error {
		var d tagDetail
		var pushed, pulled int64
		if err := row.Scan(&d.Name, &d.Digest, &d.MediaType, &d.Size, &d.Manifests, &pushed, &pulled); err != nil {
			return err
		}
		if len(all.Tags) == p.size {
			if p.size > 0 {
				link(w, to, req.URL.Query(), all.Tags[p.size-1], p.size)
			}
			return sqldb.ErrEnough
		}
		d.PushedAt = time.UnixMilli(pushed).UTC()
		if pulled > 0 {
			at := time.UnixMilli(pulled).UTC()
			d.PulledAt = &at
		}
		all.Tags, all.Details = append(all.Tags, d.Name), append(all.Details, d)
		return nil
	}, listTagDetails, repo.id, p.last, p.size+1)
	if err != nil {
		return fmt.Errorf("list tags: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	return clientGone(json.NewEncoder(w).Encode(all))
}

// catalog lists the repositories that have content and that the client may see.
func (r *Registry) catalog(w http.ResponseWriter, req *http.Request, to Request) error {
	query := req.URL.Query()
	p, err := parsePage(query, mostRepositories)
	if err != nil {
		return err
	}
	names, more, err := r.visible(req.Context(), to.client, p)
	if err != nil {
		return fmt.Errorf("list repositories: %w", err)
	}
	if more {
		link(w, to, query, names[len(names)-1], p.size)
	}
	return writeNames(w, []byte(`{"repositories":[`), names)
}

// visible reads pages until one of p's size is full of what the client may see.
func (r *Registry) visible(ctx context.Context, client Client, p page) (names []string, more bool, err error) {
	step := page{size: mostRepositories, last: p.last}
	for p.size > 0 {
		found, rest, err := r.names(ctx, step, listRepositories, step.last, step.size+1)
		if err != nil {
			return nil, false, err
		}
		for _, name := range found {
			switch {
			case !client.Sees(name):
			case len(names) == p.size:
				return names, true, nil
			default:
				names = append(names, name)
			}
		}
		if !rest {
			break
		}
		step.last = found[len(found)-1]
	}
	return names, false, nil
}

// names reads one entry more than the page holds, to know whether the list
// continues. All names come as one value, separated by commas, which no name
// contains: fetching rows would take longer than everything else.
func (r *Registry) names(ctx context.Context, p page, statement string, args ...any) (names []string, more bool, err error) {
	if p.size == 0 {
		return nil, false, nil
	}
	var joined string
	if _, err := r.db.Row(ctx, statement, args, &joined); err != nil || joined == "" {
		return nil, false, err
	}
	names = strings.Split(joined, ",")
	if len(names) > p.size {
		return names[:p.size], true, nil
	}
	return names, false, nil
}

func writeNames(w http.ResponseWriter, body []byte, names []string) error {
	for i, name := range names {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, '"')
		body = append(body, name...)
		body = append(body, '"')
	}
	body = append(body, "]}\n"...)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, err := w.Write(body)
	return clientGone(err)
}

// page is the requested part of a list.
type page struct {
	size int    // maximum number of entries
	last string // the page begins after this entry
}

// parsePage reads n and last. The page has at most most entries, whatever n
// says; the answer's Link leads to the rest.
func parsePage(query url.Values, most int) (page, error) {
	p := page{size: most, last: query.Get("last")}
	if p.last != "" && !visible(p.last) {
		return page{}, errorf(Unsupported, "last is %q, which is not a valid name", p.last)
	}
	if query.Has("n") {
		n, err := strconv.Atoi(query.Get("n"))
		if err != nil || n < 0 {
			return page{}, errorf(Unsupported, "n is %q, not a number of entries", query.Get("n"))
		}
		p.size = min(n, most)
	}
	return p, nil
}

// link adds the URL of the next page.
func link(w http.ResponseWriter, at Request, query url.Values, last string, size int) {
	next := url.Values{"n": {strconv.Itoa(size)}, "last": {last}}
	for _, name := range []string{"artifactType", "details"} {
		if value := query.Get(name); value != "" {
			next.Set(name, value)
		}
	}
	w.Header().Set("Link", "<"+at.Path()+"?"+next.Encode()+`>; rel="next"`)
}

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
	size := 0
	err = sqldb.Each(ctx, r.db, func(row sqldb.Row) (err error) {
		var d v1.Descriptor
		var payload []byte
		if err := row.Scan(&d.Digest, &d.MediaType, &d.ArtifactType, &payload); err != nil {
			return err
		}
		if d.Annotations, err = annotations(payload); err != nil {
			return fmt.Errorf("manifest %s: %w", d.Digest, err)
		}
		d.Size = int64(len(payload))
		before := size
		for key, value := range d.Annotations {
			size += len(key) + len(value) + 8
		}
		size += len(d.Digest) + len(d.MediaType) + len(d.ArtifactType) + 80
		if len(list) == p.size || before > 0 && size > maxReferrersBytes {
			more = true
			return sqldb.ErrEnough
		}
		list = append(list, d)
		return nil
	}, listReferrers, repo.id, subject.String(), p.last, filter, p.size+1)
	return list, more, err
}

// annotations reads the annotations of a stored manifest.
func annotations(payload []byte) (map[string]string, error) {
	var doc struct {
		Annotations map[string]string `json:"annotations"`
	}
	err := json.Unmarshal(payload, &doc)
	return doc.Annotations, err
}
