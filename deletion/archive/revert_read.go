package archive

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

const (
	// mostMemory bounds the bodies that all reverts of a process hold: those of the objects that differ, then and now.
	mostMemory = 256 << 20
	// leastRevert is counted for a revert that has read nothing yet: the runs of its two lists.
	leastRevert = 8 << 20
)

// budget is bytes that several share.
type budget struct {
	most int64
	used atomic.Int64
}

// memory is what one revert holds of a budget.
type memory struct {
	of    *budget
	bytes int64
}

// errBusy: other reverts hold the memory. It passes.
var errBusy = errors.New("other reverts hold the memory that there is for reverts: try again when they have ended")

// take takes further bytes. Errors: TooLarge for more than there are at all; errBusy.
func (m *memory) take(bytes int) error {
	n := int64(bytes)
	if m.bytes+n > m.of.most {
		return object.Errorf(object.TooLarge, "the objects that differ have more than %d MiB: revert them one by one", m.of.most>>20)
	}
	if m.of.used.Add(n) > m.of.most {
		m.of.used.Add(-n)
		return errBusy
	}
	m.bytes += n
	return nil
}

// release gives back what a revert holds. The result of find is not used afterwards.
func (f *found) release() {
	if f.revert != nil {
		f.revert.memory.of.used.Add(-f.revert.memory.bytes)
		f.revert.memory.bytes = 0
	}
}

// thenAndNow reads the objects of a key then and now, without those that were not written since; without a name, all of
// its namespace. One that is unchanged is there only if it is what the key names. The two lists have the same order, so
// that nothing of what is unchanged stays in memory.
func (a *Archive) thenAndNow(ctx context.Context, k *kind.Kind, t target, key object.Key, f *found) (all []*difference, err error) {
	then, err := a.store.List(ctx, store.ListRequest{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Revision: t.To, Past: true})
	if err != nil {
		return nil, err
	}
	now, err := a.store.List(ctx, store.ListRequest{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Revision: f.before})
	if err != nil {
		return nil, err
	}
	for was, is := next(then), next(now); was != nil || is != nil; {
		d := &difference{version: k.Stored()}
		order := compareKeys(was, is)
		if order <= 0 {
			d.then, was = *was, next(then)
		}
		if order >= 0 {
			d.now, is = *is, next(now)
		}
		if d.now.Revision == d.then.Revision && key.Name == "" {
			continue
		}
		if err := f.revert.memory.take(len(d.then.Body) + len(d.now.Body)); err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, errors.Join(then.Err(), now.Err())
}

// next is the next object of a list; nil at its end.
func next(l *store.Listing) *object.Object {
	if !l.Next() {
		return nil
	}
	o := l.Object()
	return &o
}

// compareKeys compares two objects of a kind in the order of lists. Nil comes behind all.
func compareKeys(a, b *object.Object) int {
	switch {
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
