// Package importer copies the storage of a distribution registry (its
// rootdirectory on a file system) into a running registry, through that
// registry's HTTP API. It promises:
//
//   - The destination decides. It verifies every digest and every manifest, as
//     for any client, so an import cannot store what a push could not.
//   - Content that the destination has is not sent again. So an interrupted
//     import continues where it stopped, and a repeated one sends only what is
//     new.
//   - An item that fails (its bytes are missing or do not match, its manifest is
//     refused) is reported and does not stop the others. Only a destination that
//     does not answer ends the import.
//   - Memory is bounded by the largest repository's list of manifests. Blobs are
//     streamed.
//
// It writes nothing to the tree, and uses only the API of the destination. Begin
// with tree.go and plan.go, which read the tree, decide what is sent in which
// order, and send it.
package importer

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/exeunt/exeunt/internal/task"
)

// Config configures an import.
type Config struct {
	// Tree is the source. Required.
	Tree *Tree
	// URL is the destination: http://HOST:PORT. Required.
	URL string
	// Client sends the requests, with the client certificates of the user.
	// Required.
	Client *http.Client
	// Jobs is the number of parallel requests. Default 4.
	Jobs int
	// MoveTags moves a tag that points at another manifest in the destination.
	// Without it such a tag stays and is a Problem: a client may have pushed it
	// since.
	MoveTags bool
	// Failed is called for each Problem when it is found, Done for each
	// repository when it ends. Calls do not overlap. Both may be nil.
	Failed func(Problem)
	Done   func(Repository)
}

// Repository is a repository of the tree.
type Repository struct {
	Name      string
	Manifests int // number of manifests in the tree
}

// Problem is an item that was not imported, and the reason.
type Problem struct {
	Item string // REPO, REPO@DIGEST or REPO:TAG
	Err  error
}

// String returns the problem as one line.
func (p Problem) String() string { return p.Item + ": " + p.Err.Error() }

// Progress is the progress of an import. Its fields can be read at any time.
type Progress struct {
	Repositories    Count `json:"repositories"`
	AllRepositories Count `json:"repositoriesTotal"`
	Manifests       Count `json:"manifests"` // those processed, successfully or not
	AllManifests    Count `json:"manifestsTotal"`
	ManifestsSent   Count `json:"manifestsSent"`
	TagsSet         Count `json:"tagsSet"`
	BlobsSent       Count `json:"blobsSent"`
	BytesSent       Count `json:"bytesSent"`    // also those of unfinished requests
	BlobsMounted    Count `json:"blobsMounted"` // large blobs that another repository of the destination had: not sent
	BlobsUnused     Count `json:"blobsUnused"`  // blobs that no manifest of their repository uses: not imported
	Failed          Count `json:"failed"`
}

// Count is a number that grows.
type Count struct{ atomic.Int64 }

// MarshalJSON writes the number.
func (c *Count) MarshalJSON() ([]byte, error) { return strconv.AppendInt(nil, c.Load(), 10), nil }

// Import is one run. Its Progress may be read while it runs.
type Import struct {
	Progress
	config Config
	client *client
	mu     sync.Mutex // held during Failed and Done
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

// Header is what an import says about itself in a request to /v2/: its id, how many manifests it has processed, of how many,
// and the bytes that it has sent. At its end there is only the id.
const Header = "Exeunt-Import"

// tellEvery is how often an import says how far it is.
const tellEvery = 5 * time.Second

// tell tells the registry how far the import is until stop is called. Nothing depends on the answers.
func (i *Import) tell(ctx context.Context) (stop func()) {
	during, cancel := context.WithCancel(ctx)
	ended, id := make(chan struct{}), uuid.NewString()
	say := func(ctx context.Context, text string) {
		_, _, _ = i.client.once(ctx, request{method: http.MethodGet, path: "/v2/", header: http.Header{Header: {text}}, want: http.StatusOK})
	}
	go func() {
		defer close(ended)
		for task.Sleep(during, tellEvery) {
			say(during, fmt.Sprintf("%s %d %d %d", id, i.Manifests.Load(), i.AllManifests.Load(), i.BytesSent.Load()))
		}
	}()
	return func() {
		cancel()
		<-ended
		last, done := context.WithTimeout(context.WithoutCancel(ctx), tellEvery)
		defer done()
		say(last, id)
	}
}

// Run imports everything, once. It returns an error only if it ended early;
// failed items are counted, and reported to Config.Failed.
func (i *Import) Run(ctx context.Context) error {
	if err := i.client.ping(ctx); err != nil {
		return err
	}
	defer i.tell(ctx)()
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
// comes after its manifests.
func (i *Import) repository(ctx context.Context, repo Repository) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	plan := i.config.Tree.Plan(repo.Name)
	i.fail(plan.Problems...)
	i.BlobsUnused.Add(int64(plan.Unused))
	i.Manifests.Add(int64(repo.Manifests - plan.manifests())) // unreadable manifests
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

// fail counts and reports problems.
func (i *Import) fail(problems ...Problem) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, p := range problems {
		i.Failed.Add(1)
		i.config.Failed(p)
	}
}
