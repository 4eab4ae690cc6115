package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/seal"
)

// Bound reads from which revision on states of the objects of a kind are complete. An empty namespace means
// all of them, also of a kind without namescratch: its objects are few.
func Bound(ctx context.Context, s sqldb.Sender, kind, namespace string) (revision int64, err error) {
	statement, args := boundOfAll, []any{kind}
	if namespace != "" {
		statement, args = boundOf, append(args, namespace)
	}
	_, err = sqldb.First(ctx, s, []any{&revision}, statement, args...)
	return revision, err
}

// RevisionAt finds the last revision of the second in which a time lies. The times of revisions never fall, so it
// searches the log by bisection; before the log, there are marks. Error: Expired if nothing is known of that time.
func (h *History) RevisionAt(ctx context.Context, s sqldb.Sender, at time.Time) (int64, error) {
	var current, compacted, moved int64
	if _, err := sqldb.First(ctx, s, []any{&current, &compacted, &moved}, revisions); err != nil {
		return 0, err
	}
	end := (at.Unix() + 1) * 1000 // the first millisecond after it
	low, high := moved, current   // low is not after at, if it is above moved; what follows high is
	for low < high {
		middle := low + (high-low+1)/2
		var changed int64
		known, err := sqldb.First(ctx, s, []any{&changed}, timeOf, middle, moved)
		if err != nil {
			return 0, err
		}
		if known && changed >= end {
			high = middle - 1
		} else {
			low = middle
		}
	}
	if low > moved {
		var changed int64
		if known, err := sqldb.First(ctx, s, []any{&changed}, timeOf, low, moved); err != nil || known {
			return low, err
		}
	}
	var revision int64
	known, err := sqldb.First(ctx, s, []any{&revision}, markAt, at.Unix())
	if err != nil || known {
		return revision, err
	}
	var begin int64
	if _, err = sqldb.First(ctx, s, []any{&begin}, oldestTime, moved); err == nil {
		err = object.Errorf(object.Expired, "the history does not reach back to %s: it begins at %s", at.UTC().Format(time.RFC3339), time.UnixMilli(begin).UTC().Format(time.RFC3339))
	}
	return 0, err
}

// ParseWhen reads a version, or a time that is over. Error: BadRequest.
func ParseWhen(when string, now time.Time) (revision int64, at time.Time, err error) {
	if revision, err := strconv.ParseInt(when, 10, 64); err == nil {
		if revision <= 0 {
			return 0, at, object.BadRequestf("version %q: versions begin at 1", when)
		}
		return revision, at, nil
	}
	if at, err = time.Parse(time.RFC3339, when); err != nil {
		return 0, at, object.BadRequestf("%q is neither a version, such as 4711, nor a time, such as 2026-11-17T10:00:00Z", when)
	}
	if !at.Add(time.Second).Before(now) {
		return 0, at, object.BadRequestf("%s is not in the past: the clock of the server says %s", when, now.UTC().Format(time.RFC3339))
	}
	return 0, at, nil
}

// Objects is what SameNamespace reads: a store.
type Objects interface {
	Get(ctx context.Context, key object.Key) (object.Object, error)
	GetAt(ctx context.Context, key object.Key, revision int64) (object.Object, error)
}

// SameNamespace reports whether a namespace existed at a revision, and was the one that has the name now. One whose state
// of then is not known counts as another.
func SameNamespace(ctx context.Context, s Objects, name string, revision int64) (bool, error) {
	key := object.Key{Kind: object.Namespaces, Name: name}
	now, err := s.Get(ctx, key)
	then, errThen := s.GetAt(ctx, key, revision)
	if err = errors.Join(err, errThen); object.Is(err, object.NotFound) || object.Is(err, object.Expired) {
		return false, nil
	}
	return now.UID == then.UID, err
}

// Archived returns an object as it was at a revision, from the archive. Without a body the archive does not have that.
func (h *History) Archived(ctx context.Context, s sqldb.Sender, key object.Key, revision int64) (object.Object, error) {
	o, namespace := object.Object{Key: key}, key.Namespace
	if key.Kind == object.Namespaces {
		namespace = key.Name
	}
	kept, err := sqldb.First(ctx, s, []any{(*string)(&o.UID), &o.Revision, &o.Body}, archivedAt, namespace, key.Kind, key.Name, revision)
	if err == nil && kept {
		o.Body, err = h.Keys.Open(seal.Object{Key: key, UID: string(o.UID)}, o.Body)
	}
	return o, err
}

// Pick is a version in a row.
type Pick struct {
	Row      int64
	Revision int64 // the version that was the newest at this revision
}

// Objects reads versions, in the order of picks, with the revisions of their own. Decompressing takes most of the time, so
// each processor does a part of it, in one goroutine: in one for each row, a fifth of the time went into growing stacks.
func (h *History) Objects(ctx context.Context, s sqldb.Sender, picks []Pick) ([]object.Object, error) {
	type row struct {
		of   seal.Object
		at   int
		body []byte
	}
	ids, at := make([]int64, len(picks)), make(map[int64]int, len(picks))
	for i, p := range picks {
		ids[i], at[p.Row] = p.Row, i
	}
	rows := make([]row, 0, len(picks))
	err := sqldb.Each(ctx, s, func(scan sqldb.Row) error {
		var id int64
		var r row
		err := scan.Scan(&id, &r.of.UID, &r.of.Kind, &r.of.Namespace, &r.of.Name, &r.body)
		r.at = at[id]
		rows = append(rows, r)
		return err
	}, chunksByID[h.DB.Engine()], sqldb.List(h.DB.Engine(), ids))
	if err == nil && len(rows) < len(picks) {
		err = fmt.Errorf("%d of %d rows of the history are gone", len(picks)-len(rows), len(picks))
	}
	if err != nil {
		return nil, err
	}
	out := make([]object.Object, len(picks))
	var group errgroup.Group
	for part := range slices.Chunk(rows, len(rows)/runtime.GOMAXPROCS(0)+1) {
		group.Go(func() (err error) {
			for i := 0; i < len(part) && err == nil; i++ {
				out[part[i].at], err = h.pick(part[i].of, picks[part[i].at], part[i].body)
			}
			return err
		})
	}
	return out, group.Wait()
}

// scratch has arrays for rows that are read for one version of many.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

func (h *History) pick(of seal.Object, p Pick, body []byte) (object.Object, error) {
	space := scratch.Get().(*[]byte)
	defer scratch.Put(space)
	o := object.Object{Key: of.Key, UID: types.UID(of.UID)}
	body, err := h.Keys.Open(of, body)
	if err == nil {
		*space, err = expand(body, (*space)[:0])
	}
	if err == nil {
		err = each(*space, func(v Version, _ []byte) {
			if v.Revision <= p.Revision {
				o.Revision, o.Body = v.Revision, v.Body
			}
		})
	}
	o.Body = bytes.Clone(o.Body)
	if err == nil && o.Body == nil {
		err = errDamaged
	}
	if err != nil {
		return o, fmt.Errorf("history of %s at version %d, row %d: %w", of, p.Revision, p.Row, err)
	}
	return o, nil
}

// Versions calls visit with the versions of a name from before a revision, the newest first, until it returns false.
func (h *History) Versions(ctx context.Context, s sqldb.Sender, key object.Key, before int64, visit func(uid string, v Version) bool) error {
	const step = 4
	for more := true; more; {
		type found struct {
			id, until int64
			uid       string
			body      []byte
		}
		var rows []found
		err := sqldb.Each(ctx, s, sqldb.Into(&rows, func(r *found) []any { return []any{&r.id, &r.until, &r.uid, &r.body} }), chunksOf, key.Kind, key.Namespace, key.Name, before, int64(step))
		if err != nil {
			return err
		}
		more = len(rows) == step
		for _, r := range rows {
			versions, err := h.versions(seal.Object{Key: key, UID: r.uid}, r.body)
			if err != nil {
				return fmt.Errorf("history of %s, row %d: %w", key, r.id, err)
			}
			for i := len(versions) - 1; i >= 0; i-- {
				v := versions[i]
				v.Until, r.until = r.until, v.Revision
				if v.Revision < before && !visit(r.uid, v) {
					return nil
				}
			}
			if len(versions) > 0 {
				before = min(before, versions[0].Revision)
			}
		}
	}
	return nil
}
