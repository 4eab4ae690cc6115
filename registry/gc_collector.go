package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
)

// The events that queue a review or a removal, and existence_check, the duration
// of a promise. SetReviewAfter sets their delays.
const (
	EventBlobUpload         = "blob_upload"
	EventManifestUpload     = "manifest_upload"
	EventManifestDelete     = "manifest_delete"
	EventLayerDelete        = "layer_delete"
	EventManifestListDelete = "manifest_list_delete"
	EventTagDelete          = "tag_delete"
	EventTagSwitch          = "tag_switch"
	EventSubjectDelete      = "subject_delete"
	EventBlobDelete         = "blob_delete"   // until its bytes are removed
	EventUploadDelete       = "upload_delete" // until its bytes are removed
	// EventExistenceCheck is how long a blob or manifest stays after a client
	// was told that it exists. No event has it reviewed sooner.
	EventExistenceCheck = "existence_check"
)

// Options are the settings of a Collector. Zero values have a default.
type Options struct {
	// ReviewAfter sets, when Run begins, the delay between an event and the
	// review. Other events keep the delay in the database, initially one day.
	ReviewAfter map[string]time.Duration
	// Off leaves the collection to other processes: Run writes the settings and
	// waits for the end of its context.
	Off bool
	// KeepManifests stops the collection of manifests, KeepBlobs that of blobs.
	// The queues still fill.
	KeepManifests, KeepBlobs bool
	// KeepSignatures keeps the tags that cosign made for an image (sha256-….sig,
	// .att, .sbom) when the image is collected.
	KeepSignatures bool
	// UploadExpiry is how long an upload may be idle before it is abandoned.
	// Default one day.
	UploadExpiry time.Duration
	// SweepEvery is how often Sweep searches the blob store for bytes that the
	// database does not know. Default one day; negative: never.
	SweepEvery time.Duration
	// Changed is called with the id of a repository that lost a manifest or a
	// blob. It must be quick. May be nil.
	Changed func(repository int64)
	// Paused is called before each turn. Default: never paused.
	Paused func(ctx context.Context) (bool, error)
	// Now is the clock. The triggers use the database's clock. Default time.Now.
	Now func() time.Time
	// Logger logs failures. Default slog.Default.
	Logger *slog.Logger
}

const (
	// Delays until the next review after one without a decision.
	busyRecheck = time.Second // another transaction has the subject locked
	holdRecheck = time.Hour   // the repository is on hold

	uploadPoll = time.Minute
	// firstSweep is short, because processes may restart often.
	firstSweep = time.Hour
	// unlinks is how many removals run in parallel: each waits for the disk.
	unlinks = 16
)

// Collector removes garbage: manifests, then the rows of their blobs, then the
// bytes; and abandoned uploads. Any number of collectors, in any number of
// processes, may share a database.
//
// Begin with review_manifest.go, review_blob.go and unlink.go. The triggers in
// schema fill the queues.
type Collector struct {
	db      *sqldb.DB
	blobs   blobstore.Store
	options Options
	metrics *gcMetrics
	sql     gcStatements
	turn    sync.Mutex // held during a review on SQLite

	manifests, blobRows, unlinks, removed *review.Engine
}

// NewCollector makes a Collector. It does no I/O.
func NewCollector(db *sqldb.DB, blobs blobstore.Store, o Options) (*Collector, error) {
	if db == nil || blobs == nil {
		return nil, errors.New("registry collector: needs a database and a blob store")
	}
	for event, after := range o.ReviewAfter {
		if err := validReviewAfter(event, after); err != nil {
			return nil, fmt.Errorf("registry collector: %w", err)
		}
	}
	if o.UploadExpiry < 0 {
		return nil, fmt.Errorf("registry collector: uploads cannot expire after %v", o.UploadExpiry)
	}
	if o.UploadExpiry == 0 {
		o.UploadExpiry = 24 * time.Hour
	}
	if o.SweepEvery == 0 {
		o.SweepEvery = 24 * time.Hour
	}
	if o.Changed == nil {
		o.Changed = func(int64) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	c := &Collector{db: db, blobs: blobs, options: o, metrics: newGCMetrics(), sql: newGCStatements(db.Engine())}
	var errs [4]error
	c.manifests, errs[0] = c.engine(manifestQueue, &manifestReviewer{c})
	c.blobRows, errs[1] = c.engine(blobQueue, &blobReviewer{c})
	c.unlinks, errs[2] = c.engine(unlinkQueue, &unlinker{c})
	c.removed, errs[3] = c.engine(repositoryQueue, &repositoryReviewer{c})
	return c, errors.Join(errs[:]...)
}

// The queues, and their tables.
var (
	manifestQueue = review.Queue{Name: "registry-manifests", Table: "gc_manifest_review_queue", Key: "manifest"}
	blobQueue     = review.Queue{Name: "registry-blobs", Table: "gc_blob_review_queue", Key: "digest"}
	unlinkQueue   = review.Queue{Name: "registry-unlinks", Table: "gc_unlink_queue", Key: "path", Effects: unlinks}
	// One per batch: each removes as much as one transaction may.
	repositoryQueue = review.Queue{Name: "registry-repositories", Table: "gc_repository_review_queue", Key: "uid", Batch: 1}
)

// The number of reviews in one transaction. On SQLite pushes wait for it, about
// 5 ms; on PostgreSQL they share processors with it.
const (
	sqliteBatch   = 25
	postgresBatch = 50
)

func (c *Collector) engine(q review.Queue, r review.Reviewer[*countingTx]) (*review.Engine, error) {
	if q.Batch == 0 {
		q.Batch = sqliteBatch
		if c.sql.postgres {
			q.Batch = postgresBatch
		}
	}
	return review.New(c.db, q, r, c.transact, review.Options{Paused: c.options.Paused, Now: c.options.Now, Logger: c.options.Logger})
}

// engines lists the engines that run.
func (c *Collector) engines() []*review.Engine {
	running := []*review.Engine{c.unlinks}
	if !c.options.KeepManifests {
		running = append(running, c.manifests, c.removed)
	}
	if !c.options.KeepBlobs {
		running = append(running, c.blobRows)
	}
	return running
}

// Run collects until ctx ends, and then returns nil. It fails only when it
// cannot write the settings.
func (c *Collector) Run(ctx context.Context) error {
	if err := c.configure(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if c.options.Off {
		<-ctx.Done()
		return nil
	}
	var running sync.WaitGroup
	for _, e := range c.engines() {
		running.Go(func() { _ = e.Run(ctx) }) // always nil
	}
	running.Go(func() { c.repeat(ctx, "remove abandoned uploads", 0, uploadPoll, c.RemoveAbandoned) })
	running.Go(func() { c.repeat(ctx, "forget what cannot be undeleted", uploadPoll, uploadPoll, c.ForgetDeleted) })
	if every := c.options.SweepEvery; every > 0 {
		running.Go(func() { c.repeat(ctx, "sweep the blob store", min(firstSweep, every), every, c.Sweep) })
	}
	running.Wait()
	return nil
}

// configure writes the settings that the triggers read.
func (c *Collector) configure(ctx context.Context) error {
	for _, event := range slices.Sorted(maps.Keys(c.options.ReviewAfter)) {
		if err := c.SetReviewAfter(ctx, event, c.options.ReviewAfter[event]); err != nil {
			return err
		}
	}
	return c.write(ctx, "set whether signatures are collected", setSetting, "signatures", !c.options.KeepSignatures)
}

// repeat runs a step periodically. It logs a failure, and the next run is the
// retry.
func (c *Collector) repeat(ctx context.Context, what string, first, every time.Duration, step func(context.Context) (int, error)) {
	for wait := first; ; wait = every {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		paused, err := c.paused(ctx)
		if err == nil && !paused {
			_, err = step(ctx)
		}
		if err != nil && ctx.Err() == nil {
			c.options.Logger.Warn("registry collector", "step", what, "error", err)
		}
	}
}

func (c *Collector) paused(ctx context.Context) (bool, error) {
	if c.options.Paused == nil {
		return false, nil
	}
	return c.options.Paused(ctx)
}

// Turn is the result of one turn of each worker.
type Turn struct {
	Repositories, Manifests, Blobs, Unlinks review.Result

	Uploads int // abandoned uploads that were removed
}

// Idle reports whether there was nothing to do.
func (t Turn) Idle() bool {
	return t.Repositories.Claimed+t.Manifests.Claimed+t.Blobs.Claimed+t.Unlinks.Claimed+t.Uploads == 0
}

// RunOne lets each worker take one turn, in the order of removal. It is for
// tests, and for a run on demand.
func (c *Collector) RunOne(ctx context.Context) (Turn, error) {
	var t Turn
	paused, err := c.paused(ctx)
	if err != nil || paused {
		return t, err
	}
	if !c.options.KeepManifests {
		if t.Repositories, err = c.removed.RunOne(ctx); err != nil {
			return t, err
		}
		if t.Manifests, err = c.manifests.RunOne(ctx); err != nil {
			return t, err
		}
	}
	if !c.options.KeepBlobs {
		if t.Blobs, err = c.blobRows.RunOne(ctx); err != nil {
			return t, err
		}
	}
	if t.Uploads, err = c.RemoveAbandoned(ctx); err != nil {
		return t, err
	}
	t.Unlinks, err = c.unlinks.RunOne(ctx)
	return t, err
}

// Wake tells the engines that a review may be due.
func (c *Collector) Wake() {
	for _, e := range c.engines() {
		e.Wake()
	}
}

// transact is the review.Transactor. The collector sleeps as long as each
// transaction ran (50 % duty cycle). The time of the disk counts as sleep,
// because no push waits for it. On SQLite, where pushes need the same writer,
// reviews run one at a time, and sleep only if another writer had to wait.
func (c *Collector) transact(ctx context.Context, fn func(tx *countingTx) error) error {
	if !c.sql.postgres {
		c.turn.Lock()
		defer c.turn.Unlock()
	}
	begin, waited := time.Now(), c.db.Waited()
	took, err := c.transactNow(ctx, fn)
	if c.sql.postgres || c.db.Waited() > waited {
		disk := time.Since(begin) - took
		sleep(ctx, took-disk)
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// transactNow runs a review and counts its results after the commit, or its
// failures. took is the time until other writers could continue.
func (c *Collector) transactNow(ctx context.Context, fn func(tx *countingTx) error) (took time.Duration, err error) {
	begin := time.Now()
	tx, err := c.db.BeginAhead(ctx) // ahead: no push waits for its disk write
	if err != nil {
		return time.Since(begin), err
	}
	defer tx.Rollback() // no effect after a commit
	counting := &countingTx{Tx: tx}
	if err = fn(counting); err == nil {
		err = tx.Commit(ctx)
	}
	if took = time.Since(begin); err == nil {
		err = c.db.Flush()
	}
	if err != nil {
		c.metrics.count(took, counting.failures(ctx)...)
		return took, err
	}
	c.metrics.count(took, counting.reviews...)
	c.metrics.giveBack(counting.bytes...)
	for _, id := range counting.changed {
		c.options.Changed(id)
	}
	return took, nil
}

// write runs one statement in its own transaction.
func (c *Collector) write(ctx context.Context, what, statement string, args ...any) error {
	err := c.db.Transact(ctx, func(tx *sqldb.Tx) error { return exec(ctx, tx, statement, args...) })
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
