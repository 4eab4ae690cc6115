package expiry

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/exeunt/exeunt/sqldb"
)

// answer says whether a policy may take an object.
type answer int

const (
	takeNot   answer = iota // it waits for a confirmation, or is not what the row is about
	takeLater               // its objects are not counted yet
	taken                   // it may; the object is counted
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
}

// take is one object that a policy wants. answer and err are set under turn.
type take struct {
	policy   *Policy
	answered bool
	answer   answer
	err      error
}

func (t *taker) take(ctx context.Context, p *Policy) (answer, error) {
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
				one.answer = takeNot
			}
		}
	}
	return mine.answer, mine.err
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
	free := known.free(p, now)
	granted := takes[:min(free, int64(len(takes)))]
	for _, one := range takes {
		one.answer = takeNot
		if known.state == p.state() && !known.counted {
			one.answer = takeLater
		}
	}
	for _, one := range granted {
		one.answer = taken
	}
	if known.state != p.state() || !known.counted || known.waits {
		return nil
	}
	var b sqldb.Batch
	waits := len(granted) < len(takes)
	takenAt, status, full := now.UnixMilli(), now.Add(statusWait), int64(0)
	if len(granted) == 0 {
		takenAt = known.takenAt
	}
	if waits {
		status, full = now, 1
	}
	b.Exec(countTaken, string(p.UID), int64(len(granted)), day(now), takenAt, full)
	b.Exec(enqueueStatus, string(p.UID), status.UnixMilli(), now.UnixMilli())
	return tx.Send(ctx, &b)
}

// giveBack takes back a take whose delete was refused.
func (t *taker) giveBack(ctx context.Context, p *Policy) error {
	return t.db.Transact(context.WithoutCancel(ctx), func(tx *sqldb.Tx) error {
		var b sqldb.Batch
		b.Exec(returnTaken, string(p.UID), day(t.now()))
		return tx.Send(ctx, &b)
	}, sqldb.Unsynced)
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
}

// readKnown returns what is known; nothing for a new policy.
func readKnown(ctx context.Context, s sqldb.Sender, statement string, p *Policy) (k known, err error) {
	_, err = sqldb.First(ctx, s, []any{
		&k.state, &k.place, &k.countedAt, &k.waits, &k.scope, &k.selected, &k.due, &k.day, &k.today, &k.taken, &k.takenAt,
	}, statement, string(p.UID))
	k.counted = k.countedAt != 0
	return k, err
}

// free is how many objects the policy may take now.
func (k *known) free(p *Policy, now time.Time) int64 {
	if k.state != p.state() || !k.counted || k.waits {
		return 0
	}
	today := k.today
	if k.day != day(now) {
		today = 0
	}
	return max(p.most(k.scope)-today, 0)
}
