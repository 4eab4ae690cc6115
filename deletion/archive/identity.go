package archive

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
)

// identitySpace keeps our derived uids apart from everybody else's.
var identitySpace = uuid.MustParse("6d1c1a52-6b6f-4a63-9a3f-0b8a5f6a3c11")

// maxLives bounds how often one removal is followed into its restorations.
const maxLives = 1000

// identity is the uid of an object that is restored, for the n-th time, from
// the removal of the object with this uid. It follows from them alone, so that
// a restore that is repeated, also after a crash, recognizes what it did.
func identity(uid types.UID, n int) types.UID {
	return types.UID(uuid.NewSHA1(identitySpace, []byte(string(uid)+"/"+strconv.Itoa(n))).String())
}

// nextIdentity is the uid that an object gets when it is restored now: the
// first that no removed object had. A uid is the name of one life.
func (a *Archive) nextIdentity(ctx context.Context, uid types.UID) (types.UID, error) {
	for n := range maxLives {
		next := identity(uid, n)
		var one int64
		found, err := a.db.Row(ctx, wasArchived, []any{string(next)}, &one)
		if err != nil {
			return "", fmt.Errorf("look for uid %s: %w", next, err)
		}
		if !found {
			return next, nil
		}
	}
	return "", fmt.Errorf("object %s was restored and removed %d times", uid, maxLives)
}

// owner finds the object that a reference means now: the object itself, or what
// it was restored as. now is empty if there is none that could own something in
// the namespace, or it is being deleted; lives are then the uids that it had.
func (r *restoration) owner(ctx context.Context, o metav1.OwnerReference, namespace string) (now types.UID, lives []types.UID, err error) {
	r.mu.Lock()
	restored, here := r.now[o.UID]
	r.mu.Unlock()
	if here && r.names.refers(o, restored.key, namespace) {
		return restored.uid, nil, nil
	}
	for next := o.UID; next != "" && !slices.Contains(lives, next) && len(lives) < maxLives; {
		lives = append(lives, next)
		if found, err := r.canOwn(ctx, next, o, namespace); found || err != nil {
			return next, nil, err
		}
		var after string
		if _, err := r.db.Row(ctx, restoredAs, []any{string(next)}, &after); err != nil {
			return "", nil, fmt.Errorf("look for owner %s: %w", next, err)
		}
		next = types.UID(after)
	}
	// Its row may have left the archive since it was restored.
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
	var key object.Key
	found, err := r.db.Row(ctx, liveByUID, []any{string(uid)}, &key.Kind, &key.Namespace, &key.Name)
	if err != nil {
		return false, fmt.Errorf("look for owner %s: %w", uid, err)
	}
	return found && r.names.refers(o, key, namespace), nil
}
