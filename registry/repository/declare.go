package repository

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/registry"
	v1 "github.com/exeunt/exeunt/registry/v1"
	"github.com/exeunt/exeunt/store"
)

var errNotCustom = errors.New("not a custom object")

// Declare creates the object of a path that is pushed to, and its namespace. It
// is idempotent. Errors for the client are a *registry.Error with the code
// DENIED.
func (r *Repositories) Declare(ctx context.Context, path string) error {
	if namespace, name := v1.Name(path); r.opts.DeclaredOnly {
		return denied("there is no Repository %s in namespace %s, and this registry accepts pushes only to declared repositories: create it first", name, namespace)
	}
	return r.declare(ctx, path)
}

func (r *Repositories) declare(ctx context.Context, path string) error {
	namespace, name := v1.Name(path)
	err := r.create(ctx, namespace, name, path)
	if object.Is(err, object.NoNamespace) {
		if r.opts.CreateNamespace == nil {
			return denied("there is no namespace %s, and this registry accepts pushes only to existing namespaces: create it first", namespace)
		}
		if err := r.opts.CreateNamespace(ctx, namespace); err != nil {
			return fmt.Errorf("make namespace %s: %w", namespace, err)
		}
		err = r.create(ctx, namespace, name, path)
	}
	switch {
	case err == nil, object.Is(err, object.AlreadyExists): // another push has created it
		return nil
	case object.Is(err, object.BeingDeleted):
		return denied("the repository is being deleted")
	case object.Is(err, object.Terminating), object.Is(err, object.NoNamespace):
		return denied("namespace %s is being deleted", namespace)
	case object.Is(err, object.Forbidden): // a quota counts Repositories
		return denied("namespace %s: %v", namespace, err)
	case store.Unavailable(err):
		// The store may be stopping; the registry cannot see that.
		refusal := &registry.Error{Code: registry.Unavailable, Message: "the server is stopping, or its database does not answer; try again later"}
		return errors.Join(refusal, err)
	}
	return fmt.Errorf("make Repository %s in namespace %s: %w", name, namespace, err)
}

func denied(format string, args ...any) error {
	return &registry.Error{Code: registry.Denied, Message: fmt.Sprintf(format, args...)}
}

func (r *Repositories) create(ctx context.Context, namespace, name, path string) error {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"path": path}}}
	u.SetGroupVersionKind(r.version.GVK)
	u.SetNamespace(namespace)
	u.SetName(name)
	creation := lifecycle.Creation{Namespace: namespace, Now: r.opts.Now(), UID: types.UID(uuid.NewString())}
	made, _, err := r.version.Prepare(ctx, r.version.Strategy, u, creation, nil)
	if err != nil {
		return err
	}
	_, err = r.store.Create(ctx, store.RequestFor(made))
	return err
}
