package model_test

import (
	"errors"
	"fmt"
	"testing"
)

// The model of package review: one row of a queue, two engines, and a writer that changes the
// subject of the row twice. An engine may die after every step, or be so slow that its lease
// ends.

const (
	idle    = iota
	claimed // its own transaction has committed
	holding // the review's transaction has begun: the row is locked FOR KEY SHARE
	decided // it has read the subject
	dead
)

// engine is one replica.
type engine struct {
	at   int
	read int // the version of the subject that it decided on
}

// queue is the database, and the processes.
type queue struct {
	row     bool
	token   int // 0 if not claimed; engine i has i+1
	version int // of the subject, committed
	acted   int // the newest version that a settled review has seen

	engines [2]engine
	// The writer's transaction: 0 none, 1 the subject is written, 2 the row of the queue too, which
	// it has locked FOR NO KEY UPDATE.
	writing int
	changes int // left
	crashes int // left
	leases  int // left that may end while their engine lives
}

const (
	clearToken  = "the enqueuer clears the token"
	tokenMatch  = "settling compares the token"
	enqueueOnce = "change and row are one transaction"
)

func queueModel(mutant string) walk[queue] {
	return walk[queue]{
		next: func(q queue) []step[queue] {
			steps := q.writer(mutant)
			for i := range q.engines {
				steps = append(steps, q.engine(i, mutant)...)
			}
			return steps
		},
		check: func(q queue, done bool) error {
			if q.engines[0].holds() && q.engines[1].holds() {
				return errors.New("two engines review the row")
			}
			if done && q.acted < q.version {
				return fmt.Errorf("the change %d is not reviewed, and no row is left", q.version)
			}
			return nil
		},
	}
}

func (e engine) holds() bool { return e.at == holding || e.at == decided }

// writer changes the subject. A trigger puts the row into the queue in the same transaction.
func (q queue) writer(mutant string) []step[queue] {
	switch q.writing {
	case 0:
		if q.changes == 0 {
			return nil
		}
		q.changes--
		q.writing = 1
		return []step[queue]{{"the writer changes the subject", q}}
	case 1:
		if mutant == enqueueOnce { // commit first, then enqueue: a crash falls between
			q.version++
			forgotten := q
			forgotten.writing = 0
			q.row, q.token, q.writing = true, 0, 0
			return []step[queue]{{"the writer commits and enqueues", q}, {"the writer commits and dies", forgotten}}
		}
		q.writing = 2
		return []step[queue]{{"the writer locks the row", q}}
	}
	q.version++
	if !q.row || mutant != clearToken {
		q.token = 0
	}
	q.row, q.writing = true, 0
	return []step[queue]{{"the writer commits", q}}
}

func (q queue) engine(i int, mutant string) (steps []step[queue]) {
	name := func(what string) string { return fmt.Sprintf("engine %d %s", i, what) }
	e, own := q.engines[i], i+1
	add := func(what string, change func(*queue)) {
		to := q
		change(&to)
		steps = append(steps, step[queue]{name(what), to})
	}
	other := q.engines[1-i]
	switch e.at {
	case idle:
		// SKIP LOCKED passes over a row that a review holds or a writer has written.
		if q.row && q.token == 0 && !other.holds() && q.writing != 2 {
			add("claims", func(n *queue) { n.token, n.engines[i].at = own, claimed })
		}
	case claimed:
		if q.token != own { // taken over, or enqueued again
			add("finds its claim gone", func(n *queue) { n.engines[i] = engine{} })
		} else {
			add("holds", func(n *queue) { n.engines[i].at = holding })
			if q.leases > 0 && other.at != dead {
				add("is slow, and its lease ends", func(n *queue) { n.token, n.leases = 0, n.leases-1 })
			}
		}
	case holding:
		add("reads", func(n *queue) { n.engines[i] = engine{decided, n.version} })
	case decided:
		if q.writing != 2 { // to delete the row waits for the writer's lock
			add("settles and commits", func(n *queue) {
				n.engines[i] = engine{}
				if n.token == own || mutant == tokenMatch {
					n.row, n.token, n.acted = false, 0, max(n.acted, e.read)
				}
			})
		}
	case dead:
		return nil
	}
	if q.crashes > 0 && (e.at != idle) && other.at != dead {
		// The transaction is rolled back; another replica takes the claim over.
		add("dies", func(n *queue) {
			n.crashes--
			n.engines[i].at = dead
			if n.token == own {
				n.token = 0
			}
		})
	}
	return steps
}

// TestQueueModel: whatever the order, a committed change is reviewed after it was committed, and no
// two engines review a row at the same time.
func TestQueueModel(t *testing.T) {
	holds(t, queue{changes: 3, crashes: 1, leases: 2}, queueModel, map[string]string{
		clearToken:  "is not reviewed",
		tokenMatch:  "is not reviewed",
		enqueueOnce: "is not reviewed",
	})
}
