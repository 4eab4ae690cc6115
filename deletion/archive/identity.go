package archive

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/store"
)

// identitySpace is the UUID namespace of the derived uids.
var identitySpace = uuid.MustParse("6d1c1a52-6b6f-4a63-9a3f-0b8a5f6a3c11")

// maxRestores bounds how many restores of one object are followed.
const maxRestores = 1000

// identity returns the uid of the n-th restored object of the removed object with
// this uid. It depends on these two only, so a repeated restore, also after a
// crash, recognizes what it created.
func identity(uid types.UID, n int) types.UID {
	return types.UID(uuid.NewSHA1(identitySpace, []byte(string(uid)+"/"+strconv.Itoa(n))).String())
}

// nextIdentity returns the uid that an object gets if it is restored now: the
// first one that no removed object had. A uid is never used twice.
func (a *Archive) nextIdentity(ctx context.Context, uid types.UID) (types.UID, error) {
	for n := range maxRestores {
		next := identity(uid, n)
		found, err := a.store.Reader().WasRemoved(ctx, next)
		if err != nil {
			return "", fmt.Errorf("look for uid %s: %w", next, err)
		}
		if !found {
			return next, nil
		}
	}
	return "", fmt.Errorf("object %s was restored and removed %d times", uid, maxRestores)
}

// owner finds the owner of a reference as it exists now: the object itself, or the
// object that it was restored as. now is empty if no such object can own objects
// in the namespace, or if it is DELETING; lives are then the uids that it had.
func (r *restoration) owner(ctx context.Context, o metav1.OwnerReference, namespace string) (now types.UID, lives []types.UID, err error) {
	r.mu.Lock()
	restored, here := r.now[o.UID]
	r.mu.Unlock()
	if here && r.names.refers(o, restored.key, namespace) {
		return restored.uid, nil, nil
	}
	for next := o.UID; next != "" && !slices.Contains(lives, next) && len(lives) < maxRestores; {
		lives = append(lives, next)
		if found, err := r.canOwn(ctx, next, o, namespace); found || err != nil {
			return next, nil, err
		}
		after, err := r.store.Reader().RestoredAs(ctx, next)
		if err != nil {
			return "", nil, fmt.Errorf("look for owner %s: %w", next, err)
		}
		next = after
	}
	// Its archive row may have expired since it was restored.
	next, err := r.nextIdentity(ctx, o.UID)
	if err != nil {
		return "", nil, err
	}
	if found, err := r.canOwn(ctx, next, o, namespace); found || err != nil {
		return next, nil, err
	}
	return "", lives, nil
}

func (r *restoration) canOwn(ctx context.Context, uid types.UID, o metav1.OwnerReference, namespace string) (bool, error) {
	h, found, err := r.store.Reader().HeadByUID(ctx, uid)
	if err != nil {
		return false, fmt.Errorf("look for owner %s: %w", uid, err)
	}
	return found && owns(h) && r.names.refers(o, h.Key, namespace), nil
}

// owns reports whether an object can own others: it is not DELETING, or the guard
// holds its deletion.
func owns(h store.Head) bool { return h.Deletion == 0 || h.Held() }
