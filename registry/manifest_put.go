package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/sqldb"
)

// maxTags bounds the tags of one push.
const maxTags = 100

// manifestPut stores a manifest, byte for byte, and tags it.
func (r *Registry) manifestPut(w http.ResponseWriter, req *http.Request, to Request) error {
	payload, err := readManifest(req)
	if err != nil {
		return err
	}
	m, err := parseManifest(req.Header.Get("Content-Type"), payload)
	if err != nil {
		return err
	}
	p := push{r: r, to: to, manifest: m, payload: payload}
	if p.digest, p.tags, err = pushedAs(req, to, payload); err != nil {
		return err
	}
	if err := p.store(req.Context()); err != nil {
		return err
	}
	if m.subject != "" {
		w.Header().Set("OCI-Subject", m.subject.String())
	}
	if to.Tag == "" && len(p.tags) > 0 {
		w.Header().Set("OCI-Tag", strings.Join(p.tags, ", "))
	}
	for _, layer := range p.absent {
		warn(w, fmt.Sprintf("layer %s is not distributable and was not pushed: clients that pull it need another source for it", layer))
	}
	at := Request{Kind: ManifestGet, Repository: to.Repository, Tag: to.Tag, Digest: p.digest}
	created(w, at, p.digest)
	return nil
}

// readManifest reads the body, at most maxManifest bytes.
func readManifest(req *http.Request) ([]byte, error) {
	if req.ContentLength > maxManifest {
		return nil, errManifestSize()
	}
	payload, err := io.ReadAll(io.LimitReader(req.Body, maxManifest+1))
	if err != nil {
		return nil, errorf(SizeInvalid, "the body ended before the length that was announced")
	}
	if len(payload) > maxManifest {
		return nil, errManifestSize()
	}
	return payload, nil
}

func errManifestSize() error {
	return errorf(SizeInvalid, "the manifest is larger than %d bytes", maxManifest).as(http.StatusRequestEntityTooLarge)
}

// pushedAs returns the digest of the manifest and its tags, from the path or the
// query.
func pushedAs(req *http.Request, to Request, payload []byte) (digest.Digest, []string, error) {
	if to.Tag != "" {
		return digest.FromBytes(payload), []string{to.Tag}, nil
	}
	if got := to.Digest.Algorithm().FromBytes(payload); got != to.Digest {
		return "", nil, errorf(DigestInvalid, "the manifest has digest %s, not %s", got, to.Digest)
	}
	tags := req.URL.Query()["tag"]
	if len(tags) > maxTags {
		return "", nil, errorf(Unsupported, "%d tags in one push are more than %d", len(tags), maxTags).as(http.StatusRequestURITooLong)
	}
	for _, tag := range tags {
		if err := checkTag(tag); err != nil {
			return "", nil, err
		}
	}
	// Sorted, so that two pushes cannot deadlock.
	slices.Sort(tags)
	return to.Digest, slices.Compact(tags), nil
}

// warn adds a Warning, which clients show to people. The warnings together stay
// below the size that the specification allows.
func warn(w http.ResponseWriter, text string) {
	const most = 4096
	size := len(text) + len(`299 - ""`)
	for _, other := range w.Header().Values("Warning") {
		size += len(other)
	}
	if size <= most {
		w.Header().Add("Warning", `299 - "`+text+`"`)
	}
}

// push is a manifest on its way into a repository.
type push struct {
	r        *Registry
	to       Request
	manifest *manifest
	payload  []byte
	digest   digest.Digest
	tags     []string
	absent   []digest.Digest // optional layers that are not in the repository; set by store

	lacks     []lack            // of a manifest that is fetched; set by layers
	leaveTags bool              // tags that point at another manifest stay
	left      map[string]string // those, and what they point at; set by store

	repo  repository
	types map[string]int64 // ids of media types
}

// store writes the manifest and all its rows in one transaction. The transaction
// first finds and locks the repository and the content that the manifest refers
// to.
//
// A missing repository is created only for a manifest that requires no content:
// a new repository is empty.
func (p *push) store(ctx context.Context) error {
	if err := p.findTypes(ctx); err != nil {
		return err
	}
	needsNothing := func() error {
		_, _, err := p.layers(nil, nil)
		return err
	}
	repo, err := p.r.pushTo(ctx, p.to, needsNothing, func(tx *sqldb.Tx, repo repository) error {
		p.repo, p.absent = repo, nil
		return p.storeIn(ctx, tx)
	})
	if err != nil {
		return wrapInternal("store manifest", err)
	}
	p.r.touched(repo.id)
	return nil
}

func (p *push) storeIn(ctx context.Context, tx *sqldb.Tx) error {
	blobs, err := p.shareBlobs(ctx, tx)
	if err != nil {
		return err
	}
	children, err := p.shareManifests(ctx, tx)
	if err != nil {
		return err
	}
	layers, size, err := p.layers(blobs, children)
	if err != nil {
		return err
	}
	has := rows{layers: layers, children: children, size: size}
	if config := p.manifest.config; config != nil {
		has.config = blobs[config.Digest.String()].id
	}
	return p.insert(ctx, tx, has)
}

// findTypes finds the ids of all media types, before the transaction.
func (p *push) findTypes(ctx context.Context) error {
	m := p.manifest
	names := []string{m.mediaType}
	if m.config != nil {
		names = append(names, m.config.MediaType)
	}
	for _, d := range append(slices.Clone(m.layers), m.children...) {
		names = append(names, d.MediaType)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if n := len(names); n > maxMediaTypes {
		return errorf(ManifestInvalid, "the manifest names %d media types, more than %d", n, maxMediaTypes)
	}
	var err error
	p.types, err = p.r.types.find(ctx, p.r.writer, names)
	return err
}

// sharedBlob is a blob that is locked until the transaction ends.
type sharedBlob struct{ id, size int64 }

// shareBlobs finds and locks the manifest's blobs in the repository. A list may
// name blobs as well.
func (p *push) shareBlobs(ctx context.Context, tx *sqldb.Tx) (map[string]sharedBlob, error) {
	statement := shareBlobsSQLite
	if p.r.db.Engine() == sqldb.Postgres {
		statement = shareBlobsPostgres
	}
	found := map[string]sharedBlob{}
	err := p.share(ctx, tx, statement, append(p.manifest.blobDigests(), p.manifest.childDigests()...), func(row sqldb.Row) error {
		var d string
		var b sharedBlob
		err := row.Scan(&d, &b.id, &b.size)
		found[d] = b
		return err
	})
	return found, err
}

// shareManifests finds and locks the list's manifests in the repository.
func (p *push) shareManifests(ctx context.Context, tx *sqldb.Tx) (map[string]int64, error) {
	share := statement.ShareManifestsSQLite
	if p.r.db.Engine() == sqldb.Postgres {
		share = statement.ShareManifestsPostgres
	}
	found := map[string]int64{}
	err := p.share(ctx, tx, share, p.manifest.childDigests(), func(row sqldb.Row) error {
		var d string
		var id int64
		err := row.Scan(&d, &id)
		found[d] = id
		return err
	})
	return found, err
}

func (p *push) share(ctx context.Context, tx *sqldb.Tx, statement string, digests []string, found func(sqldb.Row) error) error {
	if len(digests) == 0 {
		return nil
	}
	return sqldb.Each(ctx, tx, found, statement, p.repo.id, sqldb.JSON(digests))
}

// layer is a row of layers, in the order of insertLayers: blob, media type,
// size.
type layer [3]int64

// layers returns the blobs of the manifest other than its config, and the size
// of all. A missing blob or manifest is an error unless it is optional.
func (p *push) layers(blobs map[string]sharedBlob, children map[string]int64) (list []layer, size int64, err error) {
	var missing []any
	p.lacks = nil
	lacks := func(d *v1.Descriptor, mediaType int64) {
		p.lacks = append(p.lacks, lack{d.Digest.String(), mediaType, d.Size})
	}
	hold := func(d *v1.Descriptor, needed bool) {
		b, ok := blobs[d.Digest.String()]
		switch {
		case ok:
			list = append(list, layer{b.id, p.types[d.MediaType], b.size})
			size += b.size
		case needed && p.to.fetched && list != nil:
			lacks(d, p.types[d.MediaType])
			size += d.Size
		case needed:
			missing = append(missing, map[string]digest.Digest{"digest": d.Digest})
		default:
			p.absent = append(p.absent, d.Digest)
		}
	}
	m := p.manifest
	if m.config != nil {
		hold(m.config, true)
	}
	list = []layer{} // the config has its own column
	for i := range m.layers {
		hold(&m.layers[i], !optional(&m.layers[i]))
	}
	for i := range m.children {
		if _, ok := children[m.children[i].Digest.String()]; !ok {
			if _, blob := blobs[m.children[i].Digest.String()]; p.to.fetched && !blob {
				lacks(&m.children[i], 0)
				continue
			}
			hold(&m.children[i], true)
		}
	}
	if len(missing) > 0 {
		e := errorf(ManifestBlobUnknown, "the manifest refers to content that the repository does not have")
		e.Details = missing
		return nil, 0, e
	}
	return list, size, nil
}

// rows are the ids that the rows of a manifest refer to.
type rows struct {
	config   int64 // its blob; 0 means none
	layers   []layer
	children map[string]int64 // ids by digest
	size     int64
}

// insert writes the rows. Existing rows stay: the same manifest may be pushed
// again, with another tag.
func (p *push) insert(ctx context.Context, tx *sqldb.Tx, has rows) error {
	m, now := p.manifest, p.r.now().UnixMilli()
	var configType, config any
	if m.config != nil {
		configType, config = p.types[m.config.MediaType], has.config
	}
	var id int64
	var b sqldb.Batch
	insertLayers, insertReferences := insertLayersSQLite, insertReferencesSQLite
	if p.r.db.Engine() == sqldb.Postgres {
		insertLayers, insertReferences = insertLayersPostgres, insertReferencesPostgres
		if len(p.tags) > 0 {
			b.Exec(orderTags, p.repo.id, p.tags, p.digest.String())
		}
	}
	elsewhere := map[string]string{}
	for _, tag := range p.tags { // orderTags keeps the answer true until the end
		b.Query(func(row sqldb.Row) error {
			var at string
			err := row.Scan(&at)
			elsewhere[tag] = at
			return err
		}, tagElsewhere, p.repo.id, tag, p.digest.String())
	}
	b.Query(func(row sqldb.Row) error { return row.Scan(&id) }, statement.InsertManifest,
		p.repo.namespace, p.repo.id, p.digest.String(), p.types[m.mediaType], null(m.artifactType), null(m.subject.String()),
		configType, config, has.size, p.payload, now)
	pushed, tags := false, p.tags
	if p.to.fetched {
		b.Found(&pushed, tagPushed, p.repo.id, p.to.Tag)
	}
	if err := tx.Send(ctx, &b); err != nil {
		return err
	}
	if pushed { // it was pushed during the fetch, and stays
		tags, elsewhere = nil, nil
	}
	if id == 0 {
		return errors.New("no row was returned")
	}
	p.left = nil
	if p.leaveTags {
		p.left = elsewhere
	} else if err := checkTags(ctx, tx, p.to.Repository, elsewhere); err != nil {
		return err
	}
	if at, taken := p.left[p.to.Tag]; taken {
		return errTagTaken(p.to, at, p.digest)
	}
	b = sqldb.Batch{}
	if len(has.layers) > 0 {
		b.Exec(insertLayers, p.repo.namespace, p.repo.id, id, sqldb.JSON(has.layers))
	}
	if len(has.children) > 0 {
		b.Exec(insertReferences, p.repo.namespace, p.repo.id, id, sqldb.JSON(slices.Collect(maps.Values(has.children))))
	}
	for _, tag := range tags {
		if _, left := p.left[tag]; left {
			continue
		}
		b.Exec(statement.PutTag, p.repo.namespace, p.repo.id, tag, id, now)
	}
	if p.to.fetched {
		p.fetchedRows(&b, id, now, tags)
	}
	return tx.SendLast(ctx, &b)
}

// null returns NULL for an empty string.
func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}
