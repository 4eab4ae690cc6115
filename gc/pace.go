package gc

import (
	"sync/atomic"
	"time"
)

// Nobody else writes while a review's transaction runs, so it has to be short;
// but each one costs a commit, so it should not be too short. How many objects
// that is depends on the machine and the database.
const (
	turnTime    = 40 * time.Millisecond // what a transaction should take
	leastBudget = 100
	firstBudget = 500
	mostBudget  = 2000
)

// pace finds out how many objects a transaction may change.
type pace struct {
	fixed int          // not 0: always this many
	each  atomic.Int64 // nanoseconds that an object took lately; 0: not known
}

func (p *pace) budget() int {
	if p.fixed > 0 {
		return p.fixed
	}
	each := p.each.Load()
	if each == 0 {
		return firstBudget
	}
	return min(max(int(int64(turnTime)/each), leastBudget), mostBudget)
}

// until is when a transaction begins nothing more. Objects that are alone, as in
// a chain, take much longer than those of a set.
func (p *pace) until(begin time.Time) time.Time {
	if p.fixed > 0 {
		return time.Time{}
	}
	return begin.Add(turnTime)
}

// spent is told what a transaction took. Small ones say little: what they took
// is the round trips.
func (p *pace) spent(objects int, took time.Duration) {
	if objects < leastBudget {
		return
	}
	each := max(int64(took)/int64(objects), 1)
	if before := p.each.Load(); before != 0 {
		each = (before + each) / 2 // one slow turn is no reason to crawl
	}
	p.each.Store(each)
}
