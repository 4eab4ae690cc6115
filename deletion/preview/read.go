package preview

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/store"
)

// head is an object in the snapshot.
type head = store.Stored

// reader reads one snapshot of the database.
type reader struct {
	*store.Reader
	ctx  context.Context
	peak int // the most rows in memory at once, for tests
}

func newReader(ctx context.Context, s *store.Snapshot) *reader {
	return &reader{Reader: &s.Reader, ctx: ctx}
}

// heads notes how many objects a read returned.
func (r *reader) heads(found []*head, err error) ([]*head, error) {
	r.peak = max(r.peak, len(found))
	return found, err
}

// dependents is heads for dependents.
func (r *reader) dependents(found []*store.Dependent, err error) ([]*store.Dependent, error) {
	r.peak = max(r.peak, len(found))
	return found, err
}

// owners reads some owners.
func (r *reader) owners(uids []types.UID) (map[types.UID]gc.Owner, error) {
	return gc.Owners(r.ctx, r.Reader, slices.Compact(slices.Sorted(slices.Values(uids))))
}
