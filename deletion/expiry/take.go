package expiry

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/sqldb"
)

// taker counts what policies take, before they take it: so that they never take more than a person has confirmed.
// What is counted and then not taken, because of a crash, counts until the end of the day. All takes of a moment share a transaction, of which no disk needs to be waited for: the delete comes later in
// the same log.
type taker struct {
	db  *sqldb.DB
	now func() time.Time

	queue   sync.Mutex // of waiting
	waiting []*take
	turn    sync.Mutex // held while takes are counted
	refused map[types.UID]refused
}

// refused is how many objects did not fit into a slot of a policy. guarded by turn
type refused struct {
	ends    time.Time // of the slot
	objects int64
}

// take is one object that a policy wants. The answer and err are set under turn.
type take struct {
	policy   *Policy
	answered bool
	taken    bool      // it may; the object is counted
	later    time.Time // if it is not taken: when to ask again; zero: not before a write
	err      error
}

func (t *taker) take(ctx context.Context, p *Policy) (taken bool, later time.Time, err error) {
	mine := &take{policy: p}
	t.queue.Lock()
	t.waiting = append(t.waiting, mine)
	t.queue.Unlock()
	t.turn.Lock()
	defer t.turn.Unlock()
	if !mine.answered {
		t.queue.Lock()
		group := t.waiting
		t.waiting = nil
		t.queue.Unlock()
		err := t.count(context.WithoutCancel(ctx), group)
		for _, one := range group {
			one.answered = true
			if one.err = err; err != nil {
				one.taken, one.later = false, time.Time{}
			}
		}
	}
	return mine.taken, mine.later, mine.err
}

// count answers takes.
func (t *taker) count(ctx context.Context, group []*take) error {
	byPolicy := map[*Policy][]*take{}
	for _, one := range group {
		byPolicy[one.policy] = append(byPolicy[one.policy], one)
	}
	for p, takes := range byPolicy {
		err := t.db.Transact(ctx, func(tx *sqldb.Tx) error { return t.countOf(ctx, tx, p, takes) }, sqldb.Unsynced)
		if err != nil {
			return fmt.Errorf("count what %s takes: %w", p, err)
		}
	}
	return nil
}

func (t *taker) countOf(ctx context.Context, tx *sqldb.Tx, p *Policy, takes []*take) error {
	known, err := readKnown(ctx, tx, lockKnown[t.db.Engine()], p)
	if err != nil {
		return err
	}
	now := t.now()
	for _, one := range takes {
		one.taken, one.later = false, time.Time{}
		if known.state == p.state() && !known.counted {
			one.later = now.Add(countingWait)
		}
	}
	if known.state != p.state() || !known.counted || known.waits {
		return nil
	}
	today, inSlot := known.free(p, now)
	granted := min(today, inSlot, int64(len(takes)))
	for _, one := range takes[:granted] {
		one.taken = true
	}
	waits := today < inSlot && granted < int64(len(takes))
	if rest := takes[granted:]; !waits && len(rest) > 0 {
		t.postpone(p, rest, now)
	}
	var b sqldb.Batch
	takenAt, status, full := now.UnixMilli(), now.Add(statusWait), int64(0)
	if granted == 0 {
		takenAt = known.takenAt
	}
	if waits {
		status, full = now, 1
	}
	b.Exec(countTaken, string(p.UID), granted, day(now), takenAt, full, p.slotOf(now))
	b.Exec(enqueueStatus, string(p.UID), status.UnixMilli(), now.UnixMilli())
	return tx.Send(ctx, &b)
}

// postpone spreads what does not fit into a slot over the slots that follow, so that not all of it asks again in each.
func (t *taker) postpone(p *Policy, rest []*take, now time.Time) {
	r := t.refused[p.UID]
	if !r.ends.After(now) {
		maps.DeleteFunc(t.refused, func(_ types.UID, r refused) bool { return !r.ends.After(now) })
		r = refused{ends: now.Truncate(p.slot).Add(p.slot)}
	}
	for _, one := range rest {
		one.later = p.nextSlot(now, 1+r.objects/p.Rate)
		r.objects++
	}
	if t.refused == nil {
		t.refused = map[types.UID]refused{}
	}
	t.refused[p.UID] = r
}

func day(at time.Time) int64 { return at.Unix() / (24 * 60 * 60) }

// known is what the server knows about a policy besides the object.
type known struct {
	state, place         string
	counted, waits       bool
	countedAt            int64
	scope, selected, due int64
	day, today           int64
	taken, takenAt       int64
	slot, inSlot         int64
}

// count adds objects that the policy takes at a time.
func (k *known) count(p *Policy, at time.Time, objects int64) {
	if d := day(at); k.day != d {
		k.day, k.today = d, 0
	}
	if s := p.slotOf(at); k.slot != s {
		k.slot, k.inSlot = s, 0
	}
	k.today, k.inSlot = k.today+objects, k.inSlot+objects
}

// readKnown returns what is known; nothing for a new policy.
func readKnown(ctx context.Context, s sqldb.Sender, statement string, p *Policy) (k known, err error) {
	_, err = sqldb.First(ctx, s, []any{
		&k.state, &k.place, &k.countedAt, &k.waits, &k.scope, &k.selected, &k.due, &k.day, &k.today, &k.taken, &k.takenAt, &k.slot, &k.inSlot,
	}, statement, string(p.UID))
	k.counted = k.countedAt != 0
	return k, err
}

// free is how many objects the policy may take on the day of a time, and in its slot.
func (k *known) free(p *Policy, at time.Time) (today, inSlot int64) {
	today, inSlot = p.most(k.scope), p.inSlot()
	if k.day == day(at) {
		today -= k.today
	}
	if k.slot == p.slotOf(at) {
		inSlot -= k.inSlot
	}
	return max(today, 0), max(inSlot, 0)
}
