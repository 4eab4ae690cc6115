package archive

import (
	"context"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
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

// owner finds the object that a reference to this uid means now: the object
// itself, or what it was restored as. found is false if there is none that
// could own something in the namespace, or it is on its way out.
func (a *Archive) owner(ctx context.Context, uid types.UID, namespace string) (now types.UID, found bool, err error) {
	if found, err = a.canOwn(ctx, uid, namespace); found || err != nil {
		return uid, found, err
	}
	next, err := a.nextIdentity(ctx, uid)
	if err != nil {
		return "", false, err
	}
	found, err = a.canOwn(ctx, next, namespace)
	return next, found, err
}

func (a *Archive) canOwn(ctx context.Context, uid types.UID, namespace string) (bool, error) {
	var where string
	var deleting bool
	found, err := a.db.Row(ctx, liveByUID, []any{string(uid)}, &where, &deleting)
	if err != nil {
		return false, fmt.Errorf("look for owner %s: %w", uid, err)
	}
	return found && !deleting && (where == "" || where == namespace), nil
}
