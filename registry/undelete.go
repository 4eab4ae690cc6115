package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/sqldb"
)

// Undelete restores what a client deleted or overwrote, until its review: the
// manifest still exists, or, if it was deleted itself, its blobs do. Undelete
// pushes it again, so the argument about a concurrent push and review applies.
// See docs/spec/registry-tracking.md.

// maxDeleted bounds a list of what can be restored.
const maxDeleted = 1000

// Deleted is a tag or manifest that can be restored.
type Deleted struct {
	Repository string `json:"repository"`
	Tag        string `json:"tag,omitempty"` // empty means that the manifest had no tag
	Digest     string `json:"digest"`
	// Event is how it was removed: tag_delete, tag_switch or manifest_delete.
	Event     string    `json:"event"`
	DeletedAt time.Time `json:"deletedAt"`
	// Until is when its manifest is reviewed, if that is known.
	Until *time.Time `json:"until,omitempty"`
}

// Deleted lists what can be restored of a repository, or of all, newest first.
// If a tag pointed at one manifest several times, only the last time is listed.
// An *Error is for the client.
func (r *Registry) Deleted(ctx context.Context, repository string) ([]Deleted, error) {
	if repository != "" {
		if err := checkName(repository); err != nil {
			return nil, err
		}
		if _, err := r.existing(ctx, repository); err != nil {
			return nil, err
		}
	}
	return r.deleted(ctx, repository, "", "")
}

// deleted is Deleted, limited to a tag or a manifest if given.
func (r *Registry) deleted(ctx context.Context, repository, tag string, want digest.Digest) ([]Deleted, error) {
	list := []Deleted{}
	seen := map[Deleted]bool{}
	if err := sqldb.Each(ctx, r.db, func(row sqldb.Row) error {
		var d Deleted
		var at, until int64
		err := row.Scan(&d.Repository, &d.Tag, &d.Digest, &d.Event, &at, &until)
		key := Deleted{Repository: d.Repository, Tag: d.Tag, Digest: d.Digest}
		if err != nil || seen[key] {
			return err
		}
		seen[key] = true
		d.DeletedAt = time.UnixMilli(at).UTC()
		if until > 0 {
			time := time.UnixMilli(until).UTC()
			d.Until = &time
		}
		list = append(list, d)
		return nil
	}, listDeleted, repository, tag, want.String(), maxDeleted); err != nil {
		return nil, fmt.Errorf("list what was deleted: %w", err)
	}
	return list, nil
}

// Undelete restores a tag as it was before it was last deleted or switched; with
// a digest, as it was when it last pointed at that. It moves a tag that points at
// another manifest now only if moving is set. Without a tag it restores a manifest
// and those of its former tags that are not in use again. The tags that cosign made
// for the manifest are restored too, if they are not in use. It returns what it
// restored. An *Error is for the client.
func (r *Registry) Undelete(ctx context.Context, repository, tag, digest string, moving bool) ([]Deleted, error) {
	want, err := checkUndelete(repository, tag, digest)
	if err != nil {
		return nil, err
	}
	repo, err := r.existing(ctx, repository)
	if err != nil {
		return nil, err
	}
	chosen, err := r.deleted(ctx, repository, tag, want)
	if err != nil {
		return nil, err
	}
	if len(chosen) == 0 {
		return nil, errorf(ManifestUnknown, "no such tag or manifest was deleted from %s, or it has been collected; see: exeunt registry undelete --list %s", repository, repository)
	}
	if tag != "" {
		chosen = chosen[:1] // the newest
	}
	chosen, err = r.repush(ctx, Request{Repository: repository, Tag: tag}, chosen, moving && tag != "")
	if err != nil {
		return nil, err
	}
	signatures, err := r.undeleteSignatures(ctx, chosen[0])
	if err := r.refresh(ctx, repo.id); err != nil { // the content is restored; the status follows later
		r.log.Warn("undelete", "error", err)
	}
	return append(chosen, signatures...), err
}

// checkUndelete checks the names of a request. Tag and digest may be empty, but not
// both.
func checkUndelete(repository, tag, text string) (want digest.Digest, err error) {
	if err := checkName(repository); err != nil {
		return "", err
	}
	if text != "" {
		if want, err = parseDigest(text); err != nil {
			return "", err
		}
	}
	if tag != "" {
		return want, checkTag(tag)
	}
	if want == "" {
		return "", errorf(Unsupported, "name a tag or a digest").as(http.StatusBadRequest)
	}
	return want, nil
}

// undeleteSignatures restores the tags that cosign made for a manifest, and that
// were removed with it.
func (r *Registry) undeleteSignatures(ctx context.Context, of Deleted) (back []Deleted, err error) {
	for _, suffix := range statement.SignatureSuffixes() {
		name := strings.ReplaceAll(of.Digest, ":", "-") + suffix
		deleted, err := r.deleted(ctx, of.Repository, name, "")
		if err == nil && len(deleted) > 0 {
			var signature []Deleted
			signature, err = r.repush(ctx, Request{Repository: of.Repository, Tag: name}, deleted[:1], false)
			back = append(back, signature...)
		}
		var refused *Error
		switch {
		case errors.As(err, &refused) && refused.Status() == http.StatusConflict: // the image was signed again
		case err != nil:
			return nil, fmt.Errorf("bring back %s: %w", name, err)
		}
	}
	return back, nil
}

// repush pushes a manifest again, with the tags of its entries that are free, or with
// all if they may move. It refuses if to has a tag that is not free. It returns what it
// restored.
func (r *Registry) repush(ctx context.Context, to Request, chosen []Deleted, moving bool) (back []Deleted, err error) {
	first := chosen[0]
	p := push{r: r, to: to, digest: digest.Digest(first.Digest), leaveTags: !moving}
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
		return nil, fmt.Errorf("find manifest %s: %w", first.Digest, err)
	}
	if !found {
		return nil, errCollected(first.Digest)
	}
	if p.manifest, err = parseManifest(mediaType, p.payload); err != nil {
		return nil, fmt.Errorf("read manifest %s: %w", first.Digest, err)
	}
	err = p.store(ctx)
	var refused *Error
	if errors.As(err, &refused) && refused.Code == ManifestBlobUnknown {
		return nil, errCollected(first.Digest)
	}
	if err != nil {
		return nil, err
	}
	for _, d := range chosen {
		if _, left := p.left[d.Tag]; !left {
			back = append(back, d)
		}
	}
	if len(back) == 0 { // the manifest, without its tags
		first.Tag = ""
		back = []Deleted{first}
	}
	return back, nil
}

func errTagTaken(to Request, now string, want digest.Digest) *Error {
	return errorf(Denied, "tag %s of %s points at %s now, and was left there; to move it to %s: exeunt registry undelete --move-tag %s:%s@%s",
		to.Tag, to.Repository, now, want, to.Repository, to.Tag, want).as(http.StatusConflict)
}

func errCollected(digest string) error {
	return errorf(ManifestUnknown, "manifest %s, or what it refers to, has been collected", digest)
}
