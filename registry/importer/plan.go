package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/exeunt/exeunt/internal/pattern"
)

// Plan is what has to be sent of one repository.
type Plan struct {
	// Levels are the manifests, in order: the manifests of a list are in an
	// earlier level than the list. Within a level the order is free.
	Levels [][]Manifest
	// Unused is the number of blobs that no manifest uses. A registry would
	// collect them as garbage, so they are not imported.
	Unused   int
	Problems []Problem
}

// Manifest is a manifest or list to send.
type Manifest struct {
	Digest    digest.Digest
	MediaType string // empty means unknown
	Blobs     []digest.Digest
	Children  []digest.Digest
	Tags      []string

	content digest.Digest // the digest under which its bytes are stored
}

func (p *Plan) manifests() (n int) {
	for _, level := range p.Levels {
		n += len(level)
	}
	return n
}

// Plan reads a repository. Unreadable items become Problems, and the rest is
// planned.
func (t *Tree) Plan(repo string) Plan {
	r := reader{tree: t, repo: repo, at: "repositories/" + repo, manifests: map[digest.Digest]*Manifest{}}
	r.readManifests()
	r.readTags()
	return Plan{Levels: levels(r.manifests), Unused: r.unused(), Problems: r.problems}
}

// reader reads one repository.
type reader struct {
	tree      *Tree
	repo, at  string
	manifests map[digest.Digest]*Manifest
	problems  []Problem
}

func (r *reader) problem(item string, err error) {
	r.problems = append(r.problems, Problem{r.repo + item, err})
}

func (r *reader) readManifests() {
	revisions, err := r.tree.digests(r.at + "/_manifests/revisions")
	if err != nil {
		r.problem("", err)
	}
	for _, d := range revisions {
		m, err := r.readManifest(d)
		if err != nil {
			r.problem("@"+d.String(), err)
		}
		if m != nil {
			r.manifests[d] = m
		}
	}
}

// readManifest reads a manifest; nil if it was deleted. It verifies the digest,
// because the order depends on it: a manifest that matches its digest cannot
// contain itself.
func (r *reader) readManifest(d digest.Digest) (*Manifest, error) {
	content, err := r.tree.link(r.at + "/_manifests/revisions/" + digestPath(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	payload, err := r.tree.read(dataPath(content), maxManifest)
	if err != nil {
		return nil, missing(err, content)
	}
	if got := d.Algorithm().FromBytes(payload); got != d {
		return nil, fmt.Errorf("its bytes have digest %s", got)
	}
	m := parse(payload)
	m.Digest, m.content = d, content
	return &m, nil
}

// parse reads what the order and the request need. It refuses nothing: the
// destination does.
func parse(payload []byte) Manifest {
	var doc struct {
		MediaType string          `json:"mediaType"`
		Config    *v1.Descriptor  `json:"config"`
		Layers    []v1.Descriptor `json:"layers"`
		Manifests []v1.Descriptor `json:"manifests"`
	}
	if json.Unmarshal(payload, &doc) != nil {
		return Manifest{}
	}
	m := Manifest{MediaType: doc.MediaType}
	switch {
	case m.MediaType != "":
	case doc.Manifests != nil:
		m.MediaType = v1.MediaTypeImageIndex // the only list type that may leave it out
	case doc.Config != nil:
		m.MediaType = v1.MediaTypeImageManifest
	}
	if doc.Config != nil {
		m.Blobs = appendDigest(m.Blobs, *doc.Config)
	}
	for _, layer := range doc.Layers {
		m.Blobs = appendDigest(m.Blobs, layer)
	}
	for _, child := range doc.Manifests {
		m.Children = appendDigest(m.Children, child)
	}
	return m
}

// appendDigest adds a descriptor's digest, once, if it is valid.
func appendDigest(list []digest.Digest, d v1.Descriptor) []digest.Digest {
	if d.Digest.Validate() != nil || slices.Contains(list, d.Digest) {
		return list
	}
	return append(list, d.Digest)
}

var tagPattern = pattern.New(`^(?:` + reference.TagRegexp.String() + `)$`)

// readTags assigns the tags to their manifests.
func (r *reader) readTags() {
	tags, err := r.tree.names(r.at + "/_manifests/tags")
	if err != nil {
		r.problem("", err)
	}
	for _, tag := range tags {
		d, err := r.tree.link(r.at + "/_manifests/tags/" + tag + "/current")
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted
		}
		m := r.manifests[d]
		switch {
		case err != nil:
			r.problem(":"+tag, err)
		case !tagPattern().MatchString(tag):
			r.problem(":"+tag, errors.New("this is not a valid tag name"))
		case m == nil:
			r.problem(":"+tag, fmt.Errorf("it is at %s, which cannot be read or is not in the repository", d))
		default:
			m.Tags = append(m.Tags, tag)
		}
	}
}

// unused counts the blobs that no manifest uses.
func (r *reader) unused() int {
	linked, err := r.tree.digests(r.at + "/_layers")
	if err != nil {
		r.problem("", err)
	}
	used := map[digest.Digest]bool{}
	for _, m := range r.manifests {
		for _, d := range slices.Concat(m.Blobs, m.Children) {
			used[d] = true
		}
	}
	n := 0
	for _, d := range linked {
		if !used[d] {
			n++
		}
	}
	return n
}

// levels puts manifests in order, without recursion, because lists can be nested
// deeply. Manifests that are not in the repository are ignored.
func levels(manifests map[digest.Digest]*Manifest) [][]Manifest {
	waits := map[digest.Digest]int{} // number of children that are not placed yet
	parents := map[digest.Digest][]digest.Digest{}
	var ready []digest.Digest
	for d, m := range manifests {
		for _, child := range m.Children {
			if manifests[child] != nil {
				waits[d]++
				parents[child] = append(parents[child], d)
			}
		}
		if waits[d] == 0 {
			ready = append(ready, d)
		}
	}
	var all [][]Manifest
	for len(ready) > 0 {
		slices.Sort(ready) // a deterministic order
		var level []Manifest
		next := map[digest.Digest]bool{}
		for _, d := range ready {
			level = append(level, *manifests[d])
			for _, parent := range parents[d] {
				if waits[parent]--; waits[parent] == 0 {
					next[parent] = true
				}
			}
		}
		all = append(all, level)
		ready = slices.Collect(maps.Keys(next))
	}
	return all
}

// maxTags is how many tags the destination accepts with one manifest.
const maxTags = 100

// sender sends the content of one repository. Its errors end the import; the
// errors of an item are reported.
type sender struct {
	*Import
	repo  string
	blobs sync.Map // digest to func() error, so that each blob is sent once
}

// report reports the failure of an item, or returns an error that ends the
// import.
func (s *sender) report(ctx context.Context, item string, err error) error {
	if err == nil || errors.Is(err, errNoAnswer) || ctx.Err() != nil {
		return err
	}
	s.fail(Problem{s.repo + item, err})
	return nil
}

// manifest sends the blobs of a manifest, then the manifest with its tags. So
// the blobs wait only briefly for their manifest, and the destination does not
// collect them in between. A destination that has the manifest has its blobs.
func (s *sender) manifest(ctx context.Context, m Manifest) error {
	at := "/v2/" + s.repo + "/manifests/" + m.Digest.String()
	there, err := s.client.head(ctx, at)
	if err == nil && there == nil {
		err = s.sendBlobs(ctx, m.Blobs)
	}
	var tags []string
	if err == nil {
		tags, err = s.tags(ctx, m)
	}
	if err == nil && (there == nil || len(tags) > 0) {
		err = s.put(ctx, at, m, tags)
	}
	if err == nil && there == nil {
		s.ManifestsSent.Add(1)
	}
	item := "@" + m.Digest.String()
	if len(m.Tags) > 0 {
		item += " (" + strings.Join(m.Tags, ", ") + ")"
	}
	if err := s.report(ctx, item, err); err != nil {
		return err
	}
	s.Manifests.Add(1)
	return nil
}

// tags returns the tags to set. If a client pushes a tag elsewhere between this
// check and the push, the tag is moved; "registry undelete" can restore it.
func (s *sender) tags(ctx context.Context, m Manifest) ([]string, error) {
	var list []string
	for _, tag := range m.Tags {
		header, err := s.client.head(ctx, "/v2/"+s.repo+"/manifests/"+url.PathEscape(tag))
		if err != nil {
			return nil, err
		}
		is := header.Get("Docker-Content-Digest")
		switch {
		case header == nil || s.config.MoveTags && is != m.Digest.String():
			list = append(list, tag)
		case is != m.Digest.String():
			s.fail(Problem{s.repo + ":" + tag, fmt.Errorf("the tree has it at %s, the server at %s: left as it is", m.Digest, is)})
		}
	}
	return list, nil
}

// put sends a manifest, in several requests if it has more than maxTags tags.
func (s *sender) put(ctx context.Context, at string, m Manifest, tags []string) error {
	rounds := slices.Collect(slices.Chunk(tags, maxTags))
	if len(rounds) == 0 {
		rounds = [][]string{nil}
	}
	for _, round := range rounds {
		target := at
		if len(round) > 0 {
			target += "?" + url.Values{"tag": round}.Encode()
		}
		_, err := s.client.do(ctx, request{
			method: http.MethodPut, path: target, contentType: m.MediaType, open: s.opener(m.content), want: http.StatusCreated,
		})
		if err != nil {
			return err
		}
		s.TagsSet.Add(int64(len(round)))
	}
	return nil
}

// sendBlobs sends blobs, several in parallel.
func (s *sender) sendBlobs(ctx context.Context, list []digest.Digest) error {
	var work errgroup.Group
	for _, d := range list {
		once, _ := s.blobs.LoadOrStore(d, sync.OnceValue(func() error {
			return s.report(ctx, "@"+d.String(), s.blob(ctx, d))
		}))
		work.Go(once.(func() error))
	}
	return work.Wait()
}

// blob sends a blob that the destination does not have. One request asks to
// mount it from another repository of the destination, and carries its bytes if
// there is none.
//
// A blob that the source repository does not have is not sent: the destination
// decides whether the manifest is valid without it.
func (s *sender) blob(ctx context.Context, d digest.Digest) error {
	content, err := s.config.Tree.blob(s.repo, d)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	there, err := s.client.head(ctx, "/v2/"+s.repo+"/blobs/"+d.String())
	if err != nil || there != nil {
		return err
	}
	query := url.Values{"mount": {d.String()}, "digest": {d.String()}}
	sent, err := s.client.do(ctx, request{
		method: http.MethodPost, path: "/v2/" + s.repo + "/blobs/uploads/?" + query.Encode(),
		contentType: "application/octet-stream", open: s.opener(content), want: http.StatusCreated,
	})
	switch {
	case err != nil:
		return err
	case sent.mounted:
		s.BlobsMounted.Add(1)
	default:
		s.BlobsSent.Add(1)
	}
	return nil
}

func (s *sender) opener(content digest.Digest) func() (io.ReadCloser, int64, error) {
	return func() (io.ReadCloser, int64, error) { return s.config.Tree.open(content) }
}
