package importer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"
)

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
