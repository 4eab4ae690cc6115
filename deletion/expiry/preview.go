package expiry

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

const (
	defaultUntil = 7 * 24 * time.Hour
	maxUntil     = 366 * 24 * time.Hour
	defaultLimit = 500
	maxLimit     = 10_000
)

// PreviewKind returns the kind of the question what a policy takes.
func (e *Expirer) PreviewKind() *kind.Kind {
	answer := func(ctx context.Context, q *v1.ExpiryPreview, call kind.Call) (err error) {
		q.Status, err = e.Preview(ctx, call.Client, q.Spec)
		return err
	}
	return kind.NewQuestion(v1.Scheme(), &v1.ExpiryPreview{}, "expirypreviews", v1.Schema(v1.ExpiryPreview{}), kind.Asked(answer))
}

// Preview returns what a policy takes. The client must be allowed to get the policy and to list its resources.
func (e *Expirer) Preview(ctx context.Context, client kind.Client, spec v1.ExpiryPreviewSpec) (status v1.ExpiryPreviewStatus, err error) {
	until := defaultUntil
	if spec.Until != "" {
		if until, err = lifecycle.ParseDuration(spec.Until); err != nil || until < 0 || until > maxUntil {
			return status, object.BadRequestf(`spec.until: %q is not a duration of at most a year, such as "7d"`, spec.Until)
		}
	}
	kinds := schema.ParseGroupResource(policies)
	if spec.Namespace == "" {
		kinds = schema.ParseGroupResource(clusterPolicies)
	}
	if err := client.Authorize("get", kinds, spec.Namespace, spec.Policy); err != nil {
		return status, err
	}
	set, err := e.policies.Now(ctx, e.store.Reader())
	if err != nil {
		return status, err
	}
	p := set.Named(spec.Namespace, spec.Policy)
	if p == nil {
		return status, object.BadRequestf("there is no %s %s", kinds.Resource, object.Key{Kind: kinds.String(), Namespace: spec.Namespace, Name: spec.Policy})
	}
	for _, r := range p.Resources {
		if err := client.Authorize("list", schema.ParseGroupResource(r), spec.Namespace, ""); err != nil {
			return status, err
		}
	}
	known, err := readKnown(ctx, e.db, readPolicy, p)
	if err != nil {
		return status, err
	}
	if p.Newest > 0 && (known.state != p.state() || !known.counted) {
		return status, object.BadRequestf("the objects of %s are being counted: ask again in a moment", p)
	}
	c := calendar{policy: p, now: e.opts.Now(), limit: int(cmp.Or(min(max(spec.Limit, 0), maxLimit), defaultLimit)), due: map[int64]int64{}, status: &status}
	c.until = c.now.Add(until)
	others := map[*Policy]bool{} // whether they take objects: that a limit of theirs is reached later is not known
	may := func(ctx context.Context, q *Policy) (bool, error) {
		if _, asked := others[q]; q != p && !asked {
			known, err := readKnown(ctx, e.db, readPolicy, q)
			if err != nil {
				return false, err
			}
			others[q] = !known.waits
		}
		return q == p || others[q], nil
	}
	j := &judge{kinds: e.opts.Kinds.Snapshot(), set: set, now: c.now, store: e.store.Reader(), counts: func(q *Policy) bool { return q == p || q.Started() }, may: may, shares: &e.policies.shares}
	j.resting = func(ctx context.Context, q *Policy) (_ bool, err error) {
		if q.Namespace == p.Namespace { // what others cost must not delay a preview of a policy of the cluster
			err = e.policies.shares.await(ctx, q.Namespace)
		}
		return false, err
	}
	if err := e.fill(ctx, &c, j); err != nil {
		return status, err
	}
	if known, err = readKnown(ctx, e.db, readPolicy, p); err != nil {
		return status, err
	}
	c.finish(&known, e.opts.Kinds.Snapshot())
	return status, nil
}

// fill adds the objects that the policy takes: page by page, with the function that the reviews ask.
func (e *Expirer) fill(ctx context.Context, c *calendar, j *judge) error {
	r := e.store.Reader()
	for place := c.policy.secondPass(); ; {
		page, next, err := pageOf(ctx, r, c.policy, place)
		if err != nil {
			return err
		}
		restored, err := restoredOf(ctx, r, page)
		if err != nil {
			return err
		}
		for _, o := range page {
			if !c.policy.in(o.Key) {
				continue
			}
			c.scope++
			d, err := j.decide(ctx, o, restored[o.UID], c.until)
			if err := ctx.Err(); err != nil {
				return err
			}
			if err != nil {
				c.status.Failed, c.status.Problem = c.status.Failed+1, err.Error()
			}
			switch {
			case d.Policy != c.policy:
				c.countOther(ctx, j, o, restored[o.UID], d)
			case !d.At.After(c.until):
				c.add(o, d)
			}
		}
		if place = next; place == "" {
			return nil
		}
	}
}

// calendar collects what a policy takes. It keeps the first objects, and counts all.
type calendar struct {
	policy     *Policy
	now, until time.Time
	limit      int
	status     *v1.ExpiryPreviewStatus

	first   []expiring
	due     map[int64]int64 // how many are due, by slot of the policy
	scope   int64
	overdue int64 // their time is over now
}

type expiring struct {
	key object.Key
	uid types.UID
	at  time.Time
}

func (c *calendar) add(o *store.Stored, d Due) {
	if !d.Over.After(c.now) {
		c.overdue++
	}
	at := later(d.At, c.now)
	c.due[c.policy.slotOf(at)]++
	c.status.Total++
	if c.first = append(c.first, expiring{o.Key, o.UID, at}); len(c.first) >= 2*c.limit {
		c.keepFirst()
	}
}

// countOther counts an object whose time by the policy is over, and that something else takes before the policy does. The walk at the
// policy's start counts it too.
func (c *calendar) countOther(ctx context.Context, j *judge, o *store.Stored, restored time.Time, d Due) {
	m, err := object.ParseMeta(o.Body)
	at := c.policy.due(&m, transitions(o.Body))
	if err != nil || d.By == "" || at.IsZero() || at.After(c.now) || !restored.IsZero() && !at.After(restored) {
		return
	}
	if ok, err := j.selects(ctx, c.policy, o); err == nil && ok {
		c.overdue++
	}
}

func (c *calendar) keepFirst() {
	slices.SortFunc(c.first, func(a, b expiring) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.uid, b.uid)) })
	c.first = c.first[:min(len(c.first), c.limit)]
}

// turn is how many objects a policy takes in a slot.
type turn struct{ slot, takes int64 }

// turns says how many objects the policy takes in each slot, and how many are left at until; what is known about the policy says how
// many it may take, and whether it waits. What a slot has no room for goes in a later one. What is more than the policy may take in a day
// waits, and all that comes later: their days are in waiting.
func (c *calendar) turns(k *known) (turns []turn, left int64, waiting map[int64]int64) {
	p, slots := c.policy, slices.Sorted(maps.Keys(c.due))
	begin := func(slot int64) time.Time { return time.Unix(0, 0).Add(time.Duration(slot) * p.slot) }
	waiting = map[int64]int64{}
	for slot := int64(0); len(slots) > 0 || left > 0; {
		if left == 0 {
			slot = slots[0]
		}
		if len(slots) > 0 && slots[0] == slot {
			left, slots = left+c.due[slot], slots[1:]
		}
		today, inSlot := k.free(p, begin(slot))
		takes := min(left, inSlot)
		if k.waits {
			takes = 0
		} else if takes > today {
			takes, k.waits = today, true
		}
		if k.waits {
			waiting[day(begin(slot))] += left - takes
			left = takes
		}
		turns = append(turns, turn{slot, takes})
		k.count(p, begin(slot), takes)
		if left -= takes; left == 0 {
			continue
		}
		next := p.nextSlot(begin(slot), 1)
		if next.After(c.until) {
			break
		}
		slot = p.slotOf(next)
	}
	return turns, left, waiting
}

// finish writes the answer. A policy that would take too much when it is started takes nothing.
func (c *calendar) finish(k *known, kinds *kind.Snapshot) {
	p := c.policy
	if k.state != p.state() || !k.counted || !p.Started() {
		k.scope = c.scope
		k.waits = p.inADay(c.overdue) > p.most(c.scope)
	}
	if c.status.Most = p.most(k.scope); c.status.Most == lifecycle.Forever.Unix() {
		c.status.Most = -1
	}
	turns, left, waiting := c.turns(k)
	c.status.Later = left
	days := map[int64]*v1.ExpiryDay{}
	on := func(d int64) *v1.ExpiryDay {
		if days[d] == nil {
			days[d] = &v1.ExpiryDay{Date: time.Unix(d*24*60*60, 0).UTC().Format(time.DateOnly)}
		}
		return days[d]
	}
	for _, t := range turns {
		if t.takes > 0 {
			on(t.slot * int64(p.slot/time.Second) / (24 * 60 * 60)).Objects += t.takes
		}
	}
	for d, n := range waiting {
		on(d).Objects, on(d).Waiting = on(d).Objects+n, n
		c.status.Waiting += n
	}
	for _, d := range slices.Sorted(maps.Keys(days)) {
		c.status.Days = append(c.status.Days, *days[d])
	}
	c.keepFirst()
	for _, o := range c.first {
		for len(turns) > 0 && turns[0].takes == 0 {
			turns = turns[1:]
		}
		out := v1.ExpiringObject{Object: deletion.Reference(kinds, o.key, o.uid), At: metav1.NewTime(o.at)}
		switch {
		case len(turns) > 0:
			turns[0].takes--
			out.At.Time = later(o.at, p.opens(time.Unix(0, 0).Add(time.Duration(turns[0].slot)*p.slot)))
		case c.status.Waiting > 0:
			out.Waits = true
		default:
			continue // it goes after until
		}
		c.status.Objects = append(c.status.Objects, out)
	}
}
