package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/feed"
	"github.com/exeunt/exeunt/store/seal"
)

const (
	moveStep  = 4000 // changes per transaction; the first of each object counts as newChunk changes, for its row
	newChunk  = 4
	moveBytes = 16 << 20 // of bodies in memory
	// Jump is a gap between two revisions that only a restored backup makes: nothing is lost in it.
	Jump = 500_000_000_000
)

// Move moves the states that the changes up to a revision replaced from the log into the history.
//
// A step reads and compresses without a lock: the states it reads are replaced, so nothing changes them. Its
// transaction compares revision.moved with what the step began from, so of two replicas that move at once one
// does nothing. Between steps it sleeps as long as the last one ran, or less if it would not end within the given time
// otherwise. If that passes, it returns: the rest stays in the log, which is then longer than it should be, and is moved later.
func (h *History) Move(ctx context.Context, to int64, within time.Duration) error {
	for end := time.Now().Add(within); ; {
		begin := time.Now()
		var from int64
		if _, err := h.DB.Row(ctx, readMoved, nil, &from); err != nil || from >= to {
			return err
		}
		m, err := h.prepare(ctx, from, to)
		if err != nil {
			return fmt.Errorf("move to the history: %w", err)
		}
		err = h.Transact(ctx, func(t *Tx) error {
			if t.Moved != m.from {
				return nil // another replica did it
			}
			return m.apply(ctx, t)
		})
		if err != nil {
			return fmt.Errorf("move to the history: %w", err)
		}
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		if len(m.chunks) > 0 {
			task.Sleep(ctx, pause(time.Since(begin), left, m.to-m.from, to-m.to))
		}
	}
}

// pause is how long to sleep after a step that took a time and moved done revisions, if the rest is to end in the time that
// is left.
func pause(took, left time.Duration, done, rest int64) time.Duration {
	steps := (rest + done - 1) / done
	if steps == 0 {
		return 0 // the next run begins later
	}
	return max(min(left/time.Duration(steps)-took, took), 0)
}

// move is one step.
type move struct {
	*History
	from, to int64
	last     int64 // revision of the last change that was read
	at       int64 // of that change
	held     int   // bytes of bodies
	chunks   []*chunk
	open     map[int64]*chunk // the last chunk of each object, by objects.id
	pending  []pending
	objects  map[int64]bool   // of pending
	times    [][2]int64       // second and its last revision
	bounds   map[string]int64 // by kind; empty means all kinds
}

// pending is a version that belongs into a chunk.
type pending struct {
	object int64
	of     seal.Object
	Version
	until, endedAt int64
	removed        *Version
}

// chunk is a row of the history.
type chunk struct {
	seal.Object
	id, object, first, until, endedAt int64
	open                              bool
	versions, plain                   int       // how many there were, and the bytes of their frame and of what is added
	added                             []Version // by this step
	stored                            int64     // bytes of the row before
	superseded                        bool      // it gets no more versions; nothing else changed
	body                              []byte
}

var errEnough = errors.New("enough for one step")

// prepare reads one step and makes its rows.
func (h *History) prepare(ctx context.Context, from, to int64) (*move, error) {
	m := &move{History: h, from: from, to: to, last: from, open: map[int64]*chunk{}, objects: map[int64]bool{}, bounds: map[string]int64{}}
	rows := 0
	err := sqldb.Each(ctx, h.DB, func(row sqldb.Row) error {
		rows++
		if err := m.read(row); err != nil {
			return err
		}
		if m.held >= moveBytes || rows+(newChunk-1)*len(m.objects) >= moveStep {
			return errEnough
		}
		return nil
	}, readChanges, from, to, int64(moveStep))
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	if err != nil || rows == moveStep {
		m.to = m.last
	} else if m.to > m.last && m.to-m.last < Jump { // the last ones were compacted by a version that keeps no history
		m.bounds[""] = m.to
	}
	full := h.Full != nil && h.Full()
	if full {
		h.tooLarge.Add(int64(len(m.pending)))
	}
	if h.For <= 0 || full {
		m.bounds, m.pending = map[string]int64{"": m.to}, nil
	}
	if err := m.readOpen(ctx); err != nil {
		return nil, err
	}
	for i := range m.pending {
		m.add(&m.pending[i])
	}
	for _, c := range m.chunks {
		if len(c.added) > 0 {
			var done bool
			if c.body, done, err = extend(c.body, c.added); err != nil {
				return nil, fmt.Errorf("row %d: %w", c.id, err)
			}
			c.open = c.open && !done
		}
	}
	return m, nil
}

// read takes one change, with the state that it replaced.
func (m *move) read(row sqldb.Row) error {
	var p, c Version
	var object int64
	var of seal.Object
	err := row.Scan(&c.Revision, &c.Type, &c.At, &c.Author, &p.Revision, &object, &of.UID, &of.Kind, &of.Namespace, &of.Name,
		&p.Type, &p.At, &p.Author, &p.Body)
	if err != nil {
		return err
	}
	if gap := c.Revision - m.last; gap > 1 && gap < Jump {
		m.bounds[""] = c.Revision // compacted by a version that keeps no history
	}
	m.last = c.Revision
	m.at = max(m.at, c.At)
	if second := m.at / 1000; m.at > 0 && len(m.times) > 0 && m.times[len(m.times)-1][0] == second {
		m.times[len(m.times)-1][1] = c.Revision
	} else if m.at > 0 {
		m.times = append(m.times, [2]int64{second, c.Revision})
	}
	switch {
	case p.Revision == 0:
		return nil
	case !m.Keeps(of.Kind):
		m.bounds[of.Kind] = c.Revision
		return nil
	case p.Body == nil:
		m.bounds[""] = c.Revision
		return nil
	}
	m.held += len(p.Body)
	if p.Body, err = m.Keys.Open(of, p.Body); err != nil {
		return err
	}
	v := pending{object: object, of: of, Version: p, until: c.Revision, endedAt: cmp.Or(m.at, m.Now().UnixMilli())}
	if c.Type == feed.Removed {
		v.removed = &c
	}
	m.pending, m.objects[object] = append(m.pending, v), true
	return nil
}

// readOpen reads the rows that may get more versions.
func (m *move) readOpen(ctx context.Context) error {
	objects := slices.Collect(maps.Keys(m.objects))
	if len(objects) == 0 || len(m.pending) == 0 {
		return nil
	}
	return sqldb.Each(ctx, m.DB, func(row sqldb.Row) error {
		c := &chunk{open: true}
		var versions int64
		err := row.Scan(&c.id, &c.object, &c.UID, &c.Kind, &c.Namespace, &c.Name, &c.first, &c.until, &versions, &c.stored, &c.body)
		if err != nil {
			return err
		}
		c.versions = int(versions)
		if c.body, err = m.Keys.Open(c.Object, c.body); err == nil {
			c.plain, err = frameSize(c.body)
		}
		if err != nil {
			return fmt.Errorf("row %d: %w", c.id, err)
		}
		m.open[c.object] = c
		return nil
	}, openChunks[m.DB.Engine()], sqldb.List(m.DB.Engine(), objects))
}

// versions opens the body of a row.
func (h *History) versions(of seal.Object, body []byte) ([]Version, error) {
	plain, err := h.Keys.Open(of, body)
	if err != nil {
		return nil, err
	}
	return decode(plain)
}

// add adds a version to the last chunk of its object, or to a new one.
func (m *move) add(p *pending) {
	c := m.open[p.object]
	full := c != nil && (c.until != p.Revision || c.versions+len(c.added) >= maxVersions || c.plain >= max(maxPlain, 4*len(p.Body)))
	if full && len(c.added) == 0 {
		c.superseded = true
		m.chunks = append(m.chunks, c)
	}
	if full {
		c.open = false
	}
	if c == nil || full {
		c = &chunk{object: p.object, Object: p.of, first: p.Revision, open: true}
		m.open[p.object] = c
	}
	if len(c.added) == 0 {
		m.chunks = append(m.chunks, c)
	}
	c.added, c.plain = append(c.added, p.Version), c.plain+len(p.Body)
	c.until, c.endedAt = p.until, p.endedAt
	if p.removed != nil {
		c.added, c.open = append(c.added, *p.removed), false
	}
}

// apply writes the step.
func (m *move) apply(ctx context.Context, t *Tx) error {
	there, err := m.stillThere(ctx, t)
	if err != nil {
		return err
	}
	if err := m.withoutPurged(ctx, t); err != nil {
		return err
	}
	var b sqldb.Batch
	var closed []int64
	for _, c := range m.chunks {
		if c.superseded {
			closed = append(closed, c.id)
		}
	}
	if len(closed) > 0 { // before the rows that are open instead
		b.Exec(closeChunks[t.Engine], sqldb.List(t.Engine, closed))
	}
	bytes := map[string]int64{}
	for _, c := range m.chunks {
		if c.superseded {
			continue
		}
		body := c.body
		if m.Keys.Seals(c.Kind) {
			if body, err = m.Keys.Seal(t.Sealing, c.Object, body); err != nil {
				return err
			}
		}
		size, open := int64(len(body)), int64(0)
		if c.open {
			open = 1
		}
		bytes[c.Namespace] += size
		if there[c.id] {
			bytes[c.Namespace] -= c.stored
			b.Exec(updateChunk, c.id, c.until, c.endedAt, open, int64(c.versions+len(c.added)), size, body)
			continue
		}
		b.Exec(insertChunk, c.object, c.UID, c.Kind, c.Namespace, c.Name, c.first, c.until, c.endedAt, open, int64(c.versions+len(c.added)), size, body)
	}
	for namespace, n := range bytes {
		b.Exec(addBound, "", namespace, int64(0), n)
	}
	for kind, revision := range m.bounds {
		b.Exec(addBound, kind, allNamespaces, revision, int64(0))
	}
	for _, mark := range m.times {
		b.Exec(insertTime, mark[0], mark[1])
	}
	m.Compact(&b, m.from, m.to)
	return t.Send(ctx, &b)
}

// purged is the kind of the bounds that say which objects were purged: namespace is a uid, and revision the one of the purge.
const purged = "!purged"

// withoutPurged takes the versions of purged objects out of the step. What a purge finds in the log is compacted later.
func (m *move) withoutPurged(ctx context.Context, t *Tx) error {
	var uids []string
	for _, c := range m.chunks {
		uids = append(uids, c.UID)
	}
	at := map[string]int64{}
	err := sqldb.Each(ctx, t, func(row sqldb.Row) error {
		var uid string
		var revision int64
		err := row.Scan(&uid, &revision)
		at[uid] = revision
		return err
	}, boundsOf[t.Engine], purged, sqldb.List(t.Engine, uids))
	m.chunks = slices.DeleteFunc(m.chunks, func(c *chunk) bool { return c.until <= at[c.UID] })
	return err
}

// Purge deletes the versions of objects that leave the archive because a client wants that, by the ids of their rows there.
// Those of an object that exists again stay. States of its kind from when it existed are not whole any more.
func (h *History) Purge(ctx context.Context, t *Tx, ids []int64) error {
	type gone struct {
		id, size             int64
		uid, kind, namespace string
	}
	var all []gone
	err := sqldb.Each(ctx, t, sqldb.Into(&all, func(g *gone) []any { return []any{&g.id, &g.uid, &g.kind, &g.namespace, &g.size} }), purgedOf[t.Engine], sqldb.List(t.Engine, ids))
	if err != nil || len(all) == 0 {
		return err
	}
	var b sqldb.Batch
	for _, g := range all {
		b.Exec(deleteOf, g.uid)
		b.Exec(addBound, purged, g.uid, t.Revision, int64(0))
		b.Exec(addBound, g.kind, g.namespace, g.id, int64(0))
		b.Exec(addBound, "", g.namespace, int64(0), -g.size)
	}
	return t.Send(ctx, &b)
}

// allNamespaces is the namespace of a bound that counts in all of them.
const allNamespaces = "*"

// stillThere returns which of the rows that the step has read exist: others have left meanwhile.
func (m *move) stillThere(ctx context.Context, t *Tx) (map[int64]bool, error) {
	there := map[int64]bool{}
	var read []int64
	for _, c := range m.chunks {
		if c.id != 0 {
			read = append(read, c.id)
		}
	}
	if len(read) == 0 {
		return there, nil
	}
	found, err := sqldb.Column[int64](ctx, t, existing[t.Engine], sqldb.List(t.Engine, read))
	for _, id := range found {
		there[id] = true
	}
	return there, err
}
