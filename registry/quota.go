package registry

import (
	"context"
	"errors"
	"strings"

	v1 "github.com/exeunt/exeunt/registry/v1"
)

// quotaMark is the error of the triggers on repository_blobs: a blob does not fit. They count
// in the transaction that gives a repository a blob, or takes it away.
const quotaMark = "registry quota"

func overQuota(err error) bool { return err != nil && strings.Contains(err.Error(), quotaMark) }

// explainQuota replaces the error of a trigger by what the client needs to know. Other errors stay.
func (r *Registry) explainQuota(ctx context.Context, repository string, err error) error {
	if !overQuota(err) {
		return err
	}
	namespace, _ := v1.Name(repository)
	var name string
	var most, used int64
	if _, failed := r.db.Row(context.WithoutCancel(ctx), findQuota, []any{repository, namespace}, &name, &most, &used); failed != nil {
		return errors.Join(err, failed)
	}
	return errorf(Denied, "the blob does not fit: the %s in namespace %s allows %s in blobs, and %s are used; delete images, or ask for a larger quota",
		name, namespace, v1.Size(most), v1.Size(used))
}
