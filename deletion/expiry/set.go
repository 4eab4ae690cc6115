package expiry

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/due"
)

// Policies are those of the database. Each transaction that writes objects asks for those that it sees, which are read
// only when one was written.
type Policies struct{ last atomic.Pointer[Set] }

// Governs implements store.Expiry.
func (p *Policies) Governs(kind string) bool { return kind == policies || kind == clusterPolicies }

// At implements store.Expiry.
func (p *Policies) At(ctx context.Context, r *store.Reader, revision int64) (due.Func, error) {
	s, err := p.at(ctx, r, revision)
	if err != nil {
		return nil, err
	}
	return s.earliest, nil
}

// Now returns the policies as they are.
func (p *Policies) Now(ctx context.Context, r *store.Reader) (*Set, error) {
	revision, err := due.PolicyRevision(ctx, r)
	if err != nil {
		return nil, err
	}
	return p.at(ctx, r, revision)
}

// readStep is how many policies are read at once.
const readStep = 500

func (p *Policies) at(ctx context.Context, r *store.Reader, revision int64) (*Set, error) {
	last := p.last.Load()
	if last != nil && last.revision == revision {
		return last, nil
	}
	s := &Set{revision: revision, all: map[object.Key]*Policy{}, inScope: map[scope][]*Policy{}}
	for _, kind := range []string{policies, clusterPolicies} {
		at := store.Selection{Kind: kind, Namespace: store.AllNamespaces, State: store.Active, Limit: readStep}
		for {
			found, err := r.Select(ctx, at)
			if err != nil {
				return nil, fmt.Errorf("read policies: %w", err)
			}
			for _, o := range found {
				s.add(o, last)
				at.AfterNamespace, at.After = o.Namespace, o.Name
			}
			if len(found) < readStep {
				break
			}
		}
	}
	if last == nil || last.revision < revision {
		p.last.CompareAndSwap(last, s)
	}
	return s, nil
}

// Set is the policies at a revision. It is immutable.
type Set struct {
	revision int64
	all      map[object.Key]*Policy
	inScope  map[scope][]*Policy
}

// scope is a resource in a namespace, or for a ClusterExpiryPolicy in all: policies of one namespace cost a write in
// another nothing.
type scope struct{ resource, namespace string }

// add adds a policy, as it was parsed before if it has not changed. One that cannot be read is as if it did not exist:
// validation refuses it.
func (s *Set) add(o *store.Stored, last *Set) {
	var p *Policy
	if last != nil {
		p = last.all[o.Key]
	}
	if p == nil || p.revision != o.Revision {
		var err error
		if p, err = parsePolicy(o.Body); err != nil {
			return
		}
		p.revision = o.Revision
	}
	s.all[o.Key] = p
	for _, resource := range p.Resources {
		in := scope{resource, p.Namespace}
		s.inScope[in] = append(s.inScope[in], p)
	}
}

// Named returns a policy, or nil. An empty namespace means a ClusterExpiryPolicy.
func (s *Set) Named(namespace, name string) *Policy {
	kind := policies
	if namespace == "" {
		kind = clusterPolicies
	}
	return s.all[object.Key{Kind: kind, Namespace: namespace, Name: name}]
}

// earliest is a due.Func: of what the object says and of the policies that have been started.
func (s *Set) earliest(key object.Key, body []byte) (at time.Time, doubt bool) {
	dues, err := s.dues(key, body, time.Time{}, (*Policy).Started)
	if err != nil {
		return at, false // metadata that cannot be read has no annotations
	}
	for _, d := range dues {
		doubt = doubt || d.Policy != nil && d.Policy.doubts()
	}
	if len(dues) > 0 {
		at = dues[0].At
	}
	return at, doubt
}

// dues returns when an object expires by what it says and by the policies that count, the earliest first. Whether a
// policy's fields and condition select it is not asked. Times before the object was restored do not count. It
// parses only bodies of Jobs, those with annotations of this server and those in the scope of policies.
func (s *Set) dues(key object.Key, body []byte, restored time.Time, counts func(*Policy) bool) (all []Due, err error) {
	asked := slices.Clone(s.inScope[scope{key.Kind, ""}])
	if key.Namespace != "" {
		asked = append(asked, s.inScope[scope{key.Kind, key.Namespace}]...)
	}
	asked = slices.DeleteFunc(asked, func(p *Policy) bool { return !p.in(key) || !counts(p) })
	if len(asked) == 0 && key.Kind != jobs && !bytes.Contains(body, ours) {
		return nil, nil
	}
	m, err := object.ParseMeta(body)
	if err != nil {
		return nil, err
	}
	d, err := ofItself(key, &m, body)
	if err != nil {
		return nil, err
	}
	if d.By != "" {
		all = append(all, d)
	}
	for _, p := range asked {
		if at := p.due(&m, body); !at.IsZero() {
			all = append(all, Due{At: at, By: p.String(), Propagation: cmp.Or(p.Propagation, propagation(&m)), Policy: p})
		}
	}
	all = slices.DeleteFunc(all, func(d Due) bool { return !restored.IsZero() && !d.At.After(restored) })
	slices.SortStableFunc(all, func(a, b Due) int { return a.At.Compare(b.At) })
	return all, nil
}
