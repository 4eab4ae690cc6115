package archive

import (
	"context"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/store"
)

// A restored object keeps its uid: what refers to it elsewhere refers to it again, and a
// repeated restore, also after a crash, recognizes what it created. docs/spec/archive.md says why
// that is safe for the collector.

// identitySpace is the UUID namespace of the uids of objects that come back as new ones.
var identitySpace = uuid.MustParse("6d1c1a52-6b6f-4a63-9a3f-0b8a5f6a3c11")

// identity returns the uid of the object that is restored from an archive row. For a kind
// whose restored objects are new ones it depends on the row only.
func identity(c *candidate, reborn bool) types.UID {
	if !reborn {
		return c.uid
	}
	return types.UID(uuid.NewSHA1(identitySpace, []byte(string(c.uid)+"/"+strconv.FormatInt(c.id, 10))).String())
}

// exists reports whether the owner of a reference exists and can own objects in the
// namespace, or would exist after this dry run.
func (r *restoration) exists(ctx context.Context, o metav1.OwnerReference, namespace string) (bool, error) {
	r.mu.Lock()
	key, here := r.now[o.UID]
	r.mu.Unlock()
	if here && r.names.refers(o, key, namespace) {
		return true, nil
	}
	heads, err := r.store.Reader().Heads(ctx, []types.UID{o.UID})
	if err != nil {
		return false, fmt.Errorf("look for owner %s: %w", o.UID, err)
	}
	h, found := heads[o.UID]
	return found && owns(h) && r.names.refers(o, h.Key, namespace), nil
}

// owns reports whether an object can own others: it is not DELETING, or the guard
// holds its deletion.
func owns(h store.Head) bool { return h.Deletion == 0 || h.Held() }
