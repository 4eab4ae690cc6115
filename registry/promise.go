package registry

import (
	"context"
	"fmt"
	"strconv"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/sqldb"
)

// A client that learns that something exists does not push it, and refers to it
// a little later. If the collector removed it in between, that push would fail.
// So the registry postpones a review that is due soon before it answers. The
// usual existence check finds no such review and only reads.
//
// The delay of existence_check says how long something stays after the answer.
// Operators may change it, so each statement reads it.

// promiseBlob finds a blob and makes sure that it stays.
func (r *Registry) promiseBlob(ctx context.Context, to Request) (b blob, found bool, err error) {
	due := false
	found, err = r.db.Row(ctx, findBlobDue, []any{to.Repository, to.Digest.String(), r.now().UnixMilli()}, &b.path, &b.size, &b.small, &due)
	if err == nil && found && due {
		err = r.writer.do(ctx, func(tx *sqldb.Tx) (err error) {
			found, err = queryOne(ctx, tx, statement.KeepBlob, []any{to.Digest.String(), to.Repository}, &b.path, &b.size, &b.small)
			return err
		})
	}
	if err != nil {
		return blob{}, false, fmt.Errorf("find blob: %w", err)
	}
	return b, found, nil
}

// promiseManifest finds a manifest and makes sure that it stays.
func (r *Registry) promiseManifest(ctx context.Context, to Request) (m stored, found bool, err error) {
	m, found, err = r.findManifest(ctx, to)
	if err != nil || !found {
		return m, found, err
	}
	var n int64
	key := strconv.FormatInt(m.repo, 10) + "@" + m.digest.String()
	due, err := r.db.Row(ctx, manifestDue, []any{key, r.now().UnixMilli()}, &n)
	if err == nil && !due {
		// No review is due, or a review has just deleted the manifest: check
		// that it exists.
		found, err = r.db.Row(ctx, statement.ManifestThere, []any{m.id}, &n)
	}
	if err == nil && due {
		err = r.writer.do(ctx, func(tx *sqldb.Tx) (err error) {
			found, err = queryOne(ctx, tx, statement.KeepManifest, []any{m.id}, &n)
			return err
		})
	}
	if err == nil && found {
		// The answer may be the end of the client's work, so the postponement
		// must be durable. A client that asks for a blob pushes a manifest next,
		// and that commit makes both durable.
		err = r.writer.flush()
	}
	if err != nil {
		return stored{}, false, fmt.Errorf("find manifest: %w", err)
	}
	return m, found, nil
}

// mount links a blob of another repository to this one. It returns no digest if
// there is no such blob: the client then uploads it. Without from, any
// repository may be the source: a client that knows the digest has seen the
// content.
func (r *Registry) mount(ctx context.Context, to Request, from, what string) (digest.Digest, error) {
	want, err := parseDigest(what)
	if err != nil {
		return "", err
	}
	if from != "" {
		if err := checkName(from); err != nil {
			return "", err
		}
	}
	repo, err := r.ensure(ctx, to)
	if err != nil {
		return "", err
	}
	found, err := r.mountTo(ctx, repo, want, from)
	if err != nil && r.removed(ctx, repo) {
		return "", nil // an upload creates the repository
	}
	if err != nil {
		return "", fmt.Errorf("mount blob: %w", err)
	}
	if !found {
		return "", nil
	}
	r.touched(repo.id)
	return want, nil
}

// mountTo links a blob to a repository, if there is such a blob, and makes sure that it
// stays: like promiseBlob it only reads the blob unless its review is due soon.
//
// A client that mounts a blob pushes a manifest next. That push finds the link or is refused,
// and its commit makes both durable. So the mount does not wait for the disk.
func (r *Registry) mountTo(ctx context.Context, repo repository, want digest.Digest, from string) (found bool, err error) {
	now := r.now().UnixMilli()
	err = r.writer.doSoon(ctx, func(tx *sqldb.Tx) error {
		var b sqldb.Batch
		b.Found(&found, mountBlob, repo.namespace, repo.id, want.String(), now, from)
		return tx.SendLast(ctx, &b)
	})
	if err == nil && found {
		return true, nil
	}
	// The review is due soon or has just removed the blob, the blob is linked already, or there
	// is none.
	err = r.writer.doSoon(ctx, func(tx *sqldb.Tx) (err error) {
		var b blob
		found, err = queryOne(ctx, tx, statement.KeepBlob, []any{want.String(), from}, &b.path, &b.size, &b.small)
		if err != nil || !found {
			return err
		}
		var link sqldb.Batch
		link.Exec(statement.LinkBlob, repo.namespace, repo.id, want.String(), now)
		return tx.SendLast(ctx, &link)
	})
	return found, err
}
