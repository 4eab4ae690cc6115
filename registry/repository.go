package registry

import (
	"context"
	"errors"
	"fmt"

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

// removed says whether a repository that was found is known to be gone, down to
// its row. It is asked after a failure, so that those who push do not have to
// lock the repository for this.
func (r *Registry) removed(ctx context.Context, repo repository) bool {
	var n int64
	found, err := r.db.Row(ctx, repositoryThere, []any{repo.id}, &n)
	return err == nil && !found
}

func errDeletedAtOnce(name string) error {
	return errorf(Denied, "repository %s was deleted at once", name)
}

// target is a repository that is pushed to.
type target struct {
	repository
	declared           bool // it has an object
	deleting, homeless bool // the object, or its namespace, is being deleted
}

func (t *target) fields() []any {
	return []any{&t.id, &t.namespace, &t.declared, &t.deleting, &t.homeless}
}

// refusal says why nothing can be pushed to a repository; nil: it can.
func (t *target) refusal(name string) error {
	switch {
	case t.deleting:
		return errorf(Denied, "repository %s is being deleted: nothing can be pushed to it until it is gone", name)
	case t.homeless:
		return errorf(Denied, "namespace %s is being deleted: nothing can be pushed to %s", topLevel(name), name)
	}
	return nil
}

// usable says whether a target is there, with its object where there is an API.
func (r *Registry) usable(t target, found bool) bool {
	return found && (t.declared || r.declare == nil)
}

// errNoTarget: there is no repository to push to, or it has no object yet.
var errNoTarget = errors.New("no such repository")

// pushTo runs a transaction that pushes to a repository. One that is not there
// is made, if mayMake has nothing against it, and the transaction is run again.
func (r *Registry) pushTo(ctx context.Context, name string, mayMake func() error, fn func(tx *sqldb.Tx, repo repository) error) (repo repository, err error) {
	once := func() error {
		return r.writer.do(ctx, func(tx *sqldb.Tx) (err error) {
			if repo, err = r.lockTarget(ctx, tx, name); err != nil {
				return err
			}
			return fn(tx, repo)
		})
	}
	err = once()
	if errors.Is(err, errNoTarget) {
		if err := mayMake(); err != nil {
			return repository{}, err
		}
		if _, err := r.ensure(ctx, name); err != nil {
			return repository{}, err
		}
		err = once()
	}
	if errors.Is(err, errNoTarget) {
		err = errDeletedAtOnce(name)
	}
	return repo, err
}

// lockTarget is part of a push's transaction: from here to its end the
// repository is neither marked nor removed.
func (r *Registry) lockTarget(ctx context.Context, tx *sqldb.Tx, name string) (repository, error) {
	statement := findTarget
	if r.db.Engine() == sqldb.Postgres {
		statement = lockTargetPostgres
	}
	var t target
	found, err := one(ctx, tx, statement, []any{name}, t.fields()...)
	if err == nil && !r.usable(t, found) {
		err = errNoTarget
	}
	if err != nil {
		return repository{}, err
	}
	return t.repository, t.refusal(name)
}

// ensure finds a repository that can be pushed to, or makes it: the first push
// does.
func (r *Registry) ensure(ctx context.Context, name string) (repository, error) {
	repo, err := r.findTarget(ctx, name)
	if err != nil || repo.id != 0 {
		return repo, err
	}
	create := r.declare
	if create == nil {
		create = r.insertRepository
	}
	if err := create(ctx, name); err != nil {
		return repository{}, during("make repository "+name, err)
	}
	repo, err = r.findTarget(ctx, name)
	if err == nil && repo.id == 0 {
		// Deleted at once, or its name in the API stands for another path.
		err = errorf(Denied, "repository %s could not be made: its name in the API is taken", name)
	}
	return repo, err
}

// findTarget finds a repository that can be pushed to. It has no id if there is
// none, or if it has no object yet.
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

// insertRepository makes a repository where there is no API.
func (r *Registry) insertRepository(ctx context.Context, name string) error {
	now := r.now().UnixMilli()
	return r.writer.do(ctx, func(tx *sqldb.Tx) error {
		var b sqldb.Batch
		b.Exec(insertNamespace, topLevel(name), now)
		b.Exec(insertRepository, topLevel(name), name, now)
		return tx.Send(ctx, &b)
	})
}

// topLevel is the API namespace of a repository.
func topLevel(name string) string {
	namespace, _ := v1.Name(name)
	return namespace
}
