package backup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/exeunt/exeunt/internal/lockfile"
	"github.com/exeunt/exeunt/internal/task"
)

// ErrBusy: another process writes to the target, or backs the same database up.
var ErrBusy = errors.New("another backup or prune is running")

const (
	// lockPrefix begins the names of the lock documents in a bucket.
	lockPrefix = "lock-"
	// A lock document counts for lockLease after its last write. Its process writes it
	// again every lockRefresh.
	lockLease   = 10 * time.Minute
	lockRefresh = time.Minute
)

// lock keeps other processes from writing to the target. The context that it returns
// ends if the lock is lost. In a directory the kernel releases the lock with the process.
func (t *Target) lock(ctx context.Context) (locked context.Context, unlock func() error, err error) {
	if t.dir == "" {
		return t.lockBucket(ctx)
	}
	f, err := os.OpenFile(filepath.Join(t.dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("lock %s: %w", t.dir, err)
	}
	got, err := lockfile.TryLock(f)
	if err == nil && !got {
		err = ErrBusy
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("lock %s: %w", t.dir, err), f.Close())
	}
	return ctx, f.Close, nil
}

// lockBucket writes a document and then looks for those of others: of two processes
// that do so at once, at least one sees the other and gives up. Ages are compared on the
// clock of the bucket.
func (t *Target) lockBucket(ctx context.Context) (context.Context, func() error, error) {
	own := lockPrefix + strings.ToLower(rand.Text())
	if err := t.store.PutDocument(ctx, own, []byte("a process writes backups here\n")); err != nil {
		return nil, nil, fmt.Errorf("lock %s: %w", t.location, err)
	}
	clean := context.WithoutCancel(ctx)
	if err := t.checkLocks(ctx, own); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("lock %s: %w", t.location, err), t.store.RemoveDocument(clean, own))
	}
	locked, lose := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t.keepLock(locked, own, lose)
	}()
	return locked, func() error {
		lose(nil)
		<-ended
		return t.store.RemoveDocument(clean, own)
	}, nil
}

func (t *Target) checkLocks(ctx context.Context, own string) error {
	list, err := t.store.ListDocuments(ctx)
	if err != nil {
		return err
	}
	var now time.Time
	for _, d := range list {
		if d.Name == own {
			now = d.Written
		}
	}
	for _, d := range list {
		if d.Name == own || !strings.HasPrefix(d.Name, lockPrefix) {
			continue
		}
		if now.Sub(d.Written) < lockLease {
			return ErrBusy
		}
		if err := t.store.RemoveDocument(ctx, d.Name); err != nil { // its process died
			return err
		}
	}
	return nil
}

// keepLock writes the document again until ctx ends. When that has failed for half of
// the lease, the lock is lost.
func (t *Target) keepLock(ctx context.Context, own string, lose context.CancelCauseFunc) {
	last := time.Now()
	for task.Sleep(ctx, lockRefresh) {
		err := t.store.PutDocument(ctx, own, []byte("a process writes backups here\n"))
		if err == nil {
			last = time.Now()
		} else if time.Since(last) > lockLease/2 {
			lose(fmt.Errorf("the lock of %s was lost: %w", t.location, err))
			return
		}
	}
}
