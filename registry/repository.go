package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/exeunt/exeunt/registry/internal/statement"
	v1 "github.com/exeunt/exeunt/registry/v1"
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
	found, err := r.db.Row(ctx, statement.FindRepository, []any{name}, &repo.id, &repo.namespace)
	if err != nil {
		return repository{}, false, fmt.Errorf("find repository %s: %w", name, err)
	}
	return repo, found, nil
}

// existing is repository for requests that require one.
func (r *Registry) existing(ctx context.Context, name string) (repository, error) {
	repo, found, err := r.repository(ctx, name)
	if err == nil && !found {
		err = errorf(NameUnknown, "there is no repository %s", name)
	}
	return repo, err
}

// removed reports whether the row of a repository was deleted since it was found.
// It is called after a failure, so that pushes need not lock the repository.
func (r *Registry) removed(ctx context.Context, repo repository) bool {
	var n int64
	found, err := r.db.Row(ctx, repositoryThere, []any{repo.id}, &n)
	return err == nil && !found
}

func errDeletedDuringPush(name string) error {
	return errorf(Denied, "repository %s was deleted during this push: push again", name)
}

// target is the repository of a push.
type target struct {
	repository
	declared                    bool // it has an object
	deleting, namespaceDeleting bool // the object, or its namespace, is being deleted
}

func (t *target) fields() []any {
	return []any{&t.id, &t.namespace, &t.declared, &t.deleting, &t.namespaceDeleting}
}

// refusal returns why a push to a repository is refused; nil means that it is accepted.
func (t *target) refusal(name string) error {
	switch {
	case t.deleting:
		return errorf(Denied, "repository %s is being deleted: nothing can be pushed to it until it is gone", name)
	case t.namespaceDeleting:
		return errorf(Denied, "namespace %s is being deleted: nothing can be pushed to %s", topLevel(name), name)
	}
	return nil
}

// usable reports whether a target exists, and has its object if there is an API.
func (r *Registry) usable(t target, found bool) bool {
	return found && (t.declared || r.declare == nil)
}

// errNoTarget: there is no repository to push to, or it has no object yet.
var errNoTarget = errors.New("no such repository")

// pushTo runs a transaction that pushes to a repository. If the repository is
// missing and mayCreate returns nil, pushTo creates it and runs the transaction
// again.
func (r *Registry) pushTo(ctx context.Context, to Request, mayCreate func() error, fn func(tx *sqldb.Tx, repo repository) error) (repo repository, err error) {
	once := func() error {
		return r.writer.do(ctx, func(tx *sqldb.Tx) (err error) {
			if repo, err = r.lockTarget(ctx, tx, to.Repository); err != nil {
				return err
			}
			return fn(tx, repo)
		})
	}
	err = once()
	if errors.Is(err, errNoTarget) {
		if err := mayCreate(); err != nil {
			return repository{}, err
		}
		if _, err := r.ensure(ctx, to); err != nil {
			return repository{}, err
		}
		err = once()
	}
	if errors.Is(err, errNoTarget) {
		err = errDeletedDuringPush(to.Repository)
	}
	return repo, err
}

// lockTarget runs in a push's transaction: until the transaction ends, the
// repository is neither marked for deletion nor removed.
func (r *Registry) lockTarget(ctx context.Context, tx *sqldb.Tx, name string) (repository, error) {
	statement := findTarget
	if r.db.Engine() == sqldb.Postgres {
		statement = lockTargetPostgres
	}
	var t target
	found, err := sqldb.First(ctx, tx, t.fields(), statement, name)
	if err == nil && !r.usable(t, found) {
		err = errNoTarget
	}
	if err != nil {
		return repository{}, err
	}
	return t.repository, t.refusal(name)
}

// ensure finds a repository for a push, or creates it as the client, which needs the
// right to create it. A request without a client creates nothing.
func (r *Registry) ensure(ctx context.Context, to Request) (repository, error) {
	repo, err := r.findTarget(ctx, to.Repository)
	if err != nil || repo.id != 0 {
		return repo, err
	}
	if to.client == nil && !to.fetched {
		return repository{}, errDeletedDuringPush(to.Repository)
	}
	var refusal error
	if !to.fetched {
		refusal = mayOne(to.client, []string{"create"}, to.Repository)
	}
	switch {
	case refusal != nil:
	case to.fetched && r.adopt != nil:
		refusal = r.adopt(ctx, to.Repository)
	case r.declare != nil:
		refusal = r.declare(ctx, to.client, to.Repository)
	default:
		refusal = r.insertRepository(ctx, to.Repository)
	}
	// Another push may have created it meanwhile.
	repo, err = r.findTarget(ctx, to.Repository)
	switch {
	case err == nil && repo.id != 0:
		return repo, nil
	case refusal != nil:
		return repository{}, wrapInternal("make repository "+to.Repository, refusal)
	case err == nil:
		err = errorf(Denied, "repository %s was created and is gone: it was deleted, or its name in the API belongs to another path", to.Repository)
	}
	return repository{}, err
}

// findTarget finds a repository for a push. Its id is 0 if it does not exist, or
// has no object yet.
func (r *Registry) findTarget(ctx context.Context, name string) (repository, error) {
	var t target
	found, err := r.db.Row(ctx, findTarget, []any{name}, t.fields()...)
	if err != nil {
		return repository{}, fmt.Errorf("find repository %s: %w", name, err)
	}
	if !r.usable(t, found) {
		return repository{}, nil
	}
	return t.repository, t.refusal(name)
}

// insertRepository creates a repository where there is no API.
func (r *Registry) insertRepository(ctx context.Context, name string) error {
	now := r.now().UnixMilli()
	return r.writer.do(ctx, func(tx *sqldb.Tx) error {
		var b sqldb.Batch
		b.Exec(statement.InsertNamespace, topLevel(name), now)
		b.Exec(statement.InsertRepository, topLevel(name), name, now)
		return tx.Send(ctx, &b)
	})
}

// topLevel returns the API namespace of a repository.
func topLevel(name string) string {
	namespace, _ := v1.Name(name)
	return namespace
}
