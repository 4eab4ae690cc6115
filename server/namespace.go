package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// systemNamespaces exist in every cluster, and clients rely on them. All but the last
// cannot be deleted (kind/builtin).
var systemNamespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, "kube-node-lease"}

// ensureNamespaces creates the missing system namespaces. It leaves one that is being
// deleted: its name is taken until it is removed.
func ensureNamespaces(ctx context.Context, st *store.Store, kinds *kind.Registry) error {
	for _, name := range systemNamespaces {
		if _, err := st.Get(ctx, object.Key{Kind: object.Namespaces, Name: name}); err == nil {
			continue
		} else if !object.Is(err, object.NotFound) {
			return fmt.Errorf("look for namespace %s: %w", name, err)
		}
		if err := createNamespace(ctx, st, kinds, name); err != nil {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
	}
	return nil
}

// keepNamespaces creates a system namespace again after any replica removed it, until
// the context ends. Every replica runs this; the create is idempotent.
//
// The watch begins at a revision before ensureNamespaces reads. So either that read
// or the watch sees a removal.
func keepNamespaces(ctx context.Context, st *store.Store, kinds *kind.Registry, log *slog.Logger) error {
	return st.Keep(ctx, log, "system namespaces could not be restored", func(from int64) error {
		if err := ensureNamespaces(ctx, st, kinds); err != nil {
			return err
		}
		return st.Follow(ctx, store.WatchRequest{Kind: object.Namespaces, From: from}, func(events []*store.Event) error {
			if slices.ContainsFunc(events, func(e *store.Event) bool {
				return e.Type == store.Removed && slices.Contains(systemNamespaces, e.Object.Name)
			}) {
				return ensureNamespaces(ctx, st, kinds)
			}
			return nil
		})
	})
}

// createNamespace creates a namespace, unless it exists.
func createNamespace(ctx context.Context, st *store.Store, kinds *kind.Registry, name string) error {
	v, ok := kinds.Snapshot().Lookup(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	if !ok {
		return errors.New("no Namespace kind")
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	builtin.Scheme().Default(ns)
	creation := lifecycle.Creation{Now: time.Now(), UID: types.UID(uuid.NewString())}
	made, _, err := v.Prepare(ctx, v.Strategy, ns, creation, nil)
	if err != nil {
		return err
	}
	_, err = st.Create(ctx, store.RequestFor(made))
	if object.Is(err, object.AlreadyExists) || object.Is(err, object.BeingDeleted) {
		return nil
	}
	return err
}
