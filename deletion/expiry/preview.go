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
	c := calendar{policy: p, now: e.opts.Now(), limit: int(cmp.Or(min(max(spec.Limit, 0), maxLimit), defaultLimit)), days: map[int64]int64{}, status: &status}
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
	j := &judge{kinds: e.opts.Kinds.Snapshot(), set: set, counts: func(q *Policy) bool { return q == p || q.Started() }, may: may}
	if err := e.fill(ctx, &c, j); err != nil {
		return status, err
	}
	known, err := readKnown(ctx, e.db, readPolicy, p)
	if err != nil {
		return status, err
	}
	c.finish(&known, e.opts.Kinds.Snapshot())
	return status, nil
}

// fill adds the objects that the policy takes: page by page, with the function that the reviews ask.
func (e *Expirer) fill(ctx context.Context, c *calendar, j *judge) error {
	r := e.store.Reader()
	for place := ""; ; {
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
			if d.Policy == c.policy && !d.At.After(c.until) {
				c.add(o, d.At)
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
	days    map[int64]int64
	scope   int64
	overdue int64 // due now
}

type expiring struct {
	key object.Key
	uid types.UID
	at  time.Time
}

func (c *calendar) add(o *store.Stored, at time.Time) {
	if !at.After(c.now) {
		at = c.now
		c.overdue++
	}
	c.days[day(at)]++
	c.status.Total++
	if c.first = append(c.first, expiring{o.Key, o.UID, at}); len(c.first) >= 2*c.limit {
		c.keepFirst()
	}
}

func (c *calendar) keepFirst() {
	slices.SortFunc(c.first, func(a, b expiring) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.uid, b.uid)) })
	c.first = c.first[:min(len(c.first), c.limit)]
}

// finish writes the answer. What is more than the policy may take in a day waits, and all that comes later; if that is so
// when the policy is started, it takes nothing.
func (c *calendar) finish(k *known, kinds *kind.Snapshot) {
	p := c.policy
	counted := k.state == p.state() && k.counted && p.Started()
	scope := c.scope
	if counted {
		scope = k.scope
	}
	most := p.most(scope)
	if c.status.Most = most; most == lifecycle.Forever.Unix() {
		c.status.Most = -1
	}
	waits := counted && k.waits || !counted && c.overdue > most
	free := map[int64]int64{} // what of a day does not wait
	for _, d := range slices.Sorted(maps.Keys(c.days)) {
		n := most
		if d == k.day {
			n = max(most-k.today, 0)
		}
		if waits {
			n = 0
		}
		out := v1.ExpiryDay{Date: time.Unix(d*24*60*60, 0).UTC().Format(time.DateOnly), Objects: c.days[d], Waiting: max(c.days[d]-n, 0)}
		waits = waits || out.Waiting > 0
		free[d] = n
		c.status.Waiting += out.Waiting
		c.status.Days = append(c.status.Days, out)
	}
	c.keepFirst()
	for _, o := range c.first {
		free[day(o.at)]--
		c.status.Objects = append(c.status.Objects, v1.ExpiringObject{
			Object: deletion.Reference(kinds, o.key, o.uid), At: metav1.NewTime(o.at), Waits: free[day(o.at)] < 0,
		})
	}
}
