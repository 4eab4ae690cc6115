package archive

import (
	"context"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// withoutDefaults leaves out the ServiceAccount "default" of a namespace that is restored
// too, if no client has changed it: the server creates an equal one with the namespace. A
// restore of both would be a race between the two.
func withoutDefaults(all []*candidate) []*candidate {
	namespaces := map[string]bool{}
	for _, c := range all {
		if c.key.Kind == object.Namespaces {
			namespaces[c.key.Name] = true
		}
	}
	return slices.DeleteFunc(all, func(c *candidate) bool { return c.isDefault && namespaces[c.key.Namespace] })
}

// isDefault reports whether an object is as the server creates it in every namespace.
func isDefault(key object.Key, body []byte) bool {
	if !isDefaultAccount(key) {
		return false
	}
	for _, changed := range []string{"secrets", "imagePullSecrets", "automountServiceAccountToken", "metadata.labels", "metadata.annotations", "metadata.ownerReferences", "metadata.finalizers"} {
		if gjson.GetBytes(body, changed).Exists() {
			return false
		}
	}
	return len(body) > 0
}

func isDefaultAccount(key object.Key) bool {
	return key.Kind == object.ServiceAccounts && key.Name == object.DefaultAccount
}

// putDefault creates a ServiceAccount "default" that a client had changed. The server may have created one as soon as
// the namespace was back: it is removed in the same transaction, unless a client has changed it, too.
func (r *restoration) putDefault(ctx context.Context, request store.CreateRequest) error {
	taken := object.Errorf(object.AlreadyExists, "%s exists", request.Key)
	holder, err := r.store.Get(ctx, request.Key)
	if err != nil {
		return taken // it is gone again: see taken
	}
	return r.store.Transact(ctx, func(tx *store.Tx) error {
		o, err := tx.GetByUID(ctx, holder.UID)
		if err != nil {
			return err
		}
		if o == nil || o.Deleting || o.UID == request.Meta.UID || !isDefault(o.Key, o.Body) {
			return taken
		}
		if r.spec.DryRun {
			return nil
		}
		tx.Remove(o)
		if err := tx.Flush(); err != nil {
			return err
		}
		return tx.Restore(ctx, request)
	})
}
