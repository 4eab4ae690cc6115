package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/sqldb"
)

// Plan is what the collector would remove if all queued reviews, and those that
// follow from them, ran now and nothing else happened.
type Plan struct {
	Manifests []PlannedManifest `json:"manifests"`
	Tags      []PlannedTag      `json:"tags"` // made by cosign and removed with their image, or of deleted repositories
	Blobs     []PlannedBlob     `json:"blobs"`
	Uploads   int               `json:"uploads"` // abandoned ones
	Bytes     int64             `json:"bytes"`   // of blobs, of abandoned uploads, and in the unlink queue
	// After is the delay from the deletion of tags to the review of what they kept.
	After int64 `json:"afterSeconds,omitempty"`
}

// PlannedManifest is a manifest that would be removed.
type PlannedManifest struct {
	Repository string `json:"repository"` // its path; "@" and the uid if the repository was deleted
	Digest     string `json:"digest"`
}

// PlannedTag is a tag that would be removed.
type PlannedTag struct {
	Repository string `json:"repository"`
	Name       string `json:"name"`
}

// PlannedBlob is a blob that would be removed.
type PlannedBlob struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// The statements of a dry run. They read what the reviews read, one subject at a
// time, in a snapshot. The planner in Go knows what is already planned and
// treats it as gone.
const (
	planQueuedManifests = `
SELECT m.id FROM gc_manifest_review_queue q JOIN manifests m ON m.id = q.manifest_id
WHERE q.manifest = m.repository_id || '@' || m.digest ORDER BY m.id`
	// planRemoved finds the manifests of repositories that were deleted and
	// cannot be restored: they are removed even if something keeps them.
	planRemoved = `
SELECT m.id FROM repositories r JOIN manifests m ON m.repository_id = r.id
WHERE r.removed_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM archive a WHERE a.uid = substr(r.path, 2)) ORDER BY m.id`
	planManifest = `
SELECT r.path, m.repository_id, m.digest, coalesce(m.subject_digest, ''), coalesce(m.configuration_blob_id, 0), r.gc_hold OR ` + inUse + `
FROM manifests m JOIN repositories r ON r.id = m.repository_id WHERE m.id = $1`
	planTags      = `SELECT t.name FROM tags t WHERE t.manifest_id = $1`
	planParents   = `SELECT f.parent_id FROM manifest_references f WHERE f.child_id = $1`
	planChildren  = `SELECT f.child_id FROM manifest_references f WHERE f.parent_id = $1`
	planSubject   = `SELECT m.id FROM manifests m WHERE m.repository_id = $1 AND m.digest = $2`
	planReferrers = `SELECT m.id FROM manifests m WHERE m.repository_id = $1 AND m.subject_digest = $2`
	planSigned    = `SELECT t.manifest_id FROM tags t WHERE t.repository_id = $1 AND t.name = $2`
	planLayers    = `SELECT l.blob_id FROM layers l WHERE l.manifest_id = $1`

	planQueuedBlobs = `SELECT b.id FROM blobs b WHERE b.digest IN (SELECT q.digest FROM gc_blob_review_queue q)`
	planUsers       = `
SELECT g.manifest_id FROM gc_blobs_configurations g WHERE g.blob_id = $1
UNION ALL
SELECT l.manifest_id FROM gc_blobs_layers g JOIN layers l ON l.id = g.layer_id WHERE g.blob_id = $1`
	planBlob = `
SELECT b.digest, b.size, EXISTS (
    SELECT 1 FROM repository_blobs l JOIN repositories r ON r.id = l.repository_id
    WHERE l.blob_id = b.id AND r.gc_hold)
FROM blobs b WHERE b.id = $1`
	planUploads = `
SELECT count(*), CAST(coalesce(sum(size), 0) AS bigint) FROM blob_uploads
WHERE updated_at <= $1 AND (claim_token IS NULL OR claim_until <= $2)`
)

// DryRun returns the plan. It reads one snapshot and locks nothing.
func (c *Collector) DryRun(ctx context.Context) (Plan, error) {
	tx, err := c.db.Snapshot(ctx)
	if err != nil {
		return Plan{}, fmt.Errorf("dry run: %w", err)
	}
	defer tx.Close()
	plan, err := newPlanner(ctx, c, tx).run()
	if err != nil {
		return Plan{}, fmt.Errorf("dry run: %w", err)
	}
	return plan, nil
}

type taggedName struct {
	repository int64
	name       string
}

// planner builds a plan.
type planner struct {
	c    *Collector
	ctx  context.Context
	tx   *sqldb.Snapshot
	plan Plan

	gone       map[int64]bool      // planned manifests
	goneTags   map[taggedName]bool // planned tags, removed with their image
	candidates map[int64]bool      // blobs that may have become unused
}

func newPlanner(ctx context.Context, c *Collector, tx *sqldb.Snapshot) *planner {
	return &planner{
		c: c, ctx: ctx, tx: tx, gone: map[int64]bool{}, goneTags: map[taggedName]bool{}, candidates: map[int64]bool{},
		plan: Plan{Manifests: []PlannedManifest{}, Tags: []PlannedTag{}, Blobs: []PlannedBlob{}},
	}
}

// run plans from the queues, and from the given manifests as if they were queued.
func (p *planner) run(queued ...int64) (Plan, error) {
	err := p.planManifests(queued)
	if err == nil {
		err = p.planBlobs()
	}
	if err == nil {
		err = p.planBytes()
	}
	p.sort()
	return p.plan, err
}

// plannedManifest is what the decision needs to know of a manifest.
type plannedManifest struct {
	id, repository, config int64
	path, digest, subject  string
	onHold                 bool
}

// planManifests follows each planned manifest to those that it kept.
func (p *planner) planManifests(more []int64) error {
	if p.c.options.KeepManifests {
		return nil
	}
	todo, err := p.planRemoved()
	if err != nil {
		return err
	}
	queued, err := sqldb.Column[int64](p.ctx, p.tx, planQueuedManifests)
	todo = slices.Concat(todo, queued, more)
	for err == nil && len(todo) > 0 {
		m := plannedManifest{id: todo[0]}
		todo = todo[1:]
		var keep bool
		if keep, err = p.keeps(&m); err != nil || keep {
			continue
		}
		var next []int64
		next, err = p.remove(&m)
		todo = append(todo, next...)
	}
	return err
}

// planRemoved makes the decision of repositoryReviewer. It returns the manifests
// to check next.
func (p *planner) planRemoved() (next []int64, err error) {
	removed, err := sqldb.Column[int64](p.ctx, p.tx, planRemoved)
	if err != nil {
		return nil, err
	}
	for _, id := range removed {
		m := plannedManifest{id: id}
		if err := p.read(&m); err != nil {
			return nil, err
		}
		tags, err := sqldb.Column[string](p.ctx, p.tx, planTags, id)
		if err != nil {
			return nil, err
		}
		for _, tag := range tags {
			p.removeTag(&m, tag)
		}
		more, err := p.remove(&m)
		if err != nil {
			return nil, err
		}
		next = append(next, more...)
	}
	return next, nil
}

// read reads what the decision needs to know of a manifest.
func (p *planner) read(m *plannedManifest) error {
	_, err := sqldb.First(p.ctx, p.tx, []any{&m.path, &m.repository, &m.digest, &m.subject, &m.config, &m.onHold}, planManifest, m.id)
	return err
}

// keeps makes the decision of manifestReviewer.
func (p *planner) keeps(m *plannedManifest) (bool, error) {
	if p.gone[m.id] {
		return true, nil // already planned
	}
	if err := p.read(m); err != nil || m.onHold {
		return m.onHold, err
	}
	tags, err := sqldb.Column[string](p.ctx, p.tx, planTags, m.id)
	if err != nil {
		return false, err
	}
	for _, tag := range tags {
		if !p.goneTags[taggedName{m.repository, tag}] {
			return true, nil
		}
	}
	keepers, err := sqldb.Column[int64](p.ctx, p.tx, planParents, m.id)
	if err == nil && m.subject != "" {
		var subjects []int64
		subjects, err = sqldb.Column[int64](p.ctx, p.tx, planSubject, m.repository, m.subject)
		keepers = append(keepers, subjects...)
	}
	for _, keeper := range keepers {
		if !p.gone[keeper] {
			return true, err
		}
	}
	return false, err
}

// remove plans a manifest, and returns the manifests to check next.
func (p *planner) remove(m *plannedManifest) (next []int64, err error) {
	p.gone[m.id] = true
	p.plan.Manifests = append(p.plan.Manifests, PlannedManifest{m.path, m.digest})
	if m.config != 0 {
		p.candidates[m.config] = true
	}
	layers, err := sqldb.Column[int64](p.ctx, p.tx, planLayers, m.id)
	if err != nil {
		return nil, err
	}
	for _, blob := range layers {
		p.candidates[blob] = true
	}
	if next, err = sqldb.Column[int64](p.ctx, p.tx, planChildren, m.id); err != nil {
		return nil, err
	}
	referrers, err := sqldb.Column[int64](p.ctx, p.tx, planReferrers, m.repository, m.digest)
	if err != nil {
		return nil, err
	}
	signed, err := p.removeSignatures(m)
	return slices.Concat(next, referrers, signed), err
}

func (p *planner) removeSignatures(m *plannedManifest) (next []int64, err error) {
	if p.c.options.KeepSignatures {
		return nil, nil
	}
	for _, suffix := range statement.SignatureSuffixes() {
		name := strings.ReplaceAll(m.digest, ":", "-") + suffix
		signed, err := sqldb.Column[int64](p.ctx, p.tx, planSigned, m.repository, name)
		if err != nil {
			return nil, err
		}
		if len(signed) == 0 {
			continue
		}
		next = append(next, signed...)
		p.removeTag(m, name)
	}
	return next, nil
}

// removeTag plans a tag in the repository of a manifest.
func (p *planner) removeTag(m *plannedManifest, name string) {
	tag := taggedName{m.repository, name}
	if !p.goneTags[tag] {
		p.goneTags[tag] = true
		p.plan.Tags = append(p.plan.Tags, PlannedTag{m.path, name})
	}
}

// planBlobs makes the decision of blobReviewer.
func (p *planner) planBlobs() error {
	if p.c.options.KeepBlobs {
		return nil
	}
	queued, err := sqldb.Column[int64](p.ctx, p.tx, planQueuedBlobs)
	if err != nil {
		return err
	}
	for _, blob := range queued {
		p.candidates[blob] = true
	}
	for id := range p.candidates {
		used, err := p.used(id)
		if err != nil {
			return err
		}
		var b PlannedBlob
		var onHold bool
		if _, err := sqldb.First(p.ctx, p.tx, []any{&b.Digest, &b.Size, &onHold}, planBlob, id); err != nil {
			return err
		}
		if !used && !onHold {
			p.plan.Blobs = append(p.plan.Blobs, b)
			p.plan.Bytes += b.Size
		}
	}
	return nil
}

// used stops at the first user that stays: a blob can have very many users.
func (p *planner) used(blob int64) (used bool, err error) {
	err = sqldb.Each(p.ctx, p.tx, func(row sqldb.Row) error {
		var id int64
		if err := row.Scan(&id); err != nil || p.gone[id] {
			return err
		}
		used = true
		return sqldb.ErrEnough
	}, planUsers, blob)
	return used, err
}

// planBytes adds the bytes that belong to no blob.
func (p *planner) planBytes() error {
	now := p.c.options.Now()
	var uploads, queued int64
	idle := now.Add(-p.c.options.UploadExpiry).UnixMilli()
	_, err := sqldb.First(p.ctx, p.tx, []any{&p.plan.Uploads, &uploads}, planUploads, idle, now.UnixMilli())
	if err == nil {
		_, err = sqldb.First(p.ctx, p.tx, []any{&queued}, unlinkBytes)
	}
	p.plan.Bytes += uploads + queued
	return err
}

func (p *planner) sort() {
	slices.SortFunc(p.plan.Manifests, func(a, b PlannedManifest) int {
		return cmp.Or(cmp.Compare(a.Repository, b.Repository), cmp.Compare(a.Digest, b.Digest))
	})
	slices.SortFunc(p.plan.Tags, func(a, b PlannedTag) int {
		return cmp.Or(cmp.Compare(a.Repository, b.Repository), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(p.plan.Blobs, func(a, b PlannedBlob) int { return cmp.Compare(a.Digest, b.Digest) })
}

const planTag = `
SELECT r.id, t.manifest_id, coalesce(r.gc_delay, (SELECT value FROM gc_review_after_defaults WHERE event = 'tag_delete'))
FROM repositories r JOIN tags t ON t.repository_id = r.id WHERE r.path = $1 AND t.name = $2`

// mostPlanned bounds the tags of one plan.
const mostPlanned = 200

// DryRunTags returns what would go because tags are deleted: the difference between the
// plan without the tags and the plan with them. So content that they share with garbage
// counts, and content that goes anyway does not. Reviews begin after the delay of their deletion.
func (c *Collector) DryRunTags(ctx context.Context, repository string, tags ...string) (Plan, error) {
	plan, err := c.planWithout(ctx, repository, tags)
	var refused *registry.Error
	if err != nil && !errors.As(err, &refused) {
		err = fmt.Errorf("dry run of tags: %w", err)
	}
	return plan, err
}

func (c *Collector) planWithout(ctx context.Context, repository string, tags []string) (Plan, error) {
	tx, err := c.db.Snapshot(ctx)
	if err != nil {
		return Plan{}, err
	}
	defer tx.Close()
	p := newPlanner(ctx, c, tx)
	var manifests []int64
	var delay int64
	for _, tag := range tags {
		var id, manifest int64
		found, err := sqldb.First(ctx, tx, []any{&id, &manifest, &delay}, planTag, repository, tag)
		if err == nil && !found {
			return Plan{}, &registry.Error{Code: registry.ManifestUnknown, Message: fmt.Sprintf("repository %s has no tag %s", repository, tag)}
		}
		if err != nil {
			return Plan{}, err
		}
		p.goneTags[taggedName{id, tag}] = true
		manifests = append(manifests, manifest)
	}
	before, err := newPlanner(ctx, c, tx).run()
	if err != nil {
		return Plan{}, err
	}
	after, err := p.run(manifests...)
	return Plan{
		Manifests: without(after.Manifests, before.Manifests), Tags: without(after.Tags, before.Tags),
		Blobs: without(after.Blobs, before.Blobs), Bytes: after.Bytes - before.Bytes, After: int64(time.Duration(delay) * time.Millisecond / time.Second),
	}, err
}

// without returns the items of a that b does not have.
func without[T comparable](a, b []T) []T {
	has := make(map[T]bool, len(b))
	for _, item := range b {
		has[item] = true
	}
	out := []T{}
	for _, item := range a {
		if !has[item] {
			out = append(out, item)
		}
	}
	return out
}
