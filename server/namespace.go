package server

import (
	"context"
	"errors"
	"fmt"
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

// ensureNamespaces makes the namespaces that clients take for granted.
func ensureNamespaces(ctx context.Context, st *store.Store, kinds *kind.Registry) error {
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		if _, err := st.Get(ctx, object.Key{Kind: "namespaces", Name: name}); err == nil {
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

// createNamespace makes a namespace, unless somebody else has.
func createNamespace(ctx context.Context, st *store.Store, kinds *kind.Registry, name string) error {
	v, ok := kinds.Snapshot().Lookup(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	if !ok {
		return errors.New("no Namespace kind")
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	builtin.Scheme().Default(ns)
	creation := lifecycle.Creation{Now: time.Now(), UID: types.UID(uuid.NewString())}
	if _, err := lifecycle.BeforeCreate(ctx, v.Strategy, ns, creation); err != nil {
		return err
	}
	body, err := v.Encode(ns)
	if err != nil {
		return err
	}
	_, err = st.Create(ctx, store.CreateRequest{Key: object.Key{Kind: v.Kind.Storage, Name: name}, Meta: ns.ObjectMeta, Body: body})
	if object.Is(err, object.AlreadyExists) || object.Is(err, object.BeingDeleted) {
		return nil
	}
	return err
}
