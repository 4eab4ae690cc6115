package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/exeunt/exeunt/sqldb"
)

// Upstream is the registry that a cached repository is fetched from.
type Upstream interface {
	// String names it for clients.
	String() string
	// Shadowed reports whether clients may push to the repository.
	Shadowed() bool
	// Fresh is how long a tag is served before the upstream is asked for it again: for ever while it rests after a failure.
	Fresh() time.Duration
	// Ask sends GET or HEAD for a manifest or a blob. The answer has status 200; its body ends, with an error if
	// the upstream is slow, and is closed by the caller. A request that waits for its turn ends with ErrAbandoned when it is
	// abandoned: so no more wait than clients do. Other errors: *Error, Final if the upstream has answered that
	// there is no such content, or not for this client.
	Ask(ctx context.Context, method string, to Request) (*http.Response, error)
	// Served is called for each request for a manifest or blob: it was here, or was fetched, or err says why it was not.
	Served(fetched bool, err error)
}

// ErrAbandoned is the error of a fetch that read nothing: its clients left first.
var ErrAbandoned = errors.New("all clients left before the turn of this fetch came")

// ManifestTypes are the media types of manifests that the registry stores.
var ManifestTypes = []string{v1.MediaTypeImageIndex, v1.MediaTypeImageManifest, dockerList, dockerManifest}

// fetches are the fetches under way. Requests for the same content share one.
type fetches struct {
	ctx context.Context // of the fetches, which outlive the requests that began them
	end context.CancelFunc
	all sync.WaitGroup

	mu    sync.Mutex
	under map[string]*fetch // by path; guarded by mu
}

// fetch is one of them.
type fetch struct {
	done chan struct{} // closed at its end
	err  error         // set before
	live live

	clients   int           // that wait; guarded by mu of fetches
	abandoned chan struct{} // closed when the last one has gone; others may come after it
	abandon   sync.Once
}

// Close ends the fetches from upstreams, and writes what is counted. It follows the last request.
func (r *Registry) Close() {
	r.WritePulls()
	r.fetches.end()
	r.fetches.all.Wait()
}

// share waits for the end of a fetch; or for its first bytes, if the client takes them as they come. It begins the fetch with fn, unless
// one of the same content is under way: also one that was abandoned, which goes on if it had begun to read. If it had not, it
// ends with ErrAbandoned, and a client that has joined it since begins anew.
func (f *fetches) share(ctx context.Context, what string, takesLive bool, fn func(ctx context.Context, one *fetch) error) (one *fetch, streams bool, err error) {
	for {
		one = f.join(what, fn)
		streams, err = one.wait(ctx, takesLive)
		f.leave(one)
		if !errors.Is(err, ErrAbandoned) || ctx.Err() != nil {
			return one, streams, err
		}
	}
}

// join counts a client of a fetch, which it begins if there is none.
func (f *fetches) join(what string, fn func(ctx context.Context, one *fetch) error) *fetch {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one := f.under[what]; one != nil {
		one.clients++
		return one
	}
	one := &fetch{done: make(chan struct{}), live: live{begun: make(chan struct{})}, clients: 1, abandoned: make(chan struct{})}
	f.under[what] = one
	f.all.Go(func() {
		defer close(one.done) // after it is no longer under way: so a client that saw its end does not join it again
		defer func() {
			if p := recover(); p != nil {
				one.err = fmt.Errorf("fetch %s: panic: %v", what, p)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.under, what)
		}()
		one.err = fn(f.ctx, one)
	})
	return one
}

// leave is called by each client that has joined.
func (f *fetches) leave(one *fetch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one.clients--; one.clients == 0 {
		one.abandon.Do(func() { close(one.abandoned) })
	}
}

func (one *fetch) wait(ctx context.Context, takesLive bool) (streams bool, err error) {
	begun := one.live.begun
	if !takesLive {
		begun = nil
	}
	select {
	case <-one.done:
		return false, one.err
	case <-begun:
		select {
		case <-one.done:
			return false, one.err
		default:
			return true, nil
		}
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return false, errorf(Unavailable, "the upstream of this repository takes long to answer; try again later")
		}
		return false, ctx.Err()
	}
}

// upstreamOf returns where a repository is fetched from. Nil: it is not a cached one.
func (r *Registry) upstreamOf(ctx context.Context, repository string) (Upstream, error) {
	if r.upstream == nil {
		return nil, nil
	}
	return r.upstream(ctx, repository)
}

// refusePush refuses pushes to cached repositories, unless they shadow the upstream.
func (r *Registry) refusePush(ctx context.Context, to Request) error {
	up, err := r.upstreamOf(ctx, to.Repository)
	if err != nil || up == nil || up.Shadowed() {
		return err
	}
	return errorf(Denied, "repository %s is a cache of %s: nothing can be pushed to it (an administrator can allow it, with pushes: Shadow in its RegistryCache)", to.Repository, up)
}

// bring fetches what a pull from a cached repository asks for, if it is not here or its tag is due to be looked at
// again. have is the manifest that is here, if found. It reports whether the caller has to read it again.
//
// While the upstream does not answer, or not as it should, what is here is served. If it answers that the tag is
// gone, so does the registry.
func (r *Registry) bring(ctx context.Context, to Request, found bool, have stored) (again bool, err error) {
	up, err := r.upstreamOf(ctx, to.Repository)
	if up == nil || err != nil {
		return false, err
	}
	if found {
		due, err := r.tagDue(ctx, up, to, have.repo)
		if err != nil || !due {
			up.Served(false, nil)
			return false, err
		}
	}
	_, _, err = r.fetch(ctx, to, up, found, have, false)
	var refused *Error
	if found && err != nil && !(errors.As(err, &refused) && refused.Final) {
		r.log.Warn("registry cache: serving what is here", "repository", to.Repository, "tag", to.Tag, "error", err)
		return false, nil
	}
	return err == nil, err
}

// fetch fetches what a request asks for, or joins a fetch of that.
func (r *Registry) fetch(ctx context.Context, to Request, up Upstream, found bool, have stored, takesLive bool) (*fetch, bool, error) {
	to = Request{Kind: to.Kind, Repository: to.Repository, Tag: to.Tag, Digest: to.Digest, fetched: true}
	return r.fetches.share(ctx, to.Path(), takesLive, func(ctx context.Context, one *fetch) error {
		to, fetched, err := to, true, error(nil)
		to.Abandoned = one.abandoned
		switch {
		case to.Kind == BlobGet || to.Kind == BlobHead:
			err = r.fetchBlob(ctx, up, to, -1, &one.live)
		case found:
			fetched, err = r.revalidate(ctx, up, to, have)
		default:
			err = r.fetchManifest(ctx, up, to)
		}
		up.Served(fetched, err)
		return err
	})
}

// tagDue reports whether the upstream is to be asked for a tag again. What a client has pushed is never replaced.
func (r *Registry) tagDue(ctx context.Context, up Upstream, to Request, repo int64) (bool, error) {
	if to.Tag == "" {
		return false, nil
	}
	var at int64
	fetched, err := r.db.Row(ctx, findFetched, []any{repo, to.Tag}, &at)
	return fetched && r.now().Sub(time.UnixMilli(at)) >= up.Fresh(), err
}

// revalidate asks for the digest of a tag that is here, and fetches the manifest if it is another one.
func (r *Registry) revalidate(ctx context.Context, up Upstream, to Request, have stored) (fetched bool, err error) {
	answer, err := up.Ask(ctx, http.MethodHead, to)
	if err != nil {
		return false, err
	}
	answer.Body.Close()
	if answer.Header.Get("Docker-Content-Digest") != have.digest.String() {
		return true, r.fetchManifest(ctx, up, to)
	}
	return false, r.writer.doSoon(ctx, func(tx *sqldb.Tx) error {
		return tx.Exec(ctx, markFetched, have.repo, to.Tag, r.now().UnixMilli(), have.id)
	})
}

// wrong is the error for content that is not what it should be.
func wrong(up Upstream, format string, args ...any) error {
	return errorf(Unavailable, "the upstream %s sent what is not asked for: %s", up, fmt.Sprintf(format, args...)).as(http.StatusBadGateway)
}

// fetchManifest stores a manifest of the upstream, with its configuration. Layers, and the manifests of a list, come when
// a client asks for them: until then they are in missing_content.
func (r *Registry) fetchManifest(ctx context.Context, up Upstream, to Request) error {
	answer, err := up.Ask(ctx, http.MethodGet, to)
	if err != nil {
		return err
	}
	payload, err := io.ReadAll(io.LimitReader(answer.Body, maxManifest+1))
	answer.Body.Close()
	if err != nil {
		return wrong(up, "the manifest breaks off: %v", err)
	}
	if len(payload) > maxManifest {
		return wrong(up, "the manifest is larger than %d bytes", maxManifest)
	}
	m, err := parseManifest(answer.Header.Get("Content-Type"), payload)
	if err != nil {
		return wrong(up, "%v", err)
	}
	p := push{r: r, to: to, manifest: m, payload: payload, digest: to.Digest}
	if to.Tag != "" {
		p.tags, p.digest = []string{to.Tag}, digest.FromBytes(payload)
		if said, err := parseDigest(answer.Header.Get("Docker-Content-Digest")); err == nil {
			p.digest = said
		}
	}
	if got := p.digest.Algorithm().FromBytes(payload); got != p.digest {
		return wrong(up, "the manifest has digest %s, not %s", got, p.digest)
	}
	if m.config != nil {
		config := Request{Kind: BlobGet, Repository: to.Repository, Digest: m.config.Digest, fetched: true}
		_, found, err := r.findBlob(ctx, config)
		if err == nil && !found {
			_, _, err = r.fetches.share(ctx, config.Path(), false, func(ctx context.Context, one *fetch) error {
				return r.fetchBlob(ctx, up, config, m.config.Size, &one.live)
			})
		}
		if err != nil {
			return err
		}
	}
	return p.store(ctx)
}

// fetchBlob stores a blob of the upstream. Size is what a manifest says, or negative. Clients may follow a large one meanwhile.
func (r *Registry) fetchBlob(ctx context.Context, up Upstream, to Request, size int64, following *live) error {
	if r.full != nil && r.full() {
		return errorf(Unavailable, "the server's disk is full, so nothing can be fetched")
	}
	answer, err := up.Ask(ctx, http.MethodGet, to)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if size < 0 {
		if _, err := r.db.Row(ctx, findMissing, []any{to.Repository, to.Digest.String()}, &size); err != nil {
			return fmt.Errorf("find the size of blob %s: %w", to.Digest, err)
		}
	}
	switch length := answer.ContentLength; {
	case size < 0 && length < 0:
		return wrong(up, "a blob without its length")
	case size >= 0 && length >= 0 && size != length:
		return wrong(up, "the blob has %d bytes, not %d", length, size)
	}
	size = max(size, answer.ContentLength)
	if err := r.quotas.Load().checkSize(size); err != nil {
		return err
	}
	body := io.LimitReader(answer.Body, size+1)
	if size <= r.small {
		content, err := io.ReadAll(body)
		if got := to.Digest.Algorithm().FromBytes(content); err != nil || got != to.Digest {
			return wrong(up, "%d bytes with digest %s, not %s (%v)", len(content), got, to.Digest, err)
		}
		return r.storeSmall(ctx, to, to.Digest, content)
	}
	to.Upload = uuid.NewString()
	u, err := r.begin(ctx, to, to.Digest.Algorithm(), true)
	if err != nil {
		return err
	}
	defer u.close(ctx)
	u.fetched = true
	if size >= liveFrom {
		following.begin(size)
		body = io.TeeReader(body, following)
	}
	if err := u.append(ctx, body); err != nil {
		if errors.Is(err, errTruncated) {
			err = wrong(up, "the blob breaks off: %v", err)
		}
		return withCleanup(err, u.discard(ctx))
	}
	got, err := u.digest(ctx, to.Digest.Algorithm())
	if err == nil && (got != to.Digest || u.writer.Size() != size) {
		err = wrong(up, "%d bytes with digest %s, not %d with %s", u.writer.Size(), got, size, to.Digest)
	}
	if err != nil {
		return withCleanup(err, u.discard(ctx))
	}
	return u.finish(ctx, to.Digest)
}

// bringContent adds the statements that give content to the manifests that lack it.
func bringContent(b *sqldb.Batch, engine sqldb.Engine, repo repository, d digest.Digest, link string) {
	if engine == sqldb.Postgres {
		b.Exec(lockLacking, repo.id, d.String())
	}
	b.Exec(link, repo.namespace, repo.id, d.String())
	b.Exec(dropMissing, repo.id, d.String())
}

// lack is content that a manifest of a cached repository refers to and the repository does not have: digest, media type of
// a layer or 0, size.
type lack [3]any

// fetchedRows adds the statements that store what is particular of a fetched manifest.
func (p *push) fetchedRows(b *sqldb.Batch, id, now int64, tags []string) {
	insert := insertMissingSQLite
	engine := p.r.db.Engine()
	if engine == sqldb.Postgres {
		insert = insertMissingPostgres
	}
	if len(p.lacks) > 0 {
		b.Exec(insert, p.repo.id, id, sqldb.JSON(p.lacks))
	}
	bringContent(b, engine, p.repo, p.digest, linkMissingManifest)
	for _, tag := range tags {
		b.Exec(setFetched, p.repo.id, tag, now)
	}
}
