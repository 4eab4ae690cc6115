package gc

import (
	"sync/atomic"
	"time"
)

// A review's transaction blocks all other writers, so it must be short; but each
// one costs a commit, so it must not be too short. How many objects fit depends on
// the machine and the database.
const (
	targetTime  = 40 * time.Millisecond // of one transaction
	leastBudget = 100
	firstBudget = 500
	mostBudget  = 2000
)

// pace measures how many objects a transaction may change.
type pace struct {
	fixed int          // not 0: always this many
	each  atomic.Int64 // average nanoseconds per object; 0: not known
}

func (p *pace) budget() int {
	if p.fixed > 0 {
		return p.fixed
	}
	each := p.each.Load()
	if each == 0 {
		return firstBudget
	}
	return min(max(int(int64(targetTime)/each), leastBudget), mostBudget)
}

// until returns when a transaction begins no more reviews. It is needed besides
// the budget: objects in a chain take much longer than those of one batch.
func (p *pace) until(begin time.Time) time.Time {
	if p.fixed > 0 {
		return time.Time{}
	}
	return begin.Add(targetTime)
}

// spent records the duration of a transaction. It ignores small ones, whose
// duration is mostly round trips.
func (p *pace) spent(objects int, took time.Duration) {
	if objects < leastBudget {
		return
	}
	each := max(int64(took)/int64(objects), 1)
	if before := p.each.Load(); before != 0 {
		each = (before + each) / 2 // one slow transaction changes the budget only by half
	}
	p.each.Store(each)
}
