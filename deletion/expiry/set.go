package expiry

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/due"
)

// Policies are those of the database. Each transaction that writes objects asks for those that it sees, which are read
// only when one was written.
type Policies struct {
	last   atomic.Pointer[Set]
	shares shares
}

// Changes implements store.Expiry: the status of a policy changes nothing.
func (p *Policies) Changes(kind string, before, after []byte) bool {
	if kind != policies && kind != clusterPolicies {
		return false
	}
	was, err := object.ParseMeta(before)
	is, err2 := object.ParseMeta(after)
	return err != nil || err2 != nil || was.Generation != is.Generation || was.Annotations[lifecycle.StartExpiry] != is.Annotations[lifecycle.StartExpiry] ||
		was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero()
}

// At implements store.Expiry.
func (p *Policies) At(ctx context.Context, r *store.Reader, revision, changed int64) (due.Rules, error) {
	return p.at(ctx, r, revision, changed)
}

// Now returns the policies as they are.
func (p *Policies) Now(ctx context.Context, r *store.Reader) (*Set, error) {
	revision, changed, _, err := due.Revisions(ctx, r)
	if err != nil {
		return nil, err
	}
	return p.at(ctx, r, revision, changed)
}

// at returns the policies at a revision, or newer ones. It reads what was written since it was last asked.
func (p *Policies) at(ctx context.Context, r *store.Reader, revision, changed int64) (*Set, error) {
	last := p.last.Load()
	if last != nil && last.changed >= changed {
		if seen := last.seen.Load(); seen < revision && last.changed == changed {
			last.seen.CompareAndSwap(seen, revision)
		}
		return last, nil
	}
	s, err := last.next(ctx, r, revision)
	if err == nil && s == nil {
		s, err = readAll(ctx, r)
	}
	if err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	s.changed = changed
	s.seen.Store(revision)
	p.last.CompareAndSwap(last, s) // a failure means that another goroutine read the same
	return s, nil
}

// Set is the policies at a revision. All but seen is immutable.
type Set struct {
	changed int64        // revision of the last change
	seen    atomic.Int64 // a later revision, up to which no policy changed
	in      map[string]*space
}

// space is the policies of a namespace; with an empty name the ClusterExpiryPolicies: policies of one namespace cost a write in another
// nothing.
type space struct {
	named map[string]*Policy
	of    map[string][]*Policy // by resource
}

// next returns the set with what was written until a revision. It is nil if the log does not have all of that.
func (s *Set) next(ctx context.Context, r *store.Reader, revision int64) (*Set, error) {
	if s == nil {
		return nil, nil
	}
	next, from := &Set{in: maps.Clone(s.in)}, s.seen.Load()
	for _, kind := range []string{policies, clusterPolicies} {
		if err := r.Changes(ctx, kind, from, revision, func(e *store.Event) {
			body := e.Object.Body
			if e.Type == store.Removed {
				body = nil
			}
			next.set(e.Object.Key, body)
		}); err != nil {
			return nil, err
		}
	}
	// Read after the changes: what is compacted now was there before.
	if _, _, compacted, err := due.Revisions(ctx, r); err != nil || compacted > from {
		return nil, err
	}
	return next, nil
}

// readStep is how many policies are read at once.
const readStep = 500

func readAll(ctx context.Context, r *store.Reader) (*Set, error) {
	s := &Set{in: map[string]*space{}}
	for _, kind := range []string{policies, clusterPolicies} {
		at := store.Selection{Kind: kind, Namespace: store.AllNamespaces, Limit: readStep}
		for {
			found, err := r.Select(ctx, at)
			if err != nil {
				return nil, err
			}
			for _, o := range found {
				s.set(o.Key, o.Body)
				at.AfterNamespace, at.After = o.Namespace, o.Name
			}
			if len(found) < readStep {
				break
			}
		}
	}
	return s, nil
}

// set sets a policy of a set that is being made; no body means that it is gone. One that is being deleted counts as gone, and so does one
// that cannot be read: validation refuses it.
func (s *Set) set(key object.Key, body []byte) {
	next := &space{named: map[string]*Policy{}, of: map[string][]*Policy{}}
	if old := s.in[key.Namespace]; old != nil {
		maps.Copy(next.named, old.named)
	}
	delete(next.named, key.Name)
	if p, err := parsePolicy(body); err == nil && !p.deleting {
		next.named[key.Name] = p
	}
	for _, name := range slices.Sorted(maps.Keys(next.named)) {
		p := next.named[name]
		for _, resource := range p.Resources {
			next.of[resource] = append(next.of[resource], p)
		}
	}
	s.in[key.Namespace] = next
	if len(next.named) == 0 {
		delete(s.in, key.Namespace)
	}
}

// Named returns a policy, or nil. An empty namespace means a ClusterExpiryPolicy.
func (s *Set) Named(namespace, name string) *Policy {
	if in := s.in[namespace]; in != nil {
		return in.named[name]
	}
	return nil
}

// asked returns the policies that are asked about an object.
func (s *Set) asked(key object.Key, counts func(*Policy) bool) (asked []*Policy) {
	for _, namespace := range []string{"", key.Namespace} {
		if in := s.in[namespace]; in != nil {
			for _, p := range in.of[key.Kind] {
				if p.in(key) && counts(p) {
					asked = append(asked, p)
				}
			}
		}
		if key.Namespace == "" {
			break
		}
	}
	return asked
}

// Due implements due.Rules: by what the object says and by the policies that have been started.
func (s *Set) Due(key object.Key, body []byte) (when due.When) {
	dues, err := s.dues(key, body, time.Time{}, time.Time{}, (*Policy).Started)
	if err != nil || len(dues) == 0 {
		return when // metadata that cannot be read has no annotations
	}
	for _, d := range dues {
		when.Doubt = when.Doubt || d.Policy != nil && d.Policy.doubts()
	}
	when.At, when.Look = dues[0].At, dues[0].At
	if announces(body) {
		when.Look = when.At.Add(-notice)
	}
	return when
}

// Groups implements due.Rules, also for policies that have not been started: so that their previews know the newest.
func (s *Set) Groups(key object.Key, body []byte) (all []due.Group) {
	asked := s.asked(key, func(p *Policy) bool { return p.Newest > 0 })
	if len(asked) == 0 || body == nil {
		return nil
	}
	m, err := object.ParseMeta(body)
	if err != nil || m.DeletionTimestamp != nil {
		return nil
	}
	for _, p := range asked {
		if p.Selector.Matches(labels.Set(m.Labels)) {
			all = append(all, p.group(key, &m))
		}
	}
	return all
}

// dues returns when an object expires by what it says and by the policies that count, the earliest first. Whether a
// policy's fields and condition select it is not asked. Times before the object was restored do not count. It
// parses only bodies of Jobs, those with annotations of this server and those in the scope of policies. A time that is not in a
// window of its policy is moved to the next one, from now on.
func (s *Set) dues(key object.Key, body []byte, restored, now time.Time, counts func(*Policy) bool) (all []Due, err error) {
	asked := s.asked(key, counts)
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
	held := transitions(body)
	for _, p := range asked {
		if at := p.due(&m, held); !at.IsZero() {
			all = append(all, Due{At: at, By: p.String(), Propagation: cmp.Or(p.Propagation, propagation(&m)), Policy: p})
		}
	}
	all = slices.DeleteFunc(all, func(d Due) bool { return !restored.IsZero() && !d.At.After(restored) })
	for i, d := range all {
		all[i].Over = d.At
		if d.Policy == nil {
			continue
		}
		all[i].At = d.Policy.opens(d.At)
		if at := later(all[i].At, now); d.Policy.opens(at).After(at) { // the window is over
			all[i].At = d.Policy.opens(at)
		}
	}
	slices.SortStableFunc(all, func(a, b Due) int { return a.At.Compare(b.At) })
	return all, nil
}
