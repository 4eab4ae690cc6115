package expiry

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/exeunt/exeunt/sqldb"
)

// Eviction is cascades of a namespace that leave the archive before their time, the oldest first. An
// empty namespace means cluster-scoped roots.
type Eviction struct {
	Namespace      string
	Cascades       []string
	Objects, Bytes int64
}

// Evicted counts the cascades that this process evicted.
func (e *Expiry) Evicted() int64 { return e.evicted.Load() }

// bySize evicts cascades while the archive is larger than MaxBytes.
func (x *run) bySize(ctx context.Context) error {
	var total int64
	if _, err := x.DB.Row(ctx, archivedBytes, nil, &total); err != nil || total <= x.MaxBytes {
		return err
	}
	var chosen []Eviction
	return x.choose(ctx, func(tx *Tx) (_ bool, err error) {
		x.logEvicted(chosen) // of the transaction before, which is committed
		chosen, err = x.evict(ctx, tx, x.MaxBytes)
		return len(chosen) == 0, err
	})
}

func (x *run) logEvicted(all []Eviction) {
	for _, e := range all {
		x.evicted.Add(int64(len(e.Cascades)))
		x.Logger.Warn("cascades left the archive before their time: the namespace uses more than its share of --archive-max-bytes",
			"namespace", e.Namespace, "cascades", len(e.Cascades), "objects", e.Objects, "bytes", e.Bytes, "oldest", e.Cascades[0])
	}
}

// evict chooses cascades of each namespace that uses more than its share, the oldest first, and marks
// them as leaving. It spares the newest cascade of each namespace, and busy ones
// while the archive has no more than twice its limit.
func (x *run) evict(ctx context.Context, tx *Tx, limit int64) (all []Eviction, err error) {
	used := map[string]int64{}
	var total int64
	if err := sqldb.Each(ctx, tx, sqldb.Pairs(used), namespaceBytes); err != nil {
		return nil, err
	}
	for _, bytes := range used {
		total += bytes
	}
	share := FairShare(limit, slices.Collect(maps.Values(used)))
	chosen := 0
	for namespace, bytes := range used {
		if bytes <= share || chosen >= CountStep {
			continue
		}
		found, err := x.leavers(ctx, tx, evictable, namespace, int64(CountStep-chosen))
		if err != nil {
			return nil, err
		}
		e := Eviction{Namespace: namespace}
		var running []string
		for _, l := range found {
			if bytes <= share {
				break
			}
			if l.busy && total <= 2*limit {
				continue
			}
			if l.busy {
				running = append(running, l.id)
			}
			e.Cascades, e.Objects, e.Bytes = append(e.Cascades, l.id), e.Objects+l.objects, e.Bytes+l.bytes
			bytes, total = bytes-l.bytes, total-l.bytes
		}
		if len(e.Cascades) == 0 {
			continue
		}
		chosen += len(e.Cascades)
		if tx.OnEvict != nil {
			if err := tx.OnEvict(ctx, e); err != nil {
				return nil, err
			}
		}
		if err := errors.Join(tx.MarkLeaving(ctx, e.Cascades, tx.Revision), tx.MarkLeaving(ctx, running, always)); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// FairShare is how many bytes each namespace may use of limit: what some leave
// is divided among those that need more. It is never less than limit divided by their number.
func FairShare(limit int64, used []int64) int64 {
	slices.Sort(used)
	for i, bytes := range used {
		share := limit / int64(len(used)-i)
		if bytes > share {
			return share
		}
		limit -= bytes
	}
	return math.MaxInt64
}
