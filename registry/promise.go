package registry

import (
	"context"
	"fmt"
	"strconv"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/sqldb"
)

// A client that is told that something exists does not push it, and relies on
// it a little later. If a collector were to take it in between, that push would
// be refused. So what is soon to be reviewed is put off before the answer is
// given. The usual existence check finds nothing due and stays a read.
//
// How long something must stay after it was said to exist is the delay of
// existence_check, which operators may change; so it is read where it is
// compared.

// promiseBlob finds a blob that stays.
func (r *Registry) promiseBlob(ctx context.Context, to Request) (b blob, found bool, err error) {
	due := false
	found, err = r.db.Row(ctx, findBlobDue, []any{to.Repository, to.Digest.String(), r.now().UnixMilli()}, &b.path, &b.size, &b.small, &due)
	if err == nil && found && due {
		err = r.writer.do(ctx, func(tx *sqldb.Tx) (err error) {
			found, err = one(ctx, tx, keepBlob, []any{to.Digest.String(), to.Repository}, &b.path, &b.size, &b.small)
			return err
		})
	}
	if err != nil {
		return blob{}, false, fmt.Errorf("find blob: %w", err)
	}
	return b, found, nil
}

// promiseManifest finds a manifest that stays.
func (r *Registry) promiseManifest(ctx context.Context, to Request) (m stored, found bool, err error) {
	m, found, err = r.findManifest(ctx, to)
	if err != nil || !found {
		return m, found, err
	}
	var n int64
	key := strconv.FormatInt(m.repo, 10) + "@" + m.digest.String()
	due, err := r.db.Row(ctx, manifestDue, []any{key, r.now().UnixMilli()}, &n)
	if err == nil && !due {
		// Nothing is due because nothing was, or because a review took the
		// manifest after it was found: look again.
		found, err = r.db.Row(ctx, manifestThere, []any{m.id}, &n)
	}
	if err == nil && due {
		err = r.writer.do(ctx, func(tx *sqldb.Tx) (err error) {
			found, err = one(ctx, tx, keepManifest, []any{m.id}, &n)
			return err
		})
	}
	if err == nil && found {
		// A client that is told of a manifest may end here. One that is told of
		// a blob pushes a manifest, which lasts only if its blobs do.
		err = r.writer.flush()
	}
	if err != nil {
		return stored{}, false, fmt.Errorf("find manifest: %w", err)
	}
	return m, found, nil
}

// mount makes a blob of another repository one of this repository as well. It
// returns no digest when there is no such blob: then the client has to upload
// it. Without from, any repository will do: whoever knows the digest has seen
// the content.
func (r *Registry) mount(ctx context.Context, name, from, what string) (digest.Digest, error) {
	want, err := parseDigest(what)
	if err != nil {
		return "", err
	}
	if from != "" {
		if err := checkName(from); err != nil {
			return "", err
		}
	}
	repo, err := r.ensure(ctx, name)
	if err != nil {
		return "", err
	}
	var found bool
	err = r.writer.do(ctx, func(tx *sqldb.Tx) (err error) {
		var b blob
		found, err = one(ctx, tx, keepBlob, []any{want.String(), from}, &b.path, &b.size, &b.small)
		if err != nil || !found {
			return err
		}
		return exec(ctx, tx, linkBlob, repo.namespace, repo.id, want.String(), r.now().UnixMilli())
	})
	if err != nil && r.removed(ctx, repo) {
		return "", nil // an upload makes it anew
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
