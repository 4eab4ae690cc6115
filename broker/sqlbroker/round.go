package sqlbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/sqldb"
)

// ErrRoundTaken: another process works on the resource.
var ErrRoundTaken = errors.New("another round is under way")

// Round is a lease on a resource: the right to work on it until a time.
type Round struct {
	Resource broker.ProvisionedResource
	Since    time.Time // start of its phase
	token    string
}

// BeginRound takes the lease of a resource and reads it. The claim of a review
// is not enough: a change that is enqueued meanwhile takes the claim away, so
// that no change is missed, and the next review begins while this one still
// works. The comparisons of the statements would keep two concurrent rounds
// safe, but one of them could create what the other has just observed gone.
//
// Errors: ErrRoundTaken, broker.ErrProvisionedResourceNotFound.
func (r *Repository) BeginRound(ctx context.Context, id broker.ProvisionedResourceID, now, until time.Time) (Round, error) {
	round := Round{token: r.db.Token()}
	begin := func() error {
		return r.db.Transact(ctx, func(tx *sqldb.Tx) error {
			taken, err := returned(ctx, tx, beginRound, string(id), round.token, until.UnixMilli(), now.UnixMilli())
			if err != nil || taken {
				return err
			}
			if err := missed(ctx, tx, id); !errors.Is(err, broker.ErrPhaseConflict) {
				return err
			}
			return ErrRoundTaken
		})
	}
	err := begin()
	if errors.Is(err, ErrRoundTaken) {
		var over bool
		if over, err = r.takeOver(ctx, id); err == nil {
			err = ErrRoundTaken
		}
		if over {
			err = begin()
		}
	}
	if err != nil {
		return Round{}, fmt.Errorf("begin round of %s: %w", id, err)
	}
	if round.Resource, round.Since, err = r.get(ctx, id); err != nil {
		return Round{}, errors.Join(err, r.end(ctx, id, round.token))
	}
	return round, nil
}

// EndRound gives the lease back. Without it the lease ends by its time.
func (r *Repository) EndRound(ctx context.Context, round Round) error {
	return r.end(ctx, round.Resource.ID(), round.token)
}

func (r *Repository) end(ctx context.Context, id broker.ProvisionedResourceID, token string) error {
	if err := r.exec(ctx, endRound, string(id), token); err != nil {
		return fmt.Errorf("end round of %s: %w", id, err)
	}
	return nil
}

// Forget removes a Deleted resource with its events, if all of them have been
// published. It reports whether the resource is gone. Its id is never reused,
// so no event of it can be stored again.
func (r *Repository) Forget(ctx context.Context, id broker.ProvisionedResourceID) (gone bool, err error) {
	err = r.db.Transact(ctx, func(tx *sqldb.Tx) error {
		removed, err := returned(ctx, tx, removeDeleted, string(id))
		if err != nil {
			return err
		}
		if !removed {
			found, err := returned(ctx, tx, find, string(id))
			gone = !found
			return err
		}
		gone = true
		return tx.Exec(ctx, removeEvents, string(id))
	})
	if err != nil {
		return false, fmt.Errorf("forget %s: %w", id, err)
	}
	return gone, nil
}

// takeOver ends the round of a process that is gone, so that other replicas
// need not wait for the lease to end. If that process still runs, two rounds
// overlap, which every comparison survives.
func (r *Repository) takeOver(ctx context.Context, id broker.ProvisionedResourceID) (bool, error) {
	var token string
	if _, err := r.db.Row(ctx, roundHolder, []any{string(id)}, &token); err != nil {
		return false, err
	}
	gone, err := r.db.Gone(ctx, []string{token})
	if err != nil || len(gone) == 0 {
		return false, err
	}
	return true, r.end(ctx, id, token)
}
