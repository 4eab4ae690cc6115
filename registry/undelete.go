package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
)

// What a client deleted, or switched, can be brought back until its review has
// come: the manifest is still there, or, if it was deleted itself, its blobs
// are. To bring it back is to push it again, from here: whatever is true of a
// push and a review that meet is true of this. See
// docs/spec/registry-tracking.md.

// mostDeleted bounds a list of what can be brought back.
const mostDeleted = 1000

// Deleted is something that can be brought back.
type Deleted struct {
	Repository string `json:"repository"`
	Tag        string `json:"tag,omitempty"` // empty: a manifest that had none
	Digest     string `json:"digest"`
	// Event is what became of it: tag_delete, tag_switch or manifest_delete.
	Event     string    `json:"event"`
	DeletedAt time.Time `json:"deletedAt"`
	// Until is when its manifest is reviewed, if that is known.
	Until *time.Time `json:"until,omitempty"`
}

// Deleted lists what can be brought back of a repository, or of all, the newest
// first. Of a tag that pointed at one manifest several times, the last counts.
func (r *Registry) Deleted(ctx context.Context, repository string) ([]Deleted, error) {
	return r.deleted(ctx, repository, "", "")
}

// deleted is Deleted of a tag, or of a manifest, if one is named.
func (r *Registry) deleted(ctx context.Context, repository, tag string, want digest.Digest) ([]Deleted, error) {
	rows, err := r.db.Query(ctx, listDeleted, repository, tag, want.String(), mostDeleted)
	if err != nil {
		return nil, fmt.Errorf("list what was deleted: %w", err)
	}
	defer func() { _ = rows.Close() }()
	list := []Deleted{}
	seen := map[Deleted]bool{}
	for rows.Next() {
		var d Deleted
		var at, until int64
		if err := rows.Scan(&d.Repository, &d.Tag, &d.Digest, &d.Event, &at, &until); err != nil {
			return nil, fmt.Errorf("list what was deleted: %w", err)
		}
		key := Deleted{Repository: d.Repository, Tag: d.Tag, Digest: d.Digest}
		if seen[key] {
			continue
		}
		seen[key] = true
		d.DeletedAt = time.UnixMilli(at).UTC()
		if until > 0 {
			time := time.UnixMilli(until).UTC()
			d.Until = &time
		}
		list = append(list, d)
	}
	return list, wrap("list what was deleted", rows.Err())
}

// Undelete brings a tag back, as it was before it was last deleted or switched,
// or before it pointed elsewhere than at a digest; or, without a tag, a manifest
// with the tags that it lost and nobody else has. The tags that cosign made for
// the manifest come with it. It returns what it brought back. An *Error is for
// the caller.
func (r *Registry) Undelete(ctx context.Context, repository, tag string, want digest.Digest) ([]Deleted, error) {
	repo, err := r.existing(ctx, repository)
	if err != nil {
		return nil, err
	}
	chosen, err := r.deleted(ctx, repository, tag, want)
	if err != nil {
		return nil, err
	}
	if len(chosen) == 0 {
		return nil, errorf(ManifestUnknown, "nothing like that was deleted from %s, or it has been collected; see: exeunt registry undelete --list %s", repository, repository)
	}
	if tag != "" {
		chosen = chosen[:1] // the newest
	} else if chosen, err = r.unclaimed(ctx, chosen); err != nil {
		return nil, err
	}
	if err := r.repush(ctx, chosen); err != nil {
		return nil, err
	}
	signatures, err := r.undeleteSignatures(ctx, chosen[0])
	if err := r.refresh(ctx, repo.id); err != nil { // the content is back; the figures follow
		r.log.Warn("undelete", "error", err)
	}
	return append(chosen, signatures...), err
}

// undeleteSignatures brings back the tags that cosign made for a manifest, and
// that went with it.
func (r *Registry) undeleteSignatures(ctx context.Context, of Deleted) (back []Deleted, err error) {
	for _, suffix := range signatureSuffixes {
		name := strings.ReplaceAll(of.Digest, ":", "-") + suffix
		deleted, err := r.deleted(ctx, of.Repository, name, "")
		if err == nil && len(deleted) > 0 {
			back = append(back, deleted[0])
			err = r.repush(ctx, deleted[:1])
		}
		if err != nil {
			return nil, fmt.Errorf("bring back %s: %w", name, err)
		}
	}
	return back, nil
}

// unclaimed leaves out the tags that others have by now. One entry stays, for
// the manifest.
func (r *Registry) unclaimed(ctx context.Context, chosen []Deleted) ([]Deleted, error) {
	var free []Deleted
	for _, d := range chosen {
		taken := false
		if d.Tag != "" {
			var err error
			if _, taken, err = r.findManifest(ctx, Request{Repository: d.Repository, Tag: d.Tag}); err != nil {
				return nil, err
			}
		}
		if !taken {
			free = append(free, d)
		}
	}
	if len(free) > 0 {
		return free, nil
	}
	only := chosen[0]
	only.Tag = ""
	return []Deleted{only}, nil
}

// repush pushes a manifest again, with the tags of entries that are about it.
func (r *Registry) repush(ctx context.Context, chosen []Deleted) error {
	first := chosen[0]
	p := push{r: r, name: first.Repository, digest: digest.Digest(first.Digest)}
	for _, d := range chosen {
		if d.Tag != "" {
			p.tags = append(p.tags, d.Tag)
		}
	}
	slices.Sort(p.tags)
	p.tags = slices.Compact(p.tags)
	var mediaType string
	found, err := r.db.Row(ctx, findDeletedManifest, []any{first.Repository, first.Digest}, &mediaType, &p.payload)
	if err != nil {
		return fmt.Errorf("find manifest %s: %w", first.Digest, err)
	}
	if !found {
		return errCollected(first.Digest)
	}
	if p.manifest, err = parseManifest(mediaType, p.payload); err != nil {
		return fmt.Errorf("read manifest %s: %w", first.Digest, err)
	}
	err = p.store(ctx)
	var refused *Error
	if errors.As(err, &refused) && refused.Code == ManifestBlobUnknown {
		return errCollected(first.Digest)
	}
	return err
}

func errCollected(digest string) error {
	return errorf(ManifestUnknown, "manifest %s, or what it refers to, has been collected", digest)
}

// ForgetDeleted forgets what was deleted so long ago that its review has come,
// and returns how many rows that were. Reviews do not do that themselves: they
// may find a manifest in use, and then have nothing to write.
func (c *Collector) ForgetDeleted(ctx context.Context) (forgotten int, err error) {
	var window int64
	if _, err := c.db.Row(ctx, undeleteWindow, nil, &window); err != nil {
		return 0, fmt.Errorf("forget what was deleted: %w", err)
	}
	before := c.options.Now().UnixMilli() - window
	for _, statement := range []string{forgetTags, forgetManifests} {
		for {
			n, err := c.removeSome(ctx, statement, before, gcBatch)
			forgotten += n
			if err != nil {
				return forgotten, fmt.Errorf("forget what was deleted: %w", err)
			}
			if n < gcBatch {
				break
			}
		}
	}
	return forgotten, nil
}
