package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/sqldb"
)

// CreateOptions are the settings of Create. Zero values have a default.
type CreateOptions struct {
	// Version is the version of this program.
	Version string
	// Staging is a directory for the copy of an SQLite database, until it is in the
	// target. Default: the target, or the system's directory for temporary files.
	Staging string
	// Recipients are those of age that can read the backup. Empty if it is not encrypted.
	Recipients []string
	// Progress is called from time to time, one call at a time. May be nil.
	Progress func(Progress)

	// Tests change these: the lease of the hold, and what happens between two steps.
	lease   time.Duration
	between func(step string)
}

// Result is what Create has done.
type Result struct {
	Manifest
	Copied      int   `json:"copied"`       // blobs that were not in the target
	CopiedBytes int64 `json:"copiedBytes"`  // of those blobs
	Removed     int64 `json:"removedBytes"` // of interrupted and pruned backups
	// Warning says why the rests of other backups stay: one of them is damaged.
	Warning string `json:"warning,omitempty"`
}

// copiers is how many blobs are copied at once: most of them wait for a disk or a bucket.
const copiers = 4

// Create makes a backup of a server, which may run. The steps are in this order, and
// each needs the one before:
//  1. the hold: from now on no bytes are unlinked;
//  2. the copy of the database, and in the same transaction the list of its blobs;
//  3. the bytes of the blobs, each compared with its digest;
//  4. the hold is still there, so no bytes were unlinked meanwhile;
//  5. the manifest: from now on the backup exists.
func Create(ctx context.Context, s Server, t *Target, o CreateOptions) (result Result, err error) {
	s = s.WithDefaults()
	o.lease = cmp.Or(o.lease, holdLease)
	if err := errors.Join(checkSource(s), CheckRecipients(o.Recipients)); err != nil {
		return result, err
	}
	db, err := sqldb.OpenAsIs(ctx, s.Database)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := checkSteps(ctx, db); err != nil {
		return result, err
	}
	ctx, unlock, err := t.lock(ctx)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	c := &creation{server: s, target: t, db: db, options: o, progress: Progress{Step: "keys"}}
	c.manifest = Manifest{Format: format, ID: newID(time.Now()), Version: o.Version, Engine: string(db.Engine()), Recipients: o.Recipients}
	h, err := takeHold(ctx, db, c.manifest.ID, t.location, o.lease, c.current)
	if err != nil {
		return result, err
	}
	working, lose := context.WithCancelCause(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { h.keep(working, min(holdRefresh, o.lease/4), lose) })
	err = c.run(working, h)
	if cause := context.Cause(working); err != nil && cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	lose(nil)
	keeping.Wait()
	if err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
		defer cancel()
		return result, errors.Join(err, h.release(clean), c.undo(clean))
	}
	if err := h.end(ctx); err != nil {
		return result, err
	}
	c.at("sweep")
	c.result.Manifest = c.manifest
	c.result.Removed, err = t.sweep(ctx)
	if errors.Is(err, ErrDamaged) { // of another one: this backup is whole
		c.result.Warning, err = err.Error(), nil
	}
	return c.result, err
}

// cleanTimeout bounds the removal of what a failed backup has written.
const cleanTimeout = 30 * time.Second

// checkSource refuses what Open would create.
func checkSource(s Server) error {
	if strings.Contains(s.Database, "://") {
		return nil
	}
	if _, err := os.Stat(s.Database); err != nil {
		return fmt.Errorf("--database: %w: say where the server has it, or --data", err)
	}
	return nil
}

// checkSteps refuses a database that this program would have to migrate: its server runs, or
// ran last, with another version.
func checkSteps(ctx context.Context, db *sqldb.DB) error {
	steps, err := db.Steps(ctx)
	if err != nil {
		return err
	}
	for _, s := range steps {
		if !s.Done {
			return fmt.Errorf("the database does not have step %d (%s) of this program, and a backup changes nothing: use the server's version of exeunt, or run exeunt migrate up first", s.Number, s.Name)
		}
	}
	return nil
}

// creation is a backup that is being made.
type creation struct {
	server   Server
	target   *Target
	db       *sqldb.DB
	options  CreateOptions
	manifest Manifest
	blobs    []registry.StoredBlob

	mu       sync.Mutex
	progress Progress // guarded by mu
	result   Result   // guarded by mu until the copiers have ended
}

func (c *creation) run(ctx context.Context, h *hold) error {
	c.manifest.Created = time.Now().UTC()
	keys, err := readKeys(c.server)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		if err := c.save(ctx, keyFolder+name, strings.NewReader(keys[name])); err != nil {
			return err
		}
	}
	if err := c.begin(ctx, h, "database"); err != nil {
		return err
	}
	if err := c.copyDatabase(ctx); err != nil {
		return err
	}
	if err := c.begin(ctx, h, "blobs"); err != nil {
		return err
	}
	if err := c.copyBlobs(ctx); err != nil {
		return err
	}
	list, err := json.Marshal(c.blobs)
	if err != nil {
		return err
	}
	if err := c.save(ctx, blobList, strings.NewReader(string(list))); err != nil {
		return err
	}
	c.at("manifest")
	if err := h.extend(ctx); err != nil {
		return err
	}
	return c.target.put(ctx, c.manifest)
}

// begin is at with the step in the row of the hold.
func (c *creation) begin(ctx context.Context, h *hold, step string) error {
	c.show(func(p *Progress) { *p = Progress{Step: step, Total: int64(len(c.blobs))} })
	err := h.extend(ctx)
	c.at(step)
	return err
}

func (c *creation) current() Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.progress
}

// at names the step that begins.
func (c *creation) at(step string) {
	c.show(func(p *Progress) { *p = Progress{Step: step, Total: int64(len(c.blobs))} })
	if c.options.between != nil {
		c.options.between(step)
	}
}

func (c *creation) show(change func(*Progress)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.progress)
	if c.options.Progress != nil {
		c.options.Progress(c.progress)
	}
}

func (c *creation) save(ctx context.Context, name string, content io.Reader) error {
	recipients := c.manifest.Recipients
	if name == blobList {
		recipients = nil // a server that prunes reads it
	}
	file, err := c.target.save(ctx, name, countReader{content, func(n int) { c.show(func(p *Progress) { p.Bytes += int64(n) }) }}, recipients)
	if file.Path != "" {
		c.manifest.Files = append(c.manifest.Files, file)
	}
	return err
}

// undo removes the files of a backup that failed. The blobs stay for the next one.
func (c *creation) undo(ctx context.Context) error {
	// The manifest may have been written although its write failed.
	err := c.target.store.RemoveDocument(ctx, c.manifest.ID+manifestSuffix)
	for _, f := range c.manifest.Files {
		err = errors.Join(err, c.target.store.Remove(ctx, f.Path))
	}
	return err
}

func (c *creation) copyDatabase(ctx context.Context) (err error) {
	parent := c.options.Staging
	parent = cmp.Or(parent, c.target.dir) // empty means the system's
	if c.target.dir != "" {
		if err := removeStaging(c.target.dir); err != nil {
			return err
		}
	}
	staging, err := os.MkdirTemp(parent, stagingPrefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staging)) }()
	return c.db.Copy(ctx, staging,
		func(name string, content io.Reader) error { return c.save(ctx, databaseFolder+name, content) },
		func(copied sqldb.Sender) (err error) {
			c.blobs, c.manifest.StoreID, err = registry.StoredBlobs(ctx, copied)
			for _, b := range c.blobs {
				c.manifest.Blobs++
				c.manifest.BlobBytes += b.Size
			}
			return err
		})
}

const stagingPrefix = ".staging-"

// removeStaging removes what interrupted backups have left in a directory, which is
// locked.
func removeStaging(dir string) error {
	rests, err := filepath.Glob(filepath.Join(dir, stagingPrefix+"*"))
	for _, rest := range rests {
		err = errors.Join(err, os.RemoveAll(rest))
	}
	return err
}

func (c *creation) copyBlobs(ctx context.Context) error {
	if len(c.blobs) == 0 {
		return nil
	}
	known, err := c.target.known(ctx, c.manifest.Recipients)
	if err != nil {
		return err
	}
	if !strings.Contains(c.server.Storage, "://") {
		if _, err := os.Stat(c.server.Storage); err != nil {
			return fmt.Errorf("--registry-storage: %w: say where the server has it", err)
		}
	}
	source, err := blobstore.Open(ctx, c.server.Storage)
	if err != nil {
		return fmt.Errorf("--registry-storage: %w", err)
	}
	if marked, ok := source.(blobstore.Marked); ok {
		if err := registry.CheckBlobStore(ctx, c.db, marked); err != nil {
			return fmt.Errorf("--registry-storage %s: %w", c.server.Storage, err)
		}
	}
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(copiers)
	for _, b := range c.blobs {
		if working.Err() != nil {
			break
		}
		group.Go(func() error {
			copied, err := c.target.copyBlob(working, source, b, c.manifest.Recipients, known[b.Digest])
			if err != nil {
				return fmt.Errorf("blob %s: %w", b.Digest, err)
			}
			c.show(func(p *Progress) {
				p.Done++
				if copied {
					p.Bytes += b.Size
					c.result.Copied++
					c.result.CopiedBytes += b.Size
				}
			})
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// countReader reports how much was read.
type countReader struct {
	io.Reader
	count func(n int)
}

func (r countReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.count(n)
	return n, err
}

const encryptionFile = "encryption.yaml"

// keyFiles are the files, besides pki/, that a server keeps in its data directory. All
// of them have mode 0600, in a backup too.
var keyFiles = []string{"kubeconfig", "registry-token"}

// isKey reports whether a server has a key file of this name.
func isKey(name string) bool {
	if name == encryptionFile || slices.Contains(keyFiles, name) {
		return true
	}
	rest, ok := strings.CutPrefix(name, "pki/")
	return ok && fs.ValidPath(rest) && rest != "."
}

// readKeys reads the certificates, keys and passwords of a server. It reads all of them
// twice, until nothing has changed in between: the server may be renewing a certificate.
func readKeys(s Server) (keys map[string]string, err error) {
	const tries = 5
	for range tries {
		if keys, err = readKeysOnce(s); err != nil {
			return nil, fmt.Errorf("read the keys of the server: %w", err)
		}
		again, err := readKeysOnce(s)
		if err == nil && maps.Equal(keys, again) {
			return keys, nil
		}
	}
	return nil, errors.New("read the keys of the server: the files change all the time")
}

func readKeysOnce(s Server) (map[string]string, error) {
	keys := map[string]string{}
	read := func(name, path string) error {
		content, err := os.ReadFile(path)
		if err == nil {
			keys[name] = string(content)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // not every server has every file
		}
		return err
	}
	if err := read(encryptionFile, s.EncryptionConfig); err != nil {
		return nil, err
	}
	for _, name := range keyFiles {
		if err := read(name, filepath.Join(s.Data, name)); err != nil {
			return nil, err
		}
	}
	err := fs.WalkDir(os.DirFS(s.Data), "pki", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		return read(name, filepath.Join(s.Data, filepath.FromSlash(name)))
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s is not the data directory of a server: %w", s.Data, err)
	}
	return keys, err
}
