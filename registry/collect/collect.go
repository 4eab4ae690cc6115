// Package collect removes the garbage of the registry while clients push and pull:
// manifests without tag, list and subject, then the rows of blobs that no manifest
// uses, then the bytes; content of removed repositories; abandoned uploads. It
// promises that nothing a client can reach, or was told exists, is removed, and that
// a row is always deleted before its bytes. It knows requests only by their rows.
//
// Triggers fill the queues (gc_track_… in sqldb/schema/sqlite.sql and postgres.sql), and
// package review works them off. Begin with review_manifest.go, review_blob.go and
// unlink.go. docs/spec/registry-tracking.md has every race and its answer.
package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/imageuse"
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
	// RemoveTimeout limits one removal of bytes from the blob store. A removal that
	// takes longer is retried. The lease of the queue, a minute, limits it too. Default
	// 30 seconds.
	RemoveTimeout time.Duration
	// SweepEvery is how often Sweep searches the blob store for bytes that the
	// database does not know. Default one day; negative: never.
	SweepEvery time.Duration
	// UsesFor is how long a version of an object may be in the log before the history has it: until then the
	// images that it names are in use. Default one hour.
	UsesFor time.Duration
	// Changed is called with the id of a repository that lost a manifest or a
	// blob. It must be quick. May be nil.
	Changed func(repository int64)
	// Paused is called before each turn. Default: never paused.
	Paused func(ctx context.Context) (bool, error)
	// Unready reports why nothing can be collected yet: nil when the server knows what is in use. Default: it does.
	Unready func() error
	// Now is the clock. The triggers use the database's clock. Default time.Now.
	Now func() time.Time
	// Logger logs failures. Default slog.Default.
	Logger *slog.Logger
}

const (
	// Delays until the next review after one without a decision.
	busyRecheck = time.Second // another transaction has the subject locked
	holdRecheck = time.Hour   // the repository is on hold, or the manifest in use
	// A backup runs.
	backupRecheck = 15 * time.Second

	uploadPoll = time.Minute
	// firstSweep is short, because processes may restart often.
	firstSweep = time.Hour
	// unlinks is how many removals run in parallel: each waits for the disk.
	unlinks = 16
)

// Collector removes garbage: manifests, then the rows of their blobs, then the
// bytes; and abandoned uploads. Any number of collectors, in any number of
// processes, may share a database.
type Collector struct {
	db      *sqldb.DB
	blobs   blobstore.Store
	options Options
	metrics *metrics
	sql     statements
	turn    sync.Mutex // held during a review on SQLite

	reclaimed atomic.Int64 // bytes that were removed and are not recorded yet

	manifests, blobRows, unlinks, removed *review.Engine
}

// New makes a Collector. It does no I/O.
func New(db *sqldb.DB, blobs blobstore.Store, o Options) (*Collector, error) {
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
	o.UploadExpiry = cmp.Or(o.UploadExpiry, 24*time.Hour)
	if o.RemoveTimeout <= 0 {
		o.RemoveTimeout = 30 * time.Second
	}
	o.SweepEvery = cmp.Or(o.SweepEvery, 24*time.Hour)
	o.UsesFor = cmp.Or(o.UsesFor, time.Hour)
	if o.Changed == nil {
		o.Changed = func(int64) {}
	}
	if o.Unready == nil {
		o.Unready = func() error { return nil }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	c := &Collector{db: db, blobs: blobs, options: o, metrics: newMetrics(), sql: newStatements(db.Engine())}
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
	return review.New(c.db, q, r, c.transact, review.Options{Paused: c.held, Now: c.options.Now, Logger: c.options.Logger})
}

// events lists the events that have a delay.
var events = []string{
	EventBlobUpload, EventManifestUpload, EventManifestDelete, EventLayerDelete, EventManifestListDelete, EventTagDelete,
	EventTagSwitch, EventSubjectDelete, EventBlobDelete, EventUploadDelete, EventExistenceCheck,
}

// maxReviewAfter prevents an overflow of times.
const maxReviewAfter = 100 * 365 * 24 * time.Hour

func validReviewAfter(event string, after time.Duration) error {
	if !slices.Contains(events, event) {
		return fmt.Errorf("unknown event %q: known are %s", event, strings.Join(events, ", "))
	}
	if after < 0 || after > maxReviewAfter {
		return fmt.Errorf("a review after %v: must be from 0 to 100 years", after)
	}
	return nil
}

// SetReviewAfter sets the delay between an event and the review, for all
// replicas, from now on. Queued reviews keep their time.
func (c *Collector) SetReviewAfter(ctx context.Context, event string, after time.Duration) error {
	if err := validReviewAfter(event, after); err != nil {
		return fmt.Errorf("set review delay: %w", err)
	}
	return c.write(ctx, "set review delay", setReviewAfter, event, after.Milliseconds())
}

// ReviewAfter reads the delays of all events.
func (c *Collector) ReviewAfter(ctx context.Context) (map[string]time.Duration, error) {
	delays := map[string]time.Duration{}
	if err := sqldb.Each(ctx, c.db, sqldb.Pairs(delays), listReviewAfter); err != nil {
		return nil, fmt.Errorf("list review delays: %w", err)
	}
	for event, milliseconds := range delays {
		delays[event] = milliseconds * time.Millisecond
	}
	return delays, nil
}

// ForgetDeleted deletes the records of deletions whose review is past, and
// returns how many rows those were. Reviews do not do it: a review that finds
// its manifest in use writes nothing.
func (c *Collector) ForgetDeleted(ctx context.Context) (forgotten int, err error) {
	var window int64
	if _, err := c.db.Row(ctx, undeleteWindow, nil, &window); err != nil {
		return 0, fmt.Errorf("forget what was deleted: %w", err)
	}
	before := c.options.Now().UnixMilli() - window
	for _, statement := range []string{forgetTags, forgetManifests} {
		for {
			n, err := c.removeSome(ctx, statement, before, stepRows)
			forgotten += n
			if err != nil {
				return forgotten, fmt.Errorf("forget what was deleted: %w", err)
			}
			if n < stepRows {
				break
			}
		}
	}
	if err := imageuse.Forget(ctx, c.db, c.options.Now().Add(-c.options.UsesFor)); err != nil {
		return forgotten, fmt.Errorf("forget which images were in use: %w", err)
	}
	return forgotten, nil
}
