package expiry

import (
	"context"
	"errors"
	"fmt"
	"time"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/api/selector"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/due"
)

// judge decides about one object, for reviews, previews and the reasons of `exeunt why`.
type judge struct {
	kinds *kind.Snapshot
	set   *Set
	now   time.Time
	store *store.Reader
	// counts reports whether a policy is asked at all.
	counts func(*Policy) bool
	// may reports whether a policy that selects an object that is due may take it. Nil means it may.
	may func(context.Context, *Policy) (bool, error)
	// resting is asked before the fields and the condition of a policy: whether it must wait for those of other namespaces. Nil means
	// it never must.
	resting func(context.Context, *Policy) (bool, error)
	shares  *shares
}

// decide returns the Due by which an object expires at a time or before; and if it does not expire by then, the
// earliest after that time, which may depend on fields and a condition that are not asked yet. A Due without a
// By means that it does not expire. An error of one policy does not keep the others from their decision.
func (j *judge) decide(ctx context.Context, o *store.Stored, restored, by time.Time) (Due, error) {
	dues, err := j.set.dues(o.Key, o.Body, restored, j.now, j.counts)
	if err != nil {
		return Due{}, err
	}
	var errs []error
	for _, d := range dues {
		if d.At.After(by) {
			return d, errors.Join(errs...)
		}
		holds, err := j.holds(ctx, d.Policy, o)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", d.By, err))
		}
		if holds {
			return d, nil
		}
	}
	return Due{}, errors.Join(errs...)
}

func (j *judge) holds(ctx context.Context, p *Policy, o *store.Stored) (bool, error) {
	if p == nil {
		return true, nil
	}
	if j.resting != nil {
		if rests, err := j.resting(ctx, p); err != nil || rests {
			return false, err
		}
	}
	if ok, err := j.selects(ctx, p, o); err != nil || !ok {
		return false, err
	}
	if j.may == nil {
		return true, nil
	}
	return j.may(ctx, p)
}

// selects asks the fields and the condition of a policy.
func (j *judge) selects(ctx context.Context, p *Policy, o *store.Stored) (bool, error) {
	if p.doubts() {
		defer func(begin time.Time) { j.shares.took(p.Namespace, time.Since(begin)) }(time.Now())
	}
	if newest, err := j.newest(ctx, p, o); err != nil || newest {
		return false, err
	}
	if p.Fields == "" && p.Condition == nil {
		return true, nil
	}
	k, ok := j.kinds.Stored(o.Kind)
	if !ok || len(k.Versions) == 0 {
		return false, fmt.Errorf("the kind %s is not served", o.Kind)
	}
	v := k.Versions[0]
	decode := func(body []byte) (runtime.Object, error) { return v.Decode(body, o.ResourceVersion()) }
	if p.Fields != "" {
		list, err := fields.ParseSelector(p.Fields)
		if err != nil {
			return false, err
		}
		match, name := selector.New(v, &metainternal.ListOptions{FieldSelector: list}, decode)
		if ok, err := match.Match(o.Key, o.Body); err != nil || !ok || name != "" && name != o.Name {
			return false, err
		}
	}
	if p.Condition == nil {
		return true, nil
	}
	c, err := p.Condition()
	if err != nil {
		return false, err
	}
	obj, err := decode(o.Body)
	if err != nil {
		return false, err
	}
	return c.holds(ctx, obj, v.GVK)
}

// newest reports whether an object is among the newest of its group, which stay. The one that was created last is the newest.
func (j *judge) newest(ctx context.Context, p *Policy, o *store.Stored) (bool, error) {
	if p.Newest == 0 {
		return false, nil
	}
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		return false, err
	}
	var newer int64
	_, err = sqldb.First(ctx, j.store, []any{&newer}, due.CountNewer, p.groups(), p.group(o.Key, &m).Name, o.ID, p.Newest)
	return newer < p.Newest, err
}
