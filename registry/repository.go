package registry

import (
	"context"
	"fmt"
	"strings"

	"github.com/exeunt/exeunt/sqldb"
)

// repository is the row of a repository.
type repository struct {
	id        int64
	namespace int64 // top_level_namespaces.id
}

// repository finds a repository by name.
func (r *Registry) repository(ctx context.Context, name string) (repository, bool, error) {
	var repo repository
	found, err := r.db.Row(ctx, findRepository, []any{name}, &repo.id, &repo.namespace)
	if err != nil {
		return repository{}, false, fmt.Errorf("find repository %s: %w", name, err)
	}
	return repo, found, nil
}

// existing is repository for requests that need one.
func (r *Registry) existing(ctx context.Context, name string) (repository, error) {
	repo, found, err := r.repository(ctx, name)
	if err == nil && !found {
		err = errorf(NameUnknown, "there is no repository %s", name)
	}
	return repo, err
}

// ensure finds a repository, or makes it: the first push does.
func (r *Registry) ensure(ctx context.Context, name string) (repository, error) {
	repo, found, err := r.repository(ctx, name)
	if err != nil || found {
		return repo, err
	}
	now := r.now().UnixMilli()
	err = r.writer.do(ctx, func(tx *sqldb.Tx) error {
		var b sqldb.Batch
		b.Exec(insertNamespace, topLevel(name), now)
		b.Exec(insertRepository, topLevel(name), name, now)
		if err := tx.Send(ctx, &b); err != nil {
			return err
		}
		// A statement of its own: on PostgreSQL it sees what another
		// transaction committed while the insert waited for it.
		found, err = one(ctx, tx, findRepository, []any{name}, &repo.id, &repo.namespace)
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("it was deleted at once")
	}
	if err != nil {
		return repository{}, fmt.Errorf("make repository %s: %w", name, err)
	}
	return repo, nil
}

// topLevel is the API namespace of a repository: the first component of its
// path, or default where there is no other.
func topLevel(name string) string {
	first, _, deeper := strings.Cut(name, "/")
	if !deeper {
		return "default"
	}
	return first
}
