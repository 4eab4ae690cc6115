package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// A restore handles the objects of a level in groups: a group is read by a few
// statements, each of its objects passes the rules of its kind, and the store writes
// the group in shared transactions. An object that needs more than that (it was
// restored and removed before, references wait for it, its owners change meanwhile)
// is restored alone, by one. A repeated restore finds most objects restored; it reads
// them in groups too.

const (
	// groupSize is how many objects one group has: they share a commit, for which
	// the writes of other clients wait.
	groupSize = 250
	// groups is how many groups are restored concurrently: one is read and prepared
	// while the other is written.
	groups = 2
	// preparers is how many objects of a group are prepared concurrently: webhooks
	// may judge each.
	preparers = 16
)

// level restores the objects of a level, until timeUp. It returns the results of
// those that it restored, in order.
func (r *restoration) level(ctx context.Context, level []*candidate, timeUp func() bool) ([]v1.RestoreResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limited, err := r.anyLimited(ctx, level)
	if err != nil {
		return nil, err
	}
	workers := groups
	if limited {
		workers = 1
	}
	results := make([]v1.RestoreResult, len(level))
	next := make(chan int)
	var working sync.WaitGroup
	for range min(workers, (len(level)+groupSize-1)/groupSize) {
		working.Go(func() {
			for i := range next {
				end := min(i+groupSize, len(level))
				if err := attempt(func() error { return r.group(ctx, level[i:end], results[i:end], limited, timeUp) }); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < len(level) && ctx.Err() == nil && !timeUp(); i += groupSize {
		next <- i
	}
	close(next)
	working.Wait()
	if ctx.Err() != nil {
		return nil, rethrow(context.Cause(ctx))
	}
	if r.spec.DryRun {
		r.applyQuotas(results, level)
	}
	done := results[:0]
	for _, result := range results {
		if result.Outcome != "" {
			done = append(done, result)
		}
	}
	return done, nil
}

// group restores some objects of a level. An object without an outcome was not begun
// before timeUp. If a quota limits them they are created one after the other, as a dry run counts them.
func (r *restoration) group(ctx context.Context, cs []*candidate, results []v1.RestoreResult, limited bool, timeUp func() bool) error {
	g, err := r.read(ctx, cs)
	if err != nil {
		return err
	}
	requests := make([]*store.CreateRequest, len(cs)) // nil if restored alone, or not at all
	err = concurrently(ctx, preparers, len(cs), func(i int) error {
		if timeUp() {
			return nil
		}
		var err error
		requests[i], err = r.prepareOne(ctx, g, cs[i], &results[i])
		return err
	})
	if err != nil {
		return err
	}
	var ends []int
	for i, request := range requests {
		if limited && request == nil && results[i].Outcome == "" {
			ends = append(ends, i, i+1)
		}
	}
	begin := 0
	for _, end := range append(ends, len(cs)) {
		if err := r.createAll(ctx, cs[begin:end], requests[begin:end], results[begin:end]); err != nil {
			return err
		}
		begin = end
	}
	return nil
}

// createAll stores objects that are prepared.
func (r *restoration) createAll(ctx context.Context, cs []*candidate, requests []*store.CreateRequest, results []v1.RestoreResult) error {
	var shared []store.CreateRequest
	var places []int
	for i, request := range requests {
		if request != nil {
			shared, places = append(shared, *request), append(places, i)
		}
	}
	errs := r.store.CreateAll(ctx, shared)
	created := make([]error, len(cs))
	for i, at := range places {
		created[at] = errs[i]
	}
	return concurrently(ctx, preparers, len(cs), func(i int) (err error) {
		switch {
		case results[i].Kind == "" || results[i].Outcome != "": // not begun, or decided
		case requests[i] == nil || alone(created[i]):
			results[i], err = r.one(ctx, cs[i])
		default:
			err = r.judge(ctx, cs[i], created[i], &results[i])
		}
		return err
	})
}

// alone reports whether one can do what a group cannot: look up the owners again, or relink
// the references that wait for the object.
func alone(err error) bool {
	return errors.Is(err, store.ErrOwnerIsBack) || errors.Is(err, store.ErrAwaited) || errors.Is(err, object.ErrAgain) || object.Is(err, object.Expired)
}

// concurrently calls fn for 0 to n-1, and returns the first error.
func concurrently(ctx context.Context, workers, n int, fn func(i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var working sync.WaitGroup
	for range min(workers, n) {
		working.Go(func() {
			for i := range next {
				if err := attempt(func() error { return fn(i) }); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		next <- i
	}
	close(next)
	working.Wait()
	return rethrow(context.Cause(ctx))
}

// panicked carries a panic from a worker to the goroutine of the request, where it is answered.
// In the worker it would end the server.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("%v\n%s", p.value, p.stack) }

// attempt calls fn. A panic becomes its error.
func attempt(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{p, debug.Stack()}
		}
	}()
	return fn()
}

// rethrow panics with an error that is a panic of a worker, and returns any other.
func rethrow(err error) error {
	if p := new(panicked); errors.As(err, &p) {
		panic(p)
	}
	return err
}

// reading is what the database says about the objects of a group.
type reading struct {
	lookedAt int64 // a revision before all reads
	archived map[int64]*row
	live     map[types.UID]store.Head // restored before
	dropped  map[types.UID]bool       // named in a dropped reference
}

func (r *restoration) read(ctx context.Context, cs []*candidate) (*reading, error) {
	ids, uids, restored := make([]int64, 0, len(cs)), make([]types.UID, len(cs)), make([]types.UID, len(cs))
	for i, c := range cs {
		if uids[i], restored[i] = c.uid, identity(c, r.reborn(c.key.Kind)); !c.restored && c.then == nil {
			ids = append(ids, c.id)
		}
	}
	reader := r.store.Reader()
	g := &reading{lookedAt: r.store.Revision(), archived: make(map[int64]*row, len(cs))}
	err := reader.Archived(ctx, store.ArchiveFilter{IDs: ids}, 0, len(ids), func(a *store.Archived) error {
		g.archived[a.ID] = a
		return nil
	})
	if err == nil {
		g.live, err = reader.Heads(ctx, restored)
	}
	if err == nil {
		g.dropped, err = reader.AnyDropped(ctx, uids)
	}
	if err != nil {
		return nil, fmt.Errorf("read the archive: %w", err)
	}
	return g, nil
}

// prepareOne makes the request that creates an object. It returns nil if the result
// has an outcome, or if the object must be restored alone.
func (r *restoration) prepareOne(ctx context.Context, g *reading, c *candidate, result *v1.RestoreResult) (*store.CreateRequest, error) {
	*result = r.resultOf(c)
	archived := cmp.Or(c.then, g.archived[c.id])
	switch {
	case result.Outcome != "":
		return nil, nil
	case c.restored:
		if h := g.live[result.NewUID]; h.Key == c.key && h.Deletion == 0 && !g.dropped[c.uid] {
			r.restoredBefore(c, result)
		}
		return nil, nil
	case unrestorable(archived, result):
		return nil, nil
	}
	if g.dropped[c.uid] || r.spec.DryRun || isDefaultAccount(c.key) {
		return nil, nil
	}
	if h, restored := g.live[result.NewUID]; restored {
		if h.Deletion == 0 && h.Key == c.key && c.id > 0 { // of a backup: see kept
			r.restoredBefore(c, result)
		}
		return nil, nil
	}
	request, err := r.prepare(ctx, c, archived.Body, nil, g.lookedAt, result)
	if err != nil && !alone(err) {
		err = r.judge(ctx, c, err, result)
		return nil, err
	}
	if err != nil {
		return nil, nil
	}
	return &request, nil
}
