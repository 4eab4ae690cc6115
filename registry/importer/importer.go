// Package importer copies the storage of a distribution registry (its
// rootdirectory on a file system) into a registry that is running, through that
// registry's HTTP API. It promises:
//
//   - The destination decides. It verifies every digest and every manifest, as
//     it does for any client, so an import cannot store what a push could not.
//   - What is there already is not sent again, so an import that was interrupted
//     goes on where it was, and one that is repeated only catches up.
//   - One item that fails (bytes that are missing or do not match, a manifest
//     that is refused) is told and does not stop the others. Only a destination
//     that does not answer ends the import.
//   - Memory is bounded by the largest repository's list of manifests. Blobs are
//     streamed.
//
// It writes nothing to the tree, and knows nothing of the destination but its
// API. Begin with tree.go and plan.go, which read the tree and decide what is
// sent in which order; send.go does it.
package importer

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// Config says what goes where.
type Config struct {
	// Tree is what is imported. Required.
	Tree *Tree
	// URL leads to the destination: http://HOST:PORT. Required.
	URL string
	// Client sends the requests. Required: it has the caller's certificates.
	Client *http.Client
	// Jobs is how many requests are under way at once. Default 4.
	Jobs int
	// MoveTags moves a tag that the destination has at another manifest. Without
	// it such a tag stays, and is a Problem: somebody may have pushed it there
	// since.
	MoveTags bool
	// Failed is told of each Problem as it is found, Done of each repository as
	// it ends. They are not called at the same time. Nil: nobody is told.
	Failed func(Problem)
	Done   func(Repository)
}

// Repository is a repository of the tree.
type Repository struct {
	Name      string
	Manifests int // that the tree has of it
}

// Problem is an item that was not imported, and why.
type Problem struct {
	Item string // REPO, REPO@DIGEST or REPO:TAG
	Err  error
}

// String is the problem as a line.
func (p Problem) String() string { return p.Item + ": " + p.Err.Error() }

// Progress says how far an import is. Its fields can be read at any time.
type Progress struct {
	Repositories, AllRepositories Count
	Manifests, AllManifests       Count // Manifests are those dealt with, whatever came of it
	ManifestsSent                 Count
	TagsSet                       Count
	BlobsSent, BytesSent          Count // bytes also of what is under way
	BlobsMounted                  Count // large ones that another repository of the destination had: not sent
	BlobsUnused                   Count // that no manifest of their repository uses: left behind
	Failed                        Count
}

// Count is a number that grows.
type Count struct{ atomic.Int64 }

// Import is one run. Its Progress may be read while it runs.
type Import struct {
	Progress
	config Config
	client *client
	mu     sync.Mutex // held while somebody is told
}

// New makes an Import. It does no I/O.
func New(c Config) *Import {
	if c.Jobs <= 0 {
		c.Jobs = 4
	}
	if c.Failed == nil {
		c.Failed = func(Problem) {}
	}
	if c.Done == nil {
		c.Done = func(Repository) {}
	}
	i := &Import{config: c}
	i.client = &client{base: strings.TrimSuffix(c.URL, "/"), http: c.Client, slots: make(chan struct{}, c.Jobs), sent: &i.BytesSent, pause: firstPause}
	return i
}

// Run imports everything, once. Its error is why it ended before everything was
// tried; items that failed are counted, and told to Config.Failed.
func (i *Import) Run(ctx context.Context) error {
	if err := i.client.ping(ctx); err != nil {
		return err
	}
	list, problems, err := i.config.Tree.Repositories()
	if err != nil {
		return err
	}
	i.fail(problems...)
	i.AllRepositories.Store(int64(len(list)))
	for _, repo := range list {
		i.AllManifests.Add(int64(repo.Manifests))
	}
	work, during := errgroup.WithContext(ctx)
	work.SetLimit(i.config.Jobs)
	for _, repo := range list {
		work.Go(func() error {
			if err := i.repository(during, repo); err != nil {
				return fmt.Errorf("import %s: %w", repo.Name, err)
			}
			return nil
		})
	}
	if err := work.Wait(); err == nil || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("the import was interrupted; run it again to go on: %w", ctx.Err())
}

// repository imports one repository: manifests level by level, so that a list
// comes after what it lists.
func (i *Import) repository(ctx context.Context, repo Repository) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	plan := i.config.Tree.Plan(repo.Name)
	i.fail(plan.Problems...)
	i.BlobsUnused.Add(int64(plan.Unused))
	i.Manifests.Add(int64(repo.Manifests - plan.manifests())) // those that cannot be read
	s := sender{Import: i, repo: repo.Name}
	for _, level := range plan.Levels {
		work, ctx := errgroup.WithContext(ctx)
		work.SetLimit(i.config.Jobs)
		for _, m := range level {
			work.Go(func() error { return s.manifest(ctx, m) })
		}
		if err := work.Wait(); err != nil {
			return err
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.Repositories.Add(1)
	i.config.Done(repo)
	return nil
}

// fail tells of problems.
func (i *Import) fail(problems ...Problem) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, p := range problems {
		i.Failed.Add(1)
		i.config.Failed(p)
	}
}
